"""An experiment cut down so that an update takes a moment: the same modules and switches, less of each."""

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from coplay import experiment as experiments
from coplay import runs
from coplay.experiment import Experiment
from coplay.training import checkpoint
from coplay.training.run_folder import RunFolder
from coplay.types import TrainState

GAMES, MOST_STEPS, UPDATES = 16, 32, 4
LOOKS_EVERY = 2  # updates between evaluations and saves
SMALLER = {
    "hidden": (32, 32),
    "minibatches": 2,
    "epochs": 2,
    "model_hidden": (16, 16),
    "world_hidden": (16, 16),
    "simulations": 4,
    "searched_simulations": 4,
    "trees": 2,
    "guesses": 2,
    "world_steps": 4,
    "world_batch": 64,
    "gates": "off",  # so that what is imagined is seen to be learned from
}

LOADED = {"hidden", "model_hidden", "world_hidden"}


def at_small_scale(experiment: Experiment, gates_open: bool = True) -> Experiment:
    """Of a schedule, the last line-up. Gates of imagination are open, or as the experiment has them."""
    if experiment.schedule:
        last = max(experiment.schedule, key=lambda phase: phase.after)
        experiment = dataclasses.replace(experiment, lineup=last.lineup, schedule=())
    length = min(experiment.rollout.sequence_length, MOST_STEPS)
    changes = {
        "rollout.num_envs": GAMES,
        "rollout.num_steps": length * max(1, MOST_STEPS // length),
        "rollout.sequence_length": length,
        "evaluation.every": LOOKS_EVERY,
        "evaluation.episodes": GAMES,
        "evaluation.mode": "sample",
        "saving.every": LOOKS_EVERY,
        "saving.keep": UPDATES,
        "saving.tensorboard": False,
        "seeds": 1,
        "devices": 1,
    }
    changes["rollout.total_steps"] = UPDATES * GAMES * changes["rollout.num_steps"]
    for name in experiments.algorithms_in_play(experiment):
        config = experiments.settings_of(experiment, name)
        kept = LOADED & {field for field in SMALLER if loads_parts(config)}
        kept |= set() if gates_open else {"gates"}
        smaller = {field: value for field, value in SMALLER.items() if hasattr(config, field)}
        changes |= {f"{name}.{field}": value for field, value in smaller.items() if field not in kept}
    return experiments.with_overrides(experiment, changes)


def loads_parts(config: Any) -> bool:
    """Whether some of its networks begin as they were trained elsewhere, with widths of their own."""
    return any(getattr(config, name, "") for name in ("models_from", "world_from", "pretrain", "prior"))


class SmallRun(NamedTuple):
    """What the product's own loop made of it, in one go, and stopped, saved, loaded and gone on with."""

    whole: TrainState  # [seed, ...]
    resumed: TrainState
    metrics: dict[str, np.ndarray]  # columns of the whole run's table: step, seed, seat, metric, value


def run_whole(experiment: Experiment) -> SmallRun:
    small = at_small_scale(experiment)
    with tempfile.TemporaryDirectory() as folder, compiled_quickly():
        whole = runs.train(small, Path(folder) / "whole", runs.Watcher(), pages=False)
        half = _half_way(whole.path, Path(folder) / "half", small)
        resumed = runs.resume(half, watcher=runs.Watcher(), pages=False)
        assert whole.finished is not None and resumed.finished is not None
        table = whole.metrics()
        columns = {name: np.asarray(table[name].to_numpy()) for name in table.column_names}
        return SmallRun(whole.finished.state, resumed.finished.state, columns)


def _half_way(path: Path, copy: Path, small: Experiment) -> Path:
    """The run as it was when half of it was done."""
    shutil.copytree(path, copy)
    checkpoint.forget_after(RunFolder.open(copy).checkpoints, small.rollout.total_steps // 2)
    return copy


@contextlib.contextmanager
def compiled_quickly() -> Iterator[None]:
    """Programs that run for a moment are not worth much optimisation."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
