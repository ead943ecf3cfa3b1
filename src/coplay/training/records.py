"""Figures as rows of a run's tables: one per step, seed, seat and metric."""

import numpy as np

from coplay.training.job import Job


def metric_rows(job: Job, metrics: dict[str, np.ndarray], updates: int, count: int) -> dict[str, np.ndarray]:
    """Tidy columns; the step of a row is that of the weights that earned it."""
    steps = (updates + np.arange(count)) * job.steps_per_update
    return joined(*[_columns(job, name, value[:, :count], steps) for name, value in metrics.items()])


def score_rows(job: Job, scores: dict[str, np.ndarray], updates: int) -> dict[str, np.ndarray]:
    steps = np.array([updates * job.steps_per_update])
    return joined(*[_columns(job, name, value[:, None], steps) for name, value in scores.items()])


def _columns(job: Job, name: str, value: np.ndarray, steps: np.ndarray) -> dict[str, np.ndarray]:
    """[seed, update] or [seed, update, agent] as rows; seat -1 stands for the whole table."""
    per_agent = value if value.ndim == 3 else value[..., None]
    seats = np.arange(value.shape[2]) if value.ndim == 3 else np.array([-1])
    seed, step, seat = np.meshgrid(job.seed + np.arange(job.seeds), steps, seats, indexing="ij")
    keep = np.isfinite(per_agent).ravel()
    return {
        "step": step.ravel()[keep],
        "seed": seed.ravel()[keep],
        "seat": seat.ravel()[keep],
        "metric": np.full(int(keep.sum()), name),
        "value": per_agent.astype(np.float64).ravel()[keep],
    }


def joined(*tables: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    filled = [table for table in tables if table]
    return {name: np.concatenate([table[name] for table in filled]) for name in (filled[0] if filled else ())}
