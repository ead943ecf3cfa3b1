"""Trains the rungs of a ladder over the same seeds, and reads what became of each."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float

from coplay import experiment as experiments
from coplay import runs
from coplay.audit.phenomenon import LAST, at_end
from coplay.audit.rungs import Rung, seats_of
from coplay.errors import BadInput
from coplay.evaluation.compare import curve
from coplay.experiment import Experiment
from coplay.training import checkpoint
from coplay.training.devices import forget_programs
from coplay.training.run_folder import RunFolder
from coplay.types import Environment


@dataclasses.dataclass(frozen=True)
class Climbed:
    """A trained rung: figures of every seed over the last fifth of training, those that it has."""

    rung: Rung
    returns: Float[np.ndarray, "seed seat"]  # of seats that learn
    to_earn: float  # beyond random play
    per_seed: dict[str, Float[np.ndarray, " seed"]]
    seconds: float = 0.0

    @property
    def seeds(self) -> int:
        return len(self.returns)


def climb(
    ladder: list[Rung],
    seeds: int,
    steps: int | None,
    folder: Path,
    watcher: runs.Watcher | None = None,
    tell: Callable[[str], None] = lambda says: None,
) -> list[Climbed]:
    """Every rung trained over the same seeds, or read where that was done before; `steps` None: as many as
    the experiment says. Fewer rungs if the watcher wants to stop."""
    climbed = []
    for number, rung in enumerate(ladder, start=1):
        tell(f"{number} of {len(ladder)}: {rung.name} ({rung.refused or rung.adds})")
        if rung.experiment is None:
            continue
        began = time.perf_counter()
        run = _trained(_sized(rung.experiment, seeds, steps), folder / rung.name, watcher or runs.Watcher())
        if run is None:
            break
        climbed.append(dataclasses.replace(read(rung, run), seconds=time.perf_counter() - began))
    return climbed


def _sized(experiment: Experiment, seeds: int, steps: int | None) -> Experiment:
    changes = {"seeds": seeds, "evaluation.every": 0, "saving.tensorboard": False}
    changes |= {} if steps is None else {"steps": steps}
    return runs.resolve(experiments.with_overrides(experiment, changes))


def _trained(given: Experiment, path: Path, watcher: runs.Watcher) -> RunFolder | None:
    """The run's folder, finished: as found, gone on with or made; None if it was stopped."""
    if not path.exists():
        run = runs.train(given, path, watcher, pages=False)
    else:
        folder = RunFolder.open(path)
        if experiments.read_run(folder) != given:
            raise BadInput(f"{path} was trained with other settings; take another --out, or remove it")
        if not checkpoint.steps(folder.checkpoints):
            raise BadInput(f"{path} was stopped before it had saved anything; remove it and repeat this")
        if checkpoint.newest_meta(folder.checkpoints)["updates"] >= given.rollout.num_updates:
            return folder
        run = runs.resume(path, watcher=watcher, pages=False)
    forget_programs()
    return None if run.finished is None or run.finished.stopped else run.folder


def read(rung: Rung, run: RunFolder) -> Climbed:
    """The figures of a finished run; what it does not tell for every seed is left out."""
    assert rung.experiment is not None
    built = experiments.build(rung.experiment)
    learners = experiments.algorithms_in_play(rung.experiment)
    seats = [seat for learner in learners for seat in seats_of(built, learner)]
    known = set(run.read_metrics()["metric"].unique().to_pylist())
    if "return" not in known:
        raise BadInput(f"{run.path}: no episode ended while it was trained; take more --steps")
    returns = at_end(run)[:, seats]
    to_earn = _to_earn(built.env, returns)
    per_seed = {"return": returns.mean(axis=1)}
    if len(set(built.env.alike)) <= 1 and len(set(built.stretches[-1].lineup)) == 1 and len(seats) > 1:
        per_seed["seat_order"] = rises(returns) / to_earn
    for name in ("loss", "explained_variance"):
        if f"value/{name}" in known:
            per_seed[f"value_{name}"] = _late(run, f"value/{name}")
    surprises = [f"opponents/{name}surprise" for name in ("even_", "", "true_")]
    if known.issuperset(surprises):
        per_seed["opponent_skill"] = skill(*(_late(run, name) for name in surprises))
    whole = {name: values for name, values in per_seed.items() if np.isfinite(values).all()}
    return Climbed(rung, returns, to_earn, whole)


def _to_earn(env: Environment, returns: Float[np.ndarray, "seed seat"]) -> float:
    """From random play to the ceiling; the largest return seen, where the game does not say."""
    if env.ceiling is not None and env.random_return is not None:
        return float(env.ceiling - env.random_return)
    return max(float(np.abs(returns).max()), 1e-9)


def rises(returns: Float[np.ndarray, "seed seat"]) -> Float[np.ndarray, " seed"]:
    """How much more the last seat earns than the first, along the straight line nearest to all of them."""
    place = np.arange(returns.shape[1]) - (returns.shape[1] - 1) / 2
    return returns @ place / (place @ place) * (returns.shape[1] - 1)


def skill(
    even: Float[np.ndarray, " seed"], own: Float[np.ndarray, " seed"], true: Float[np.ndarray, " seed"]
) -> Float[np.ndarray, " seed"]:
    """Of what there is to foresee beyond an even guess, the share that is foreseen; NaN where that is less
    than a hundredth of a nat."""
    there = even - true
    return np.where(there > 0.01, (even - own) / np.where(there > 0.01, there, 1.0), np.nan)


def _late(run: RunFolder, metric: str) -> Float[np.ndarray, " seed"]:
    steps, values = curve(run, metric)
    late = values[:, steps >= steps.min() + (1.0 - LAST) * (steps.max() - steps.min())]
    return np.ma.masked_invalid(late).mean(axis=1).filled(np.nan)
