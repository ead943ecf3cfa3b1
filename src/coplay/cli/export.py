"""`export`: one seed's weights as a small run folder, to share or to meet."""

import argparse

from coplay import runs
from coplay.cli.output import print_json, refuse_rest, result


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder; RUN@best for its best checkpoint, RUN@best:3 for seed 3")
    parser.add_argument("out", help="folder to make")
    parser.add_argument("--made-by", default="", help="the command that made the run, kept in versions.json")


def export(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json", "made-by"])
    folder = runs.export(arguments.run, arguments.out, arguments.made_by)
    size = sum(file.stat().st_size for file in folder.path.rglob("*") if file.is_file())
    if arguments.json:
        print_json({"run": str(folder.path), "bytes": size})
    else:
        result.print(f"{folder.path}: {size / 1e6:.1f} MB; a player wherever a run is named")
    return 0
