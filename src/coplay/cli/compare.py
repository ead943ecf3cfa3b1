"""`compare`: runs against each other, over seeds."""

import argparse
import math

from coplay.cli.output import print_json, print_table, refuse_rest, result
from coplay.errors import BadInput
from coplay.evaluation.compare import compare_runs, compare_speed


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="two or more run folders")
    parser.add_argument("--metric", default="return", help="what to compare (default: return)")
    parser.add_argument(
        "--last", type=float, default=0.2, help="over this last share of training (default 0.2)"
    )
    parser.add_argument("--reach", type=float, help="instead: real steps until the metric is so high")
    parser.add_argument(
        "--window", type=int, default=16_000, help="steps that --reach averages over (default 16,000)"
    )


def compare(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json", "metric", "last", "reach", "window"])
    if len(arguments.runs) < 2:
        raise BadInput("compare takes two run folders or more")
    if not 0 < arguments.last <= 1:
        raise BadInput(f"--last {arguments.last} must lie between 0 and 1")
    if arguments.reach is not None:
        return _compare_speed(arguments)
    compared = compare_runs(arguments.runs, arguments.metric, arguments.last)
    if arguments.json:
        print_json(compared)
        return 0
    rows = [
        (
            run["run"],
            run["seeds"],
            f"{run['iqm']:.3f}",
            f"{run['interval'][0]:.3f} to {run['interval'][1]:.3f}",
        )
        for run in compared["runs"]
    ]
    print_table(["run", "seeds", f"IQM of {arguments.metric}", "95% interval"], rows)
    for pair in compared["pairs"]:
        low, high = pair["interval"]
        verdict = "the curves coincide to the bit" if pair["coincide"] else _verdict(low, high)
        result.print(
            f"{pair['runs'][0]} against {pair['runs'][1]}: difference of IQMs {pair['iqm']:+.3f} "
            f"(95% {low:+.3f} to {high:+.3f}), probability of improvement "
            f"{pair['probability_of_improvement']:.2f}: {verdict}",
            markup=False,
        )
    return 0


def _compare_speed(arguments: argparse.Namespace) -> int:
    if arguments.window < 1:
        raise BadInput(f"--window {arguments.window} must be at least 1")
    compared = compare_speed(arguments.runs, arguments.metric, arguments.reach, arguments.window)
    if arguments.json:
        print_json(compared)
        return 0
    rows = [
        (
            run["run"],
            run["seeds"],
            run["lost"],
            "-" if run["mean"] is None else f"{run['mean']:,.0f}",
            "-" if math.isnan(run["interval"][0]) else "{:,.0f} to {:,.0f}".format(*run["interval"]),
        )
        for run in compared["runs"]
    ]
    steps = f"real steps to {arguments.reach:g}"
    print_table(["run", "seeds", "never there", steps, "95% interval"], rows)
    for pair in compared["pairs"]:
        said = "nothing to compare" if pair["ratio"] is None else _times(pair)
        result.print(f"{pair['runs'][0]} against {pair['runs'][1]}: {said}", markup=False)
    return 0


def _times(pair: dict) -> str:
    low, high = pair["interval"]
    return f"{pair['ratio']:.2f} times the steps (95% {low:.2f} to {high:.2f}), of the seeds that got there"


def _verdict(low: float, high: float) -> str:
    if math.isnan(low):
        return "one seed shows nothing; train more"
    if low > 0:
        return "the first is better"
    return "the second is better" if high < 0 else "no difference shown"
