"""Is what is imagined what its formulas say, and something the game could bring? At a small scale."""

from typing import Any

import jax
import numpy as np

from coplay.algorithms.imagination import Imagined
from coplay.audit.captured import Round
from coplay.audit.compare import own_tensors
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.slow_returns import (
    Compared,
    Walk,
    rows_apart,
    scale_in,
    slow_returns,
    slow_scale,
    slow_standardised,
)
from coplay.audit.subject import Budget, Subject
from coplay.types import Environment, Key

NOBODY = "nobody imagines anything here"
OUTSIDE = 0.01  # of imagined returns
SLACK = 0.1  # of what is possible


# --- what is learned from it ---------------------------------------------------------------------


def imagined_references(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are imagined returns, and what policies and critics learn of them, what their formulas say?"""
    statistic = "imagined advantages, targets and weights that are not what a slow reference makes of them"
    wrong, seen = [], 0
    for number, one in enumerate(subject.rounds()):
        if "imagined" not in one.taps:
            return not_run(statistic, NOBODY)
        config = subject.config(subject.learner)
        if config.imagined_returns == "sums":
            return not_run(statistic, "imagined_returns='sums' takes the cut for the game's end")
        apart, count = rows_apart(_compared(config, one), subject.seats)
        seen += count
        wrong += [f"round {number}: {said}" for said in apart]
    return exact(statistic, len(wrong), seen, f"{wrong[0]} what the formula says" if wrong else "")


def _compared(config: Any, one: Round) -> Compared:
    """What the learner has and what a reference has, [time, env, seat, step]."""
    imagined, learned = jax.tree.map(np.asarray, (one.taps["imagined"], one.taps["rows"].imagined))
    counts = learned.policy.counts
    most = int(np.nanmax(np.asarray(one.metrics["imagination/steps"])))
    share = float(np.nanmax(np.asarray(one.metrics["imagination/share"])))
    returns = _returns(config, imagined, most)
    axes = (0, 1, 3) if own_tensors(one.before.params) else (0, 1, 2, 3)
    (mean, deviation), (new_mean, new_deviation) = (
        [np.asarray(x)[..., None] for x in _scale(config, state.params)] for state in (one.before, one.after)
    )
    running = deviation if config.advantage_scale == "running" else None
    weight = share * _weights(np.exp(-config.doubt * imagined.doubt), counts, axes)
    standardised = slow_standardised(returns - imagined.value, counts, axes, running)
    found = {
        "imagined advantages": (imagined.advantage, returns - imagined.value, imagined.counts),
        "scaled imagined advantages": (learned.policy.advantage, standardised * weight, counts),
    }
    if config.critic_data == "both":
        found["imagined values"] = (learned.value, (imagined.value - mean) / deviation, counts)
        found["imagined targets"] = (learned.returns, (returns - new_mean) / new_deviation, counts)
        found["weights of imagined targets"] = (learned.value_weight, weight / max(1 - share, 0.05), counts)
    return found


def _returns(config: Any, imagined: Imagined, most: int) -> np.ndarray:
    """Of every branch by itself."""
    told = imagined.reward, imagined.next_value, imagined.ends, imagined.cut
    shape = imagined.reward.shape
    walk = Walk(*[np.asarray(x).reshape(*shape[:-1], -1, config.imagined_steps) for x in told])
    return slow_returns(walk, most, config.discount, config.trace).reshape(shape)


def _scale(config: Any, params: Any) -> tuple[np.ndarray, np.ndarray]:
    """That critics predict in: mean and deviation."""
    return slow_scale(scale_in(params)) if config.value_normalisation else (np.zeros(1), np.ones(1))


def _weights(raw: np.ndarray, counts: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """In proportion; all together weigh as much as the real rows that they begin at."""
    number = counts[..., :1].sum(axis=axes, keepdims=True)
    return raw * number / np.where(counts, raw, 0.0).sum(axis=axes, keepdims=True).clip(1e-9)


# --- what the game could bring -------------------------------------------------------------------


def imagined_range(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is what is imagined to be paid, at once and in all, something the game can pay?"""
    statistic = "imagined rewards that the game never pays"
    imagined = subject.rounds()[1].taps.get("imagined")
    if imagined is None:
        return not_run(statistic, NOBODY)
    reward, counts = np.asarray(imagined.reward), np.asarray(imagined.counts)
    env = subject.env
    if env.reward_values is not None:
        known = np.abs(reward[..., None] - np.asarray(env.reward_values)).min(axis=-1) < 1e-4
    elif env.reward_range is not None:
        known = (reward >= env.reward_range[0] - 1e-4) & (reward <= env.reward_range[1] + 1e-4)
    else:
        return not_run(statistic, "the game does not say what it pays")
    wrong = counts & ~known
    if not wrong.any():
        return _returns_in_range(subject, imagined, statistic)
    first = reward[wrong][0]
    return exact(statistic, int(wrong.sum()), int(counts.sum()), f"{first:.4g} is imagined to be paid")


def _returns_in_range(subject: Subject, imagined: Imagined, statistic: str) -> Outcome:
    """Returns lean on critics, which may err: only many of them outside are worth a word."""
    low, high = possible(subject.env, subject.config(subject.learner).discount)
    returns, counts = np.asarray(imagined.value + imagined.advantage), np.asarray(imagined.counts)
    share = float(((returns < low) | (returns > high))[counts].mean()) if counts.any() else 0.0
    if share <= OUTSIDE:
        return exact(statistic, 0, int(counts.sum()), "")
    what = f"{share:.0%} of imagined returns lie outside the possible, {low:.4g} to {high:.4g}"
    return Outcome(
        "share of imagined returns outside what the game can pay in all",
        figure=share,
        threshold=OUTSIDE,
        verdict="warn",
        next=f"{what}: the critic?",
        n=int(counts.sum()),
        room="algorithms",
    )


def possible(env: Environment, discount: float) -> tuple[float, float]:
    """The least and the most that a discounted episode can bring, were it to pay so at every step; a tenth
    more on either side, for critics err."""
    values = env.reward_values or env.reward_range
    assert values is not None, "the game has been refused otherwise"
    steps = float(sum(discount**step for step in range(env.horizon)))
    low, high = steps * min(0.0, *values), steps * max(0.0, *values)
    return low - SLACK * (high - low), high + SLACK * (high - low)


def imagined_ends(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does an imagined game that is no longer watched still have value?"""
    statistic = "whether imagined returns hold nothing beyond what is paid on the way"
    one = subject.rounds()[2]
    imagined = one.taps.get("imagined")
    if imagined is None:
        return not_run(statistic, NOBODY)
    config = subject.config(subject.learner)
    if config.imagined_returns == "sums":
        return exact(statistic, 1, 1, "imagined_returns='sums' takes the cut for the game's end")
    counts = np.asarray(imagined.counts)[..., -1]  # the last step before the cut
    returns = (np.asarray(imagined.value) + np.asarray(imagined.advantage))[..., -1]
    beyond = np.abs(returns - np.asarray(imagined.reward)[..., -1]) > 1e-6
    share = (beyond & counts).sum() / max(counts.sum(), 1)
    what = f"only {share:.0%} of imagined steps count what follows: is the cut taken for the end?"
    return exact(statistic, int(share < 0.5), int(counts.sum()), what)


WORTH = (
    Check("imagined_range", "value", "Is what is imagined payable?", "exact", "nets", imagined_range),
    Check(
        "imagined_ends",
        "value",
        "Does the cut of imagination keep its value?",
        "exact",
        "algorithms",
        imagined_ends,
    ),
    Check(
        "imagined_references",
        "value",
        "Are imagined returns what their formulas say?",
        "exact",
        "algorithms",
        imagined_references,
        ("imagined_ends", "imagined_rows"),
    ),
)
