"""`pretrain`: a part of a learner, trained from recorded play."""

import argparse
from pathlib import Path

from coplay.cli.output import people, print_json, print_table, result
from coplay.cli.train import parse_overrides
from coplay.offline import pretrain as offline

KINDS = "\n".join(f"  {name:8}{kind.description}" for name, kind in sorted(offline.PARTS.items()))
EPILOG = f"""kinds:
{KINDS}

settings may be given by name:
  coplay collect 4h1s_4x4 --players nearest_stag,nearest_hare,random --episodes 10000
  coplay pretrain world data/4h1s_4x4.parquet --epochs 20 --members 3
  coplay evaluate parts/world_4h1s_4x4 --on data/other.parquet"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=sorted(offline.PARTS), help="what to train; see below")
    parser.add_argument("data", help="a file made by `coplay collect`")
    parser.add_argument("--out", help="folder to make (default: parts/KIND_DATA)")


def pretrain(arguments: argparse.Namespace, rest: list[str]) -> int:
    out = arguments.out or f"parts/{arguments.kind}_{Path(arguments.data).stem}"
    found = offline.pretrain(arguments.kind, arguments.data, parse_overrides(rest), out, people.print)
    if arguments.json:
        print_json(found)
        return 0
    result.print(
        f"{found.part}: {found.rows:,} rows learned from, {found.held_out_rows:,} held out, "
        f"{found.epochs} epochs in {found.seconds:.0f} s; loss {found.train_loss:.4f}, "
        f"held out {found.held_out_loss:.4f} (gap {found.gap:+.4f})"
    )
    print_figures(found.figures)
    return 0


def print_figures(figures: dict[str, float]) -> None:
    print_table(["figure", ""], [(name, f"{value:.6g}") for name, value in figures.items()])
