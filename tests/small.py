"""Experiments small enough for a test, and what several tests do with them."""

from pathlib import Path

import jax
import numpy as np

from coplay.experiment import Experiment, build, job, read_experiment, with_overrides
from coplay.training.records import metric_rows
from coplay.training.run_folder import RunFolder

SMALL = {
    "rollout.num_envs": 16,
    "rollout.num_steps": 10,
    "rollout.sequence_length": 10,
    "rollout.total_steps": 640,
    "evaluation.every": 0,
    "evaluation.final_episodes": 8,
    "saving.every": 2,
    "saving.tensorboard": False,
    "devices": 1,
}


def small(name: str = "ppo_4h1s_4x4", **changes) -> Experiment:
    """A shipped experiment cut down to four updates of 160 steps."""
    algorithm = {"hidden": (8, 8), "minibatches": 2, "epochs": 2}
    experiment = with_overrides(read_experiment(name), SMALL | changes)
    for section in ("ppo", "mappo", "happo", "hyper_mappo", "hop", "hop_plus"):
        if f"{section}.hidden" not in changes and section in _in_play(experiment):
            own = {f"{section}.{key}": value for key, value in algorithm.items()}
            experiment = with_overrides(experiment, own)
    return experiment


def _in_play(experiment: Experiment) -> list[str]:
    from coplay.experiment import algorithms_in_play

    return algorithms_in_play(experiment)


def small_job(name: str = "ppo_4h1s_4x4", **changes):
    return job(build(small(name, **changes)))


def written_run(path: Path, returns: list[list[float]], settings: str = "", **versions) -> str:
    """A run folder of returns [seed, update], 160 steps apart, and losses, as the loop writes them."""
    values = np.array(returns, np.float32)
    work, updates = small_job(seeds=len(values)), values.shape[1]
    rows = metric_rows(work, {"return": values, "loss": np.zeros_like(values)}, 0, updates)
    RunFolder.create(path, settings, versions).write_metrics(0, updates * work.steps_per_update, rows)
    return str(path)


def same_bits(a, b) -> bool:
    def raw(x):
        return np.asarray(
            jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        )

    leaves_a, leaves_b = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(leaves_a) == len(leaves_b) and all(
        np.array_equal(raw(x), raw(y), equal_nan=True)
        if raw(x).dtype.kind == "f"
        else np.array_equal(raw(x), raw(y))
        for x, y in zip(leaves_a, leaves_b, strict=True)
    )
