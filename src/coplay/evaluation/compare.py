"""Runs against each other: what may be said of their difference, over seeds."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from jaxtyping import Float, Int

from coplay.errors import BadInput, nearest
from coplay.evaluation.coincidence import coincidence
from coplay.evaluation.statistics import (
    bootstrap_difference,
    bootstrap_interval,
    coincide,
    iqm,
    probability_of_improvement,
)
from coplay.training.run_folder import RunFolder


def compare_runs(paths: list[str], metric: str, last: float) -> dict[str, Any]:
    """Interquartile means per run; per pair their difference, its interval, whether curves coincide, and
    which settings differ."""
    folders = {path: RunFolder.open(path) for path in paths}
    curves = {path: curve(folder, metric)[1] for path, folder in folders.items()}
    scores = {path: _last_part(path, metric, of_run, last) for path, of_run in curves.items()}
    return {
        "metric": metric,
        "last": last,
        "runs": [_one(path, scores[path]) | {"needs": folders[path].needs} for path in paths],
        "pairs": [_pair(a, b, scores, curves) for a, b in itertools.combinations(paths, 2)],
    }


def curve(folder: RunFolder, metric: str) -> tuple[Int[np.ndarray, " step"], Float[np.ndarray, "seed step"]]:
    """All steps at which some seed wrote it, and its values, mean over seats; NaN where a seed wrote none,
    as in a round that ended no episode of its."""
    table = folder.read_metrics()
    rows = table.filter(pc.field("metric") == metric)
    if rows.num_rows == 0:
        known = table["metric"].unique().to_pylist()
        raise BadInput(f"{Path(folder.path)} has no metric {metric!r}; {nearest(metric, known)}")
    grouped = rows.group_by(["seed", "step"]).aggregate([("value", "mean")])
    seeds = np.unique(table["seed"].to_numpy())  # of the run: one that never wrote it is a row of NaN
    steps, place = np.unique(grouped["step"].to_numpy(), return_inverse=True)
    values = np.full((len(seeds), len(steps)), np.nan)
    values[np.searchsorted(seeds, grouped["seed"].to_numpy()), place] = grouped["value_mean"].to_numpy()
    return steps, values


def _last_part(
    path: str, metric: str, of_run: Float[np.ndarray, "seed step"], last: float
) -> Float[np.ndarray, " seed"]:
    """Every seed's mean over the last share of the steps, of what it wrote there."""
    recent = of_run[:, -max(1, round(last * of_run.shape[1])) :]
    silent = int(np.isnan(recent).all(axis=1).sum())
    if silent:
        raise BadInput(
            f"{path}: {silent} of {len(of_run)} seeds wrote no {metric!r} in the last {last:g} of training; "
            "raise --last or train longer"
        )
    return np.nanmean(recent, axis=1)


def _one(path: str, scores: np.ndarray) -> dict[str, Any]:
    low, high = bootstrap_interval(scores, iqm)
    return {
        "run": path,
        "seeds": len(scores),
        "iqm": float(iqm(scores)),
        "interval": [float(low), float(high)],
    }


def _pair(a: str, b: str, scores: dict[str, np.ndarray], curves: dict[str, np.ndarray]) -> dict[str, Any]:
    low, high = bootstrap_difference(scores[a], scores[b], iqm)
    improvement = probability_of_improvement(scores[a], scores[b])
    stretches = [coincide(x, y) for x in curves[a] for y in curves[b]]
    length = min(curves[a].shape[1], curves[b].shape[1])
    return {
        "runs": [a, b],
        "iqm": float(iqm(scores[a]) - iqm(scores[b])),
        "interval": [float(low), float(high)],
        "probability_of_improvement": improvement.probability,
        "probability_interval": [improvement.low, improvement.high],
        "longest_equal_stretch": int(max(stretches)),
        "coincide": bool(max(stretches) >= length),
        **coincidence(RunFolder.open(a), RunFolder.open(b)),
    }


# --- how soon -----------------------------------------------------------------------------------------


def compare_speed(paths: list[str], metric: str, level: float, window: int) -> dict[str, Any]:
    """Real steps that every seed took to a level. Seeds that never got there are counted, not averaged: no
    number of steps stands for them."""
    folders = {path: RunFolder.open(path) for path in paths}
    curves = {path: curve(folder, metric) for path, folder in folders.items()}
    for path, (written, _) in curves.items():
        _refuse_beyond(path, metric, written, window)
    steps = {path: steps_to(*of_run, level, window) for path, of_run in curves.items()}
    return {
        "metric": metric,
        "level": level,
        "window": window,
        "runs": [_arrivals(path, steps[path]) | {"needs": folders[path].needs} for path in paths],
        "pairs": [_ratio(a, b, steps[a], steps[b]) for a, b in itertools.combinations(paths, 2)],
    }


def _refuse_beyond(path: str, metric: str, steps: Int[np.ndarray, " step"], window: int) -> None:
    """No window is ever full in a run that is shorter, and nobody would be there."""
    if steps[-1] < window:
        raise BadInput(
            f"{path} has {metric!r} up to step {steps[-1]:,}, which --window {window:,} is longer than; "
            "take a shorter window or train longer"
        )


def steps_to(
    steps: Int[np.ndarray, " step"], values: Float[np.ndarray, "seed step"], level: float, window: int
) -> Float[np.ndarray, " seed"]:
    """After how many steps the mean over the `window` steps before reaches the level; inf if never.
    Nothing is said of a window that is not full, and rounds without an episode's end count for nothing."""
    arrived = np.full(len(values), np.inf)
    for now in reversed(steps[steps >= window]):
        recent = values[:, (steps > now - window) & (steps <= now)]
        mean = np.ma.masked_invalid(recent).mean(axis=1).filled(-np.inf)
        arrived = np.where(mean >= level, now, arrived)
    return arrived


def _arrivals(path: str, steps: np.ndarray) -> dict[str, Any]:
    there = steps[np.isfinite(steps)]
    low, high = bootstrap_interval(there, np.mean) if len(there) else (np.nan, np.nan)
    return {
        "run": path,
        "seeds": len(steps),
        "lost": int(len(steps) - len(there)),
        "mean": float(there.mean()) if len(there) else None,
        "interval": [float(low), float(high)],
        "per_seed": [int(s) if np.isfinite(s) else None for s in steps],
    }


def _ratio(a: str, b: str, of_a: np.ndarray, of_b: np.ndarray) -> dict[str, Any]:
    """Mean steps of the first over mean steps of the second, over the seeds that arrived."""
    of_a, of_b = (np.log(x[np.isfinite(x)]) for x in (of_a, of_b))
    if not len(of_a) or not len(of_b):
        return {"runs": [a, b], "ratio": None, "interval": [np.nan, np.nan]}

    def log_mean(x: np.ndarray) -> float:
        return float(np.log(np.exp(x).mean()))

    low, high = np.exp(bootstrap_difference(of_a, of_b, log_mean))
    ratio = float(np.exp(log_mean(of_a) - log_mean(of_b)))
    return {"runs": [a, b], "ratio": ratio, "interval": [float(low), float(high)]}
