"""`compare`: runs against each other, over seeds."""

import argparse
import math

from coplay.cli.output import print_json, print_table, refuse_rest, result
from coplay.errors import BadInput
from coplay.evaluation.compare import compare_runs, compare_speed

LAST, WINDOW = 0.2, 16_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="two or more run folders")
    parser.add_argument("--metric", default="return", help="what to compare (default: return)")
    parser.add_argument("--last", type=float, help=f"over this last share of training (default {LAST})")
    parser.add_argument("--reach", type=float, help="instead: real steps until the metric is so high")
    parser.add_argument("--window", type=int, help=f"steps that --reach averages over (default {WINDOW:,})")


def compare(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json", "metric", "last", "reach", "window"])
    if len(arguments.runs) < 2:
        raise BadInput("compare takes two run folders or more")
    return _compare_levels(arguments) if arguments.reach is None else _compare_speed(arguments)


def _compare_levels(arguments: argparse.Namespace) -> int:
    last = LAST if arguments.last is None else arguments.last
    if not 0 < last <= 1:
        raise BadInput(f"--last {last} must lie between 0 and 1")
    if arguments.window is not None:
        raise BadInput(
            f"--window {arguments.window} is what --reach averages over; give --reach too, or --last"
        )
    compared = compare_runs(arguments.runs, arguments.metric, last)
    if arguments.json:
        print_json(compared)
        return 0
    rows = [
        (
            run["run"],
            run["needs"] or "-",
            run["seeds"],
            f"{run['iqm']:.3f}",
            _interval(run["interval"], ".3f") or "-",
        )
        for run in compared["runs"]
    ]
    print_table(["run", "needs", "seeds", f"IQM of {arguments.metric}", "95% interval"], rows)
    for pair in compared["pairs"]:
        result.print(f"{pair['runs'][0]} against {pair['runs'][1]}: {_difference(pair)}", markup=False)
        if said := _coincidence(pair["settings"], pair["equal_updates"]):
            result.print(said, markup=False)
    return 0


def _compare_speed(arguments: argparse.Namespace) -> int:
    window = WINDOW if arguments.window is None else arguments.window
    if window < 1:
        raise BadInput(f"--window {window} must be at least 1")
    if arguments.last is not None:
        raise BadInput(f"--reach goes over all of training; leave --last {arguments.last:g} out")
    compared = compare_speed(arguments.runs, arguments.metric, arguments.reach, window)
    if arguments.json:
        print_json(compared)
        return 0
    rows = [
        (
            run["run"],
            run["needs"] or "-",
            run["seeds"],
            run["lost"],
            "-" if run["mean"] is None else f"{run['mean']:,.0f}",
            _interval(run["interval"], ",.0f") or "-",
        )
        for run in compared["runs"]
    ]
    steps = f"real steps to {arguments.reach:g}"
    print_table(["run", "needs", "seeds", "never there", steps, "95% interval"], rows)
    for pair in compared["pairs"]:
        said = "nothing to compare" if pair["ratio"] is None else _times(pair)
        result.print(f"{pair['runs'][0]} against {pair['runs'][1]}: {said}", markup=False)
    return 0


def _difference(pair: dict) -> str:
    verdict = "the curves coincide to the bit" if pair["coincide"] else _verdict(*pair["interval"])
    return (
        f"difference of IQMs {pair['iqm']:+.3f}{_in_brackets(pair['interval'], '+.3f')}, probability of "
        f"improvement {pair['probability_of_improvement']:.2f}: {verdict}"
    )


def _coincidence(settings: dict[str, list], equal: dict[str, int]) -> str:
    """What is odd about runs that are equal for a while though they were set otherwise, if they are."""
    if not settings or not equal:
        return ""
    longest = sorted(equal, key=lambda metric: -equal[metric])
    figures = _some([f"{metric} for {equal[metric]} updates" for metric in longest])
    others = _some([f"{name} ({one} and {other})" for name, (one, other) in settings.items()])
    return (
        f"Equal to the bit: {figures}, although these settings differ: {others}. They had no effect there: "
        "coplay audit RUN --only liveness says whether they are read"
    )


def _some(words: list[str], most: int = 3) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _times(pair: dict) -> str:
    interval = _in_brackets(pair["interval"], ".2f")
    return f"{pair['ratio']:.2f} times the steps{interval}, of the seeds that got there"


def _in_brackets(interval: list[float], form: str) -> str:
    return f" (95% {said})" if (said := _interval(interval, form)) else ""


def _interval(interval: list[float], form: str) -> str:
    """Nothing where there is none: one seed shows no spread."""
    low, high = interval
    return "" if math.isnan(low) else f"{low:{form}} to {high:{form}}"


def _verdict(low: float, high: float) -> str:
    if math.isnan(low):
        return "one seed shows nothing; train more"
    if low > 0:
        return "the first is better"
    return "the second is better" if high < 0 else "no difference shown"
