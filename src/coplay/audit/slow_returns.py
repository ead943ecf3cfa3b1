"""What returns and advantages should be: their formulas once more, slowly, in NumPy."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from coplay.algorithms.targets import Estimates
from coplay.algorithms.value_scale import SMALLEST
from coplay.audit.subject import Subject
from coplay.types import Seated, Trajectory

CLOSE = 1e-4  # relative
Compared = dict[
    str, tuple[np.ndarray, np.ndarray, np.ndarray]
]  # what is said, what should be, which rows count


def rows_apart(compared: Compared, seats: Int[np.ndarray, " seat"]) -> tuple[list[str], int]:
    """What is other than it should be, [time, env, seat, ...], in words; and how many rows were looked at."""
    found, seen = [], 0
    for name, (said, should, counts) in compared.items():
        seen += int(counts.sum())
        size = float(np.abs(should[counts]).max(initial=1.0))
        is_other = counts & ~np.isclose(said, should, rtol=CLOSE, atol=CLOSE * size)
        if is_other.any():
            first = seats[np.argwhere(is_other)[:, 2].min()]
            found.append(f"{int(is_other.sum())} {name} are not (first seat {first})")
    return found, seen


class Ends(NamedTuple):
    """What the learner's seats were paid, and where their games ended; [time, env, seat]."""

    reward: Float[np.ndarray, "time env seat"]
    terminated: Bool[np.ndarray, "time env seat"]
    truncated: Bool[np.ndarray, "time env"]


def ends_of(subject: Subject, trajectory: Trajectory) -> Ends:
    after, seats = trajectory.steps.after, subject.seats
    reward, terminated = (np.asarray(x)[..., seats] for x in (after.reward, after.terminated))
    return Ends(reward, terminated, np.asarray(after.truncated))


def slow_advantages(made: Estimates, after: Ends, discount: float, trace: float):
    """A_t = r_t + discount V_{t+1} - V_t + discount trace A_{t+1}, without what lies beyond an end."""
    advantage = np.zeros_like(made.value)
    later = np.zeros_like(made.value[0])
    for time in reversed(range(len(made.value))):
        ends, cut = after.terminated[time], after.truncated[time][:, None]
        future = np.where(ends, 0.0, made.next_value[time])
        surprise = made.reward[time] + discount * future - made.value[time]
        later = surprise + np.where(ends | cut, 0.0, discount * trace * later)
        advantage[time] = later
    return advantage


class Walk(NamedTuple):
    """A few steps from every moment, played or imagined."""

    reward: Float[np.ndarray, "*moment step"]
    next_value: Float[np.ndarray, "*moment step"]  # of where each step led
    ends: Bool[np.ndarray, "*moment step"]
    cut: Bool[np.ndarray, "*moment step"]  # time was up


def slow_returns(walk: Walk, steps: int, discount: float, trace: float) -> Float[np.ndarray, "*moment step"]:
    """G_t = r_t + discount [(1 - trace) V_{t+1} + trace G_{t+1}], r_t alone where the game ends, and V_{t+1}
    in place of G_{t+1} at the last of so many steps or where time is up."""
    returns = np.zeros_like(walk.reward)
    for step in reversed(range(steps)):
        reward, value = walk.reward[..., step], walk.next_value[..., step]
        is_last = walk.cut[..., step] | (step == steps - 1)
        later = value if step == steps - 1 else np.where(is_last, value, returns[..., step + 1])
        follows = (1.0 - trace) * value + trace * later
        returns[..., step] = reward + discount * np.where(walk.ends[..., step], 0.0, follows)
    return returns


def slow_standardised(
    advantage: np.ndarray, counts: np.ndarray, axes: tuple[int, ...], deviation: np.ndarray | None
) -> np.ndarray:
    """Advantages less their mean, by a deviation, or by their own."""
    number = counts.sum(axis=axes, keepdims=True).clip(1)
    mean = np.where(counts, advantage, 0.0).sum(axis=axes, keepdims=True) / number
    centred = advantage - mean
    if deviation is None:
        square = np.where(counts, centred**2, 0.0).sum(axis=axes, keepdims=True) / number
        deviation = np.sqrt(square) + 1e-8
    return centred / deviation


class Scale(NamedTuple):
    """Of returns that were seen, [seat] or one of each."""

    mean: np.ndarray
    mean_square: np.ndarray
    weight: np.ndarray


def scale_in(params: Any) -> Scale:
    for part in jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, Seated)):
        for tree in (part.own, part.common) if isinstance(part, Seated) else ():
            found = tree.get("group", {}) if isinstance(tree, dict) else {}
            if isinstance(found, dict) and "scale" in found:
                scale = found["scale"]
                return Scale(
                    *(np.asarray(x, np.float64) for x in (scale.mean, scale.mean_square, scale.weight))
                )
    raise AssertionError("weights with a normalised critic keep its scale")


def slow_scale(scale: Scale) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation; 0 and 1 before anything was seen."""
    mean, square, weight = scale
    known = np.where(weight > 0, weight, 1.0)
    centre = mean / known
    deviation = np.sqrt(np.maximum(square / known - centre**2, SMALLEST**2))
    return np.where(weight > 0, centre, 0.0), np.where(weight > 0, deviation, 1.0)


def explained(value: np.ndarray, earned: np.ndarray) -> float:
    """How much of the variance of what was earned a critic had foreseen."""
    return 1.0 - float(np.var(earned - value)) / max(float(np.var(earned)), 1e-8)
