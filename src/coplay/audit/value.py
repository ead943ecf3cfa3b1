"""Is the critic fed properly? What targets are made of, against slow versions of their formulas in NumPy."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from coplay.algorithms.targets import Estimates
from coplay.algorithms.value_scale import DECAY, SMALLEST
from coplay.audit.captured import Round
from coplay.audit.compare import own_tensors
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.subject import Budget, Subject
from coplay.audit.trained_values import IMAGINED
from coplay.types import Key, Seated

CLOSE = 1e-4  # relative
UNTOLD = "this learner does not tell what its targets are made of"


def references(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are advantages and targets what their formulas say?"""
    statistic = "rows of values, advantages and targets that are not what a slow reference makes of them"
    wrong, seen = [], 0
    for number, one in enumerate(subject.rounds()):
        if not {"estimates", "rows"} <= set(one.taps):
            return not_run(statistic, UNTOLD)
        for name, (said, should, counts) in _compared(subject, one).items():
            seen += int(counts.sum())
            is_other = counts & ~np.isclose(said, should, rtol=CLOSE, atol=CLOSE * _size(should, counts))
            if is_other.any():
                seats = np.flatnonzero(is_other.any(axis=(0, 1)))
                first = subject.seats[seats[0]]
                wrong.append(f"round {number}: {int(is_other.sum())} {name} are not (first seat {first})")
    return exact(statistic, len(wrong), seen, f"{wrong[0]} what the formula says" if wrong else "")


def _size(x: np.ndarray, counts: np.ndarray) -> float:
    return float(np.abs(x[counts]).max(initial=1.0))


def _compared(subject: Subject, one: Round) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """By name: what the learner has, what a reference has, and which rows count; [time, env, seat]."""
    config = subject.config(subject.learner)
    made: Estimates = jax.tree.map(np.asarray, one.taps["estimates"])
    rows = jax.tree.map(np.asarray, one.taps["rows"])
    after = _ends(subject, one)
    counts, is_own = np.asarray(made.counts), bool(own_tensors(one.before.params))
    everyone = np.ones_like(counts)
    trace = 1.0 if config.returns == "monte_carlo" else config.trace
    found = {}
    if config.learning_reward == "own":
        found["rewards"] = (made.reward, after.reward, everyone)
        should = slow_advantages(made, after, config.discount, trace)
        found["advantages"] = (made.advantage, should, counts)
        follows = ~after.terminated[:-1] & ~after.truncated[:-1, :, None]
        found["next values"] = (made.next_value[:-1], made.value[1:], follows)
    scaled = slow_standardised(config, made, one, counts, is_own)
    if scaled is not None:
        found["scaled advantages"] = (_unmixed(one, rows.policy.advantage), scaled, counts)
    if config.value_normalisation:
        mean, deviation = slow_scale(_scale(one.before.params))
        found["values"] = (made.value, rows.value * deviation + mean, counts & _same_notes(config))
        mean, deviation = slow_scale(_scale(one.after.params))
        found["targets"] = (rows.target, (made.advantage + made.value - mean) / deviation, counts)
    else:
        found["targets"] = (rows.target, made.advantage + made.value, counts)
    return found


class Ends(NamedTuple):
    """What the learner's seats were paid, and where their games ended; [time, env, seat]."""

    reward: Float[np.ndarray, "time env seat"]
    terminated: Bool[np.ndarray, "time env seat"]
    truncated: Bool[np.ndarray, "time env"]


def _ends(subject: Subject, one: Round) -> Ends:
    after, seats = one.trajectory.steps.after, subject.seats
    reward, terminated = (np.asarray(x)[..., seats] for x in (after.reward, after.terminated))
    return Ends(reward, terminated, np.asarray(after.truncated))


def _same_notes(config: Any) -> bool:
    """Critics may learn with other notes than they judged by."""
    return not getattr(config, "prior", "")


def _unmixed(one: Round, advantage: np.ndarray) -> np.ndarray:
    """Where rows are imagined, a share of the surrogate is theirs."""
    share = np.nanmax(np.asarray(one.metrics.get("imagination/share", 0.0)))
    return advantage / max(1.0 - share, 1e-6)


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


def slow_standardised(
    config: Any, made: Estimates, one: Round, counts: Bool[np.ndarray, "time env seat"], is_own: bool
):
    """Advantages less their mean, by their deviation, of every seat or of all who share weights."""
    axes = (0, 1) if is_own else (0, 1, 2)
    number = counts.sum(axis=axes, keepdims=True).clip(1)
    mean = np.where(counts, made.advantage, 0.0).sum(axis=axes, keepdims=True) / number
    centred = made.advantage - mean
    if config.advantage_scale == "round":
        square = np.where(counts, centred**2, 0.0).sum(axis=axes, keepdims=True) / number
        return centred / (np.sqrt(square) + 1e-8)
    return centred / slow_scale(_scale(one.after.params))[1]


class Scale(NamedTuple):
    """Of returns that were seen, [seat] or one of each."""

    mean: np.ndarray
    mean_square: np.ndarray
    weight: np.ndarray


def _scale(params: Any) -> Scale:
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


def normaliser(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is the scale of values that of the returns that were really earned?"""
    statistic = "running means of returns that are not what real returns make of them"
    wrong, seen = [], 0
    for number, one in enumerate(subject.rounds()):
        if "estimates" not in one.taps:
            return not_run(statistic, UNTOLD)
        if not subject.config(subject.learner).value_normalisation:
            return not_run(statistic, "values are not normalised here")
        said, should = _scale(one.after.params), _slow_update(one)
        for name, a, b in zip(("mean", "mean square", "weight"), said, should, strict=True):
            seen += a.size
            if not np.allclose(a, b, rtol=CLOSE, atol=1e-6):
                wrong.append(f"round {number}: the {name} of returns is not that of what was earned")
    return exact(statistic, len(wrong), seen, wrong[0] if wrong else "")


def _slow_update(one: Round) -> Scale:
    made = jax.tree.map(np.asarray, one.taps["estimates"])
    valued = np.asarray(one.taps["rows"].valued)
    before = _scale(one.before.params)
    axes = (0, 1) if before[0].ndim else (0, 1, 2)
    returns, number = made.advantage + made.value, valued.sum(axis=axes).clip(1)
    seen = [np.where(valued, x, 0.0).sum(axis=axes) / number for x in (returns, returns**2)] + [1.0]
    return Scale(*(DECAY * old + (1 - DECAY) * new for old, new in zip(before, seen, strict=True)))


def fit(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is the explained variance that is logged what values and returns make?"""
    statistic = "logged explained variances that are not 1 - var(return - value) / var(return)"
    wrong, seen, last = [], 0, ()
    for number, one in enumerate(subject.rounds()):
        said = one.metrics.get("value/explained_variance")
        if said is None or "estimates" not in one.taps:
            return not_run(statistic, UNTOLD)
        config = subject.config(subject.learner)
        if config.learning_reward != "own":
            return not_run(statistic, "returns run on after a player has left here")
        should = slow_fit(one, _ends(subject, one), config.discount, bool(own_tensors(one.before.params)))
        said = np.asarray(said, np.float64)[subject.seats]
        seen += said.size
        is_other = ~np.isclose(said, should, rtol=1e-3, atol=1e-3)
        last = tuple(float(x) for x in said)
        wrong += [
            f"update {number}: seat {subject.seats[s]} is said to have {said[s]:.3g}, and has {should[s]:.3g}"
            for s in np.flatnonzero(is_other)
        ]
    return exact(statistic, len(wrong), seen, wrong[0] if wrong else "", last)


def slow_fit(one: Round, after: Ends, discount: float, is_own: bool) -> Float[np.ndarray, " seat"]:
    made = jax.tree.map(np.asarray, one.taps["estimates"])
    valued = np.asarray(one.taps["rows"].valued)
    returns = slow_advantages(made, after, discount, 1.0) + made.value
    seats = range(made.value.shape[-1])
    groups = [[seat] for seat in seats] if is_own else [list(seats)] * len(seats)

    def explained(group: list[int]) -> float:
        counts = valued[..., group]
        earned, value = returns[..., group][counts], made.value[..., group][counts]
        return 1.0 - float(np.var(earned - value)) / max(float(np.var(earned)), 1e-8)

    return np.array([explained(group) for group in groups])


def imagined_range(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is what is imagined to be paid something the game can pay?"""
    statistic = "imagined rewards that the game never pays"
    imagined = subject.rounds()[1].taps.get("imagined")
    if imagined is None:
        return not_run(statistic, "nobody imagines anything here")
    reward, counts = np.asarray(imagined.reward), np.asarray(imagined.counts)
    env = subject.env
    if env.reward_values is not None:
        known = np.abs(reward[..., None] - np.asarray(env.reward_values)).min(axis=-1) < 1e-4
    elif env.reward_range is not None:
        known = (reward >= env.reward_range[0] - 1e-4) & (reward <= env.reward_range[1] + 1e-4)
    else:
        return not_run(statistic, "the game does not say what it pays")
    wrong = counts & ~known
    first = reward[wrong][0] if wrong.any() else 0.0
    return exact(statistic, int(wrong.sum()), int(counts.sum()), f"{first:.4g} is imagined to be paid")


def imagined_ends(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does an imagined game that is no longer watched still have value?"""
    statistic = "whether imagined returns hold nothing beyond what is paid on the way"
    one = subject.rounds()[2]
    imagined = one.taps.get("imagined")
    if imagined is None:
        return not_run(statistic, "nobody imagines anything here")
    config = subject.config(subject.learner)
    if config.imagined_returns == "sums":
        return exact(statistic, 1, 1, "imagined_returns='sums' takes the cut for the game's end")
    counts = np.asarray(imagined.counts)[..., -1]  # the last step before the cut
    returns = (np.asarray(imagined.value) + np.asarray(imagined.advantage))[..., -1]
    beyond = np.abs(returns - np.asarray(imagined.reward)[..., -1]) > 1e-6
    share = (beyond & counts).sum() / max(counts.sum(), 1)
    what = f"only {share:.0%} of imagined steps count what follows: is the cut taken for the end?"
    return exact(statistic, int(share < 0.5), int(counts.sum()), what)


VALUE = (
    Check(
        "references",
        "value",
        "Are targets what their formulas say?",
        "exact",
        "algorithms",
        references,
        ("rows",),
    ),
    Check(
        "normaliser",
        "value",
        "Is the scale that of real returns?",
        "exact",
        "algorithms",
        normaliser,
        ("references",),
    ),
    Check("fit", "value", "Is the explained variance right?", "exact", "algorithms", fit, ("references",)),
    Check("imagined_range", "value", "Is what is imagined payable?", "exact", "nets", imagined_range),
    Check(
        "imagined_ends",
        "value",
        "Does the cut of imagination keep its value?",
        "exact",
        "algorithms",
        imagined_ends,
    ),
    *IMAGINED,
)
