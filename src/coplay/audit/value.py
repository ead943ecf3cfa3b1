"""Is the critic fed properly? What targets are made of, against slow versions of their formulas in NumPy."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from coplay.algorithms.targets import Estimates
from coplay.algorithms.value_scale import DECAY
from coplay.audit.captured import Round
from coplay.audit.compare import own_tensors
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.imagined import WORTH
from coplay.audit.slow_returns import (
    CLOSE,
    Compared,
    Ends,
    Scale,
    ends_of,
    explained,
    rows_apart,
    scale_in,
    slow_advantages,
    slow_scale,
    slow_standardised,
)
from coplay.audit.subject import Budget, Subject
from coplay.audit.trained_critics import CRITICS
from coplay.audit.trained_values import IMAGINED
from coplay.types import Key

UNTOLD = "this learner does not tell what its targets are made of"


def references(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are advantages and targets what their formulas say?"""
    statistic = "rows of values, advantages and targets that are not what a slow reference makes of them"
    wrong, seen = [], 0
    for number, one in enumerate(subject.rounds()):
        if not {"estimates", "rows"} <= set(one.taps):
            return not_run(statistic, UNTOLD)
        apart, count = rows_apart(_compared(subject, one), subject.seats)
        seen += count
        wrong += [f"round {number}: {said}" for said in apart]
    apart, count = rows_apart(_across_rounds(subject), subject.seats)
    wrong, seen = wrong + apart, seen + count
    return exact(statistic, len(wrong), seen, f"{wrong[0]} what the formula says" if wrong else "")


def _compared(subject: Subject, one: Round) -> Compared:
    """What the learner has and what a reference has, [time, env, seat]."""
    config = subject.config(subject.learner)
    made: Estimates = jax.tree.map(np.asarray, one.taps["estimates"])
    rows = jax.tree.map(np.asarray, one.taps["rows"])
    after = ends_of(subject, one.trajectory)
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
    running = slow_scale(scale_in(one.after.params))[1] if config.advantage_scale == "running" else None
    scaled = slow_standardised(np.asarray(made.advantage), counts, (0, 1) if is_own else (0, 1, 2), running)
    found["scaled advantages"] = (_unmixed(one, rows.policy.advantage), scaled, counts)
    if config.value_normalisation:
        mean, deviation = slow_scale(scale_in(one.before.params))
        found["values"] = (made.value, rows.value * deviation + mean, counts & _same_notes(config))
        mean, deviation = slow_scale(scale_in(one.after.params))
        found["targets"] = (rows.target, (made.advantage + made.value - mean) / deviation, counts)
    else:
        found["targets"] = (rows.target, made.advantage + made.value, counts)
    return found


def _across_rounds(subject: Subject) -> Compared:
    """What the end of the last round is worth, and the beginning of another that goes on from there with the
    same weights."""
    one, parts, key = subject.rounds()[-1], subject.parts(), jax.random.key(subject.seed)
    _, onward, _ = parts.collect(one.before.params, one.after.actor, key)
    _, taps = parts.learn(one.before.params, one.before.learner, onward, key)
    after = ends_of(subject, one.trajectory)
    follows = ~after.terminated[-1:] & ~after.truncated[-1:, :, None]
    ended, begun = np.asarray(one.taps["estimates"].next_value), np.asarray(taps["estimates"].value)
    return {"values where a round ends": (ended[-1:], begun[:1], follows)}


def _same_notes(config: Any) -> bool:
    """Critics may learn with other notes than they judged by."""
    return not getattr(config, "prior", "")


def _unmixed(one: Round, advantage: np.ndarray) -> np.ndarray:
    """Where rows are imagined, a share of the surrogate is theirs."""
    share = np.nanmax(np.asarray(one.metrics.get("imagination/share", 0.0)))
    return advantage / max(1.0 - share, 1e-6)


def normaliser(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is the scale of values that of the returns that were really earned?"""
    statistic = "running means of returns that are not what real returns make of them"
    wrong, seen = [], 0
    for number, one in enumerate(subject.rounds()):
        if "estimates" not in one.taps:
            return not_run(statistic, UNTOLD)
        if not subject.config(subject.learner).value_normalisation:
            return not_run(statistic, "values are not normalised here")
        said, should = scale_in(one.after.params), _slow_update(one)
        for name, a, b in zip(("mean", "mean square", "weight"), said, should, strict=True):
            seen += a.size
            if not np.allclose(a, b, rtol=CLOSE, atol=1e-6):
                wrong.append(f"round {number}: the {name} of returns is not that of what was earned")
    return exact(statistic, len(wrong), seen, wrong[0] if wrong else "")


def _slow_update(one: Round) -> Scale:
    made = jax.tree.map(np.asarray, one.taps["estimates"])
    valued = np.asarray(one.taps["rows"].valued)
    before = scale_in(one.before.params)
    axes = (0, 1) if before[0].ndim else (0, 1, 2)
    returns, number = made.advantage + made.value, valued.sum(axis=axes).clip(1)
    seen = [np.where(valued, x, 0.0).sum(axis=axes) / number for x in (returns, returns**2)] + [1.0]
    return Scale(*(DECAY * old + (1 - DECAY) * new for old, new in zip(before, seen, strict=True)))


def fit(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are the figures that are logged of a critic what values and returns make?"""
    statistic = "logged explained variances, biases, means and spreads that values and returns do not have"
    wrong, seen, explains = [], 0, ()
    for number, one in enumerate(subject.rounds()):
        if "value/explained_variance" not in one.metrics or "estimates" not in one.taps:
            return not_run(statistic, UNTOLD)
        config = subject.config(subject.learner)
        if config.learning_reward != "own":
            return not_run(statistic, "returns run on after a player has left here")
        slow = slow_fit(
            one, ends_of(subject, one.trajectory), config.discount, bool(own_tensors(one.before.params))
        )
        for name, should in slow.items():
            said = np.asarray(one.metrics[name], np.float64)[subject.seats]
            seen += said.size
            explains = tuple(map(float, said)) if name == "value/explained_variance" else explains
            is_other = ~np.isclose(said, should, rtol=1e-3, atol=1e-3)
            wrong += [
                f"update {number}: {name} of seat {subject.seats[s]} is logged as {said[s]:.3g}, "
                f"and is {should[s]:.3g}"
                for s in np.flatnonzero(is_other)
            ]
    return exact(statistic, len(wrong), seen, wrong[0] if wrong else "", explains)


def slow_fit(one: Round, after: Ends, discount: float, is_own: bool) -> dict[str, Float[np.ndarray, " seat"]]:
    """What is logged of a critic by each seat, or by all where they share its weights."""
    made = jax.tree.map(np.asarray, one.taps["estimates"])
    valued = np.asarray(one.taps["rows"].valued)
    returns = slow_advantages(made, after, discount, 1.0) + made.value
    seats = range(made.value.shape[-1])
    groups = [[seat] for seat in seats] if is_own else [list(seats)] * len(seats)

    def of(group: list[int]) -> dict[str, float]:
        value, earned = (x[..., group][valued[..., group]] for x in (made.value, returns))
        return {
            "value/explained_variance": explained(value, earned),
            "value/bias": float(np.mean(value - earned)) / max(float(np.std(earned)), 1e-3),
            "value/return_std": float(np.std(earned)),
            "value/prediction_mean": float(np.mean(value)),
            "value/prediction_std": float(np.std(value)),
        }

    each = [of(group) for group in groups]
    return {name: np.array([figures[name] for figures in each]) for name in each[0]}


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
    Check("fit", "value", "Are a critic's figures right?", "exact", "algorithms", fit, ("references",)),
    *WORTH,
    *IMAGINED,
    *CRITICS,
)
