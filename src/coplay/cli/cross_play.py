"""`cross-play`: players among copies of each other, as a matrix."""

import argparse

from coplay import meetings
from coplay.cli.output import people, print_json, print_table, refuse_rest
from coplay.errors import BadInput
from coplay.training.devices import prepare


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "players", nargs="+", metavar="RUN", help="run folders or zoo:NAME; after the first also players"
    )
    parser.add_argument("--episodes", type=int, default=512, help="per cell and seat (default 512)")
    parser.add_argument("--seats", help="places to take in turn, such as 0,2 (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the boards and draws")


def cross_play(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json", "episodes", "seats", "seed"])
    if arguments.episodes < 2:
        raise BadInput(f"--episodes {arguments.episodes} must be at least 2")
    prepare(2)
    found = meetings.cross_play(
        arguments.players, _seats(arguments.seats), arguments.episodes, arguments.seed, people.print
    )
    if arguments.json:
        print_json(found)
    else:
        _print(found)
    return 0


def _seats(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"--seats {text!r} should be whole numbers between commas") from None


def _print(found: meetings.CrossPlay) -> None:
    rows = []
    for player in found.players:
        cells = [cell for cell in found.cells if cell.player == player]
        rows.append((player, *[_with_interval(cell) for cell in cells]))
    print_table(["own return (95%) among", *found.players], rows)
    rows = [(c.player, c.company, *map(_short, c.per_seat), _short(c.company_return)) for c in found.cells]
    print_table(["player", "among", *[f"seat {s}" for s in found.seats], "the others"], rows)


def _with_interval(cell: meetings.Cell) -> str:
    return f"{cell.own_return:.3f} ({cell.interval[0]:.3f}, {cell.interval[1]:.3f})"


def _short(value: float) -> str:
    return f"{value:.3f}"
