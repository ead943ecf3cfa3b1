"""Runs against each other: what may be said of their difference, over seeds."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from coplay.errors import BadInput, nearest
from coplay.evaluation.statistics import (
    bootstrap_difference,
    bootstrap_interval,
    coincide,
    iqm,
    probability_of_improvement,
)
from coplay.training.run_folder import RunFolder


def compare_runs(paths: list[str], metric: str, last: float) -> dict[str, Any]:
    """Interquartile means per run; per pair their difference, its interval, and whether curves coincide."""
    curves = {path: curve(RunFolder.open(path), metric) for path in paths}
    scores = {path: _last_part(of_run, last) for path, of_run in curves.items()}
    return {
        "metric": metric,
        "last": last,
        "runs": [_one(path, scores[path]) for path in paths],
        "pairs": [_pair(a, b, scores, curves) for a, b in itertools.combinations(paths, 2)],
    }


def curve(folder: RunFolder, metric: str) -> np.ndarray:
    """[seed, step], mean over seats."""
    table = folder.read_metrics()
    rows = table.filter(pc.field("metric") == metric)
    if rows.num_rows == 0:
        known = table["metric"].unique().to_pylist()
        raise BadInput(f"{Path(folder.path)} has no metric {metric!r}; {nearest(metric, known)}")
    grouped = rows.group_by(["seed", "step"]).aggregate([("value", "mean")])
    grouped = grouped.sort_by([("seed", "ascending"), ("step", "ascending")])
    seeds = np.unique(grouped["seed"].to_numpy())
    values, of_seed = grouped["value_mean"].to_numpy(), grouped["seed"].to_numpy()
    shortest = min(int((of_seed == seed).sum()) for seed in seeds)
    return np.stack([values[of_seed == seed][:shortest] for seed in seeds])


def _last_part(of_run: np.ndarray, last: float) -> np.ndarray:
    count = max(1, round(last * of_run.shape[1]))
    return of_run[:, -count:].mean(axis=1)


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
    }
