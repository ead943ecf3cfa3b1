"""`train` and `resume`: settings from a TOML and the command line, a live line, a clean stop."""

import argparse
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from coplay import experiment as experiments
from coplay import plan as plans
from coplay import runs
from coplay.cli.output import people, print_json, refuse_rest, result
from coplay.errors import BadInput

EPILOG = """any setting of the experiment is an option, by its own name or with its section:
  coplay train ppo_4h1s_4x4 --steps 500000 --seeds 5 --learning_rate 3e-4
  coplay train mine.toml --rollout.num_envs 128 --lineup '["ppo","nearest_stag","nearest_stag","runs/x@best"]'
`coplay train EXPERIMENT --dry-run` prints the resolved settings and what the run would take;
docs/settings.md lists every setting."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", help="a TOML file, or the name of a shipped experiment")
    parser.add_argument("--out", help="run folder to make (default: runs/EXPERIMENT)")
    parser.add_argument("--seeds", help="how many seeds to train side by side")
    parser.add_argument("--seed", help="the first seed")
    parser.add_argument("--steps", help="joint steps to train for")
    parser.add_argument(
        "--dry-run", action="store_true", help="print settings, size, memory, time; train nothing"
    )


def resume_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--steps", type=_whole, help="a later end than planned, in joint steps")


def _whole(text: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise BadInput(f"--steps {text!r} should be a whole number") from None


def train(arguments: argparse.Namespace, rest: list[str]) -> int:
    overrides = parse_overrides(rest)
    for name in ("seeds", "seed", "steps"):
        if getattr(arguments, name) is not None:
            overrides[name] = getattr(arguments, name)
    experiment = experiments.read_experiment(arguments.experiment, overrides)
    if arguments.dry_run:
        return _dry_run(experiment, arguments.json)
    watcher = LiveLine()
    label = Path(arguments.experiment).stem
    out = arguments.out or runs.default_name(label)
    with watcher:
        run = runs.train(experiment, out, watcher)
    return _tell(run, watcher, arguments.json)


def resume(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json", "steps"])
    watcher = LiveLine()
    with watcher:
        run = runs.resume(arguments.run, arguments.steps, watcher)
    return _tell(run, watcher, arguments.json)


def parse_overrides(rest: Sequence[str]) -> dict[str, str]:
    """`--key value` and `--key=value` pairs; a lone `--key` means true."""
    overrides: dict[str, str] = {}
    words = list(rest)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise BadInput(f"{word!r} is not an option; settings are given as --name value")
        key, has_value, value = word[2:].partition("=")
        if not has_value:
            value = words.pop(0) if words and not words[0].startswith("--") else "true"
        overrides[key.replace("-", "_")] = value
    return overrides


def _dry_run(experiment, as_json: bool) -> int:
    experiment = runs.resolve(experiment)
    planned = plans.plan(experiments.build(experiment))
    if as_json:
        print_json({"settings": experiments.as_tables(experiment), "plan": planned})
    else:
        result.print(experiments.as_toml(experiment), markup=False)
        print_plan(planned, result)
    plans.refuse_if_too_large(planned)
    return 0


def print_plan(planned, console) -> None:
    """Which modules, loss terms and parameters are in play, and what they will take."""
    console.print(f"[bold]{planned.game}[/bold]: {', '.join(planned.seats)}")
    for module in planned.modules:
        weights = ", ".join(f"{size:,} {name}" for name, size in module["networks"].items())
        if module["loss_terms"]:
            terms = ", ".join(f"{weight:+g} {name}" for name, weight in module["loss_terms"].items())
            console.print(
                f"  {module['member']}: {module['network']}, {module['parameters']}, {module['needs']}; "
                f"weights {weights}; loss {terms}"
            )
        elif module["learns"]:
            console.print(
                f"  {module['member']}: your own, {module['needs']}; weights {weights}", markup=False
            )
        else:
            console.print(f"  {module['member']}: does not learn")
        if module["begun_with"]:
            console.print(f"  {module['member']}: began with {module['begun_with']}, beside its own")
    console.print(
        f"  {planned.steps:,} steps in {planned.updates:,} updates, {planned.seeds} seed(s), "
        f"{planned.devices} device(s); about {planned.memory_bytes / 2**20:,.0f} MiB, "
        f"roughly {minutes(planned.seconds)}"
    )


class LiveLine(runs.Watcher):
    """A line that keeps moving on a terminal, and one now and then elsewhere; stops when asked to."""

    def __init__(self):
        self.signal: int | None = None
        self.last_print = 0.0
        self.speed = 0.0
        self.warned: set[str] = set()

    def __enter__(self):
        self.before = {s: signal.signal(s, self._stop) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _stop(self, number, _frame) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        people.print("\nstopping after this chunk, then saving (again to stop at once)")

    def planned(self, planned) -> None:
        print_plan(planned, people)
        people.print("compiling ...", end="\r" if people.is_terminal else "\n")

    def compiled(self, program, free) -> None:
        needs = (
            f"; needs {plans.in_bytes(program.need)} of {plans.in_bytes(free)} free" if program.need else ""
        )
        people.print(f"compiled in {minutes(program.seconds)}{needs}")

    def wants_stop(self) -> bool:
        return self.signal is not None

    def progressed(self, progress) -> None:
        self._warn(progress.alarms)
        now = time.perf_counter()
        rate = progress.chunk_steps / progress.seconds
        self.speed = rate if self.speed == 0 else 0.7 * self.speed + 0.3 * rate
        done = progress.step >= progress.total_steps
        if not people.is_terminal and now - self.last_print < 10 and not done:
            return
        self.last_print = now
        people.print(self._line(progress), end="\r" if people.is_terminal and not done else "\n")

    def _warn(self, alarms: Mapping[str, str]) -> None:
        """Once for each figure, on a line of its own."""
        start = "\n" if people.is_terminal else ""  # below the line that moves
        for name in alarms.keys() - self.warned:
            people.print(f"{start}warning: {alarms[name]}", markup=False)
            self.warned.add(name)

    def _line(self, progress) -> str:
        left = (progress.total_steps - progress.step) * progress.seeds / self.speed
        seats = " ".join(f"{value:6.2f}" for value in progress.returns)
        share = progress.step / progress.total_steps
        return (
            f"{share:4.0%} {progress.step:,} steps | {self.speed / 1000:.1f}k steps/s | "
            f"{minutes(left)} left | return per seat {seats}"
        )


def _tell(run, watcher: LiveLine, as_json: bool) -> int:
    if run.finished.stopped:
        step = run.finished.updates * run.experiment.rollout.steps_per_update
        people.print(f"saved at step {step:,}; go on with: coplay resume {run.path}")
        return 143 if watcher.signal == signal.SIGTERM else 130
    score = run.evaluate(run.experiment.evaluation.final_episodes)
    if as_json:
        print_json(
            {
                "run": str(run.path),
                "final_return": score.mean_return,
                "interval": score.interval,
                "per_seat": score.per_seat,
                "per_seed": score.per_seed,
                "outcomes": score.outcomes,
                "steps": score.step,
                "seconds": run.seconds,
                "compile_seconds": run.finished.compile_seconds,
                "recompiles": run.finished.recompiles,
                "program_bytes": run.finished.program_bytes,
            }
        )
    else:
        seats = " ".join(f"{value:.3f}" for value in score.per_seat)
        of = f" of at most {score.ceiling:g}" if score.ceiling is not None else ""
        result.print(
            f"mean return {score.mean_return:.3f}{of} "
            f"(95% {score.interval[0]:.3f} to {score.interval[1]:.3f}, "
            f"{score.seeds} seed(s) x {score.episodes} episodes, {score.mode}); per seat {seats}"
        )
        result.print(
            f"{score.step:,} steps in {minutes(run.seconds)}; report: {run.folder.report}", markup=False
        )
    return 0


def minutes(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
