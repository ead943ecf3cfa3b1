"""Return against drift: what learners earn for how far their joint play has moved.

Whoever learns less moves less, so a smooth curve alone says nothing. Read at equal drift, return says what
moving was good for; read at equal return, drift says what it cost. Arrays are [seed, round].
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from coplay.evaluation.compare import curve
from coplay.training.run_folder import RunFolder

DRIFT = "drift/joint_kl"


class DriftCurve(NamedTuple):
    moved: Float[np.ndarray, "seed round"]  # joint KL so far, in nats
    earned: Float[np.ndarray, "seed round"]  # mean return, smoothed


def drift_curve(folder: RunFolder, smoothed_over: int = 5) -> DriftCurve:
    """Of a run; `smoothed_over` so many rounds."""
    moved, earned = curve(folder, DRIFT)[1], curve(folder, "return")[1]
    rounds = min(moved.shape[1], earned.shape[1])
    return DriftCurve(
        np.cumsum(np.nan_to_num(moved[:, :rounds]), axis=1), _smoothed(earned[:, :rounds], smoothed_over)
    )


def return_at(of: DriftCurve, moved: float) -> Float[np.ndarray, " seed"]:
    """What each seed earned when its play had moved so far; its last where it never did."""
    return np.array([np.interp(moved, x, y) for x, y in zip(of.moved, of.earned, strict=True)])


def mean_return(of: DriftCurve, up_to: float) -> Float[np.ndarray, " seed"]:
    """The area under return against drift, from none to so much, by its width."""
    grid = np.linspace(0.0, up_to, 201)
    curves = np.stack([np.interp(grid, x, y) for x, y in zip(of.moved, of.earned, strict=True)])
    return np.trapezoid(curves, grid, axis=1) / up_to


def drift_to(of: DriftCurve, earned: float) -> Float[np.ndarray, " seed"]:
    """How far play had moved when it first earned so much; infinite for seeds that never did."""
    is_there = of.earned >= earned
    first = np.argmax(is_there, axis=1)
    found = of.moved[np.arange(len(first)), first]
    return np.where(is_there.any(axis=1), found, np.inf)


def common_drift(curves: list[DriftCurve]) -> float:
    """How far the one that moved least has moved in all, by the median of its seeds: one seed that ran away
    would stretch the range to where the others have long stood still."""
    return float(min(np.median(of.moved[:, -1]) for of in curves))


def _smoothed(values: Float[np.ndarray, "seed round"], over: int) -> Float[np.ndarray, "seed round"]:
    """Mean of the last so many rounds in which an episode ended; rounds before any have the first."""
    known = np.isfinite(values)
    added = np.cumsum(np.where(known, values, 0.0), axis=1)
    count = np.cumsum(known, axis=1)
    for sums in (added, count):
        sums[:, over:] = sums[:, over:] - sums[:, :-over].copy()
    means = np.where(count > 0, added / np.maximum(count, 1), np.nan)
    first = np.array([row[np.isfinite(row)][0] if np.isfinite(row).any() else np.nan for row in means])
    return np.where(np.isfinite(means), means, first[:, None])
