"""`evaluate`: a run's players among themselves, or a trained part, of a run too, on recorded play."""

import argparse
import dataclasses

from coplay import runs
from coplay.cli.output import print_json, print_table, refuse_rest, result
from coplay.cli.pretrain import print_figures
from coplay.cli.train import parse_overrides
from coplay.errors import BadInput
from coplay.experiment import parse_run, played_otherwise
from coplay.offline import pretrain as offline
from coplay.offline import run_parts
from coplay.training.part_folder import is_part

EPILOG = """settings of the run may be given as in `train`:
  coplay evaluate zoo:hop_4h1s_4x4 --episodes 256 --trees 5 --simulations 200    the published budget
  coplay evaluate zoo:hop_4h1s_4x4 --episodes 256 --acts network                 the same player, no search

what a run of hop_plus, or `pretrain`, has learned is judged on recorded play of its game:
  coplay collect 4h1s_4x4 --observation entities --players nearest_stag,random
  coplay evaluate zoo:hop_plus_4h1s_4x4 --module world --on data/4h1s_4x4.parquet
  coplay evaluate parts/world_4h1s_4x4 --on data/4h1s_4x4.parquet"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", help="a run folder; RUN@best for its best evaluated checkpoint, RUN@best:3 for seed 3"
    )
    parser.add_argument("--episodes", type=int, help="whole games per seed (default 4096)")
    parser.add_argument("--seed", type=int, default=0, help="of the evaluation's own draws")
    parser.add_argument(
        "--on", help="of a part that `pretrain` made, or of a module: recorded play to judge it on"
    )
    parser.add_argument(
        "--module",
        choices=sorted(offline.PARTS),
        help="of a run of hop_plus: its part to judge, the mean over seeds unless one is named",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--greedy", action="store_true", help="always take the likeliest action")
    mode.add_argument("--sample", action="store_true", help="draw from the policy (the default)")


def evaluate(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.on or arguments.module:
        return _evaluate_part(arguments, rest)
    if is_part(arguments.run):
        raise BadInput(f"{arguments.run} is a trained part: name recorded play to judge it on with --on")
    episodes = 4096 if arguments.episodes is None else arguments.episodes
    if episodes < 1:
        raise BadInput(f"--episodes {episodes} must be at least 1")
    reference = parse_run(arguments.run)
    run = runs.load(reference.path)
    run = dataclasses.replace(run, experiment=played_otherwise(run.experiment, parse_overrides(rest)))
    only = _only_seed(arguments.run)
    mode = "greedy" if arguments.greedy else "sample"
    score = runs.evaluate(run, episodes, mode, reference.best, arguments.seed, only)
    if arguments.json:
        print_json(score)
    else:
        _print(score)
    return 0


def _only_seed(run: str) -> int | None:
    """The seed that RUN@best:SEED names; None stands for all."""
    return parse_run(run).seed if ":" in run.partition("@")[2] else None


def _evaluate_part(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["on", "module", "json"])
    if arguments.greedy or arguments.sample or arguments.episodes is not None or arguments.seed:
        raise BadInput("a part is judged on all of the play that --on names; other options say nothing")
    if not arguments.on:
        raise BadInput(f"--module {arguments.module}: name recorded play to judge it on with --on")
    figures = _figures(arguments.run, arguments.module, arguments.on)
    if arguments.json:
        print_json(figures)
    else:
        print_figures(figures)
    return 0


def _figures(name: str, module: str | None, data: str) -> dict[str, float]:
    """Of a part's folder, or of a part of a run."""
    if is_part(name):
        return offline.evaluate(name, data, module)
    reference = parse_run(name)
    if not (reference.path / "experiment.toml").is_file():
        raise BadInput(f"{name} is neither a trained part (part.json) nor a run (experiment.toml)")
    return run_parts.evaluate(reference.path, module, data, reference.best, _only_seed(name))


def _print(score) -> None:
    of = f" of at most {score.ceiling:g}" if score.ceiling is not None else ""
    result.print(
        f"mean return {score.mean_return:.3f}{of}, 95% interval {score.interval[0]:.3f} to "
        f"{score.interval[1]:.3f} ({score.seeds} seed(s) x {score.episodes} episodes, {score.mode}, "
        f"weights of step {score.step:,}; {score.needs})"
    )
    columns = ["", *[f"seat {i}" for i in range(len(score.per_seat))], "mean"]
    rows = [
        [f"seed {number}", *[f"{x:.3f}" for x in row], f"{mean:.3f}"]
        for number, row, mean in zip(score.seed_numbers, score.per_seed_and_seat, score.per_seed, strict=True)
    ]
    rows.append(["all", *[f"{x:.3f}" for x in score.per_seat], f"{score.mean_return:.3f}"])
    print_table(columns, rows)
    gap = score.largest_seat_gap
    if gap is not None:
        result.print(
            f"largest seat gap {gap['gap']:.3f} (95% {gap['interval'][0]:.3f} to {gap['interval'][1]:.3f}); "
            f"Page's L upward p = {gap['page_up']:.3f}, downward p = {gap['page_down']:.3f}"
        )
    outcomes = ", ".join(f"{name} {count:.2f}" for name, count in score.outcomes.items())
    result.print(f"per episode: length {score.length:.1f}" + (f", {outcomes}" if outcomes else ""))
