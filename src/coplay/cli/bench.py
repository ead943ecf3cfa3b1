"""`bench`: speed, as ratios measured in one run."""

import argparse
import os

from coplay.bench import ITEMS
from coplay.bench.machine import machine
from coplay.cli.output import people, print_json, print_table, refuse_rest
from coplay.errors import BadInput, nearest
from coplay.training.devices import prepare


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="*", help=f"{', '.join(ITEMS)} (default: all)")


def bench(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json"])
    prepare(os.cpu_count() or 1)
    for name in arguments.what:
        if name not in ITEMS:
            raise BadInput(f"there is nothing called {name!r} to measure; {nearest(name, ITEMS)}")
    items = []
    for name in arguments.what or ITEMS:
        people.print(f"measuring {name} ...")
        items.append(ITEMS[name]())
    measured = {"machine": machine(), "items": items}
    if arguments.json:
        print_json(measured)
        return 0
    rows = [
        (i.name, f"{_shown(i.figure)} {i.unit}", "" if i.ratio is None else f"{i.ratio:.2f}", i.against)
        for i in items
    ]
    print_table(["what", "figure", "ratio", "against"], rows)
    return 0


def _shown(figure: float) -> str:
    """Whole numbers, but for small ones."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.1f}"
