"""Do logged figures say what their names promise? Shares of actions, and how far policies have moved.

What players did is counted again from the round. How far they moved is worked out slowly: from the chances of
what was done where weights are disturbed and nothing is learned, and from playing the round again with the
weights after an update, where that is possible: who remembers anything would have come to other memories.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from coplay.algorithms.glance import how_many
from coplay.audit.captured import Round, update_key
from coplay.audit.compare import all_disturbed, own_tensors, with_rates, without_rates
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.subject import Budget, Subject
from coplay.audit.usage import descents
from coplay.diagnostics.drift import MOST_JOINT_ACTIONS, TV_STATES
from coplay.training.stages import Descent
from coplay.types import Key, PyTree

CLOSE = 1e-3  # relative, and of figures about 1
NOISE = 0.1  # on every weight, so that ratios leave the clip
FAST = 30.0  # times a learner's rates, so that it is felt which way a divergence is taken
Figures = dict[str, Float[np.ndarray, " seat"]]
Bounds = dict[str, tuple[np.ndarray, np.ndarray]]  # by seat, least and most


def figures(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do shares of actions, ratios and drift say what they should?"""
    statistic = "logged shares of actions, ratios, clips and drifts that are not what was done and learned"
    one = subject.rounds()[1]
    still, fast = ratios_of(subject, one, key), drift_of(subject, one)
    asked = (
        ("training", one.metrics, exactly(actions_of(subject, one))),
        ("algorithms", *still),
        ("algorithms", *fast),
    )
    wrong, seen = [("algorithms", said) for said in lets_go(subject, still[0], fast[0])], 0
    for room, logged, bounds in asked:
        for name in bounds.keys() & logged.keys():
            said = np.broadcast_to(np.asarray(logged[name], np.float64), (subject.env.num_agents,))
            seen += len(subject.seats)
            wrong += [
                (room, told) for told in _beyond(name, subject.seats, said[subject.seats], *bounds[name])
            ]
    if not seen:
        return not_run(statistic, "nothing of that kind is logged of this learner")
    room, what = min(wrong, default=("", ""))
    return exact(statistic, len(wrong), seen, what, room=room)


def exactly(slow: Figures) -> Bounds:
    return {name: (should, should) for name, should in slow.items()}


def _beyond(name: str, seats: np.ndarray, said: np.ndarray, least: np.ndarray, most: np.ndarray) -> list[str]:
    """What is not within its bounds, but for rounding, in words."""
    rounding = CLOSE * (1 + np.abs(most))
    is_off = ~((least - rounding <= said) & (said <= most + rounding)) & ~(np.isnan(said) & np.isnan(most))
    return [
        f"{name} of seat {seats[s]} is logged as {said[s]:.4g}, and is "
        + (f"{most[s]:.4g}" if least[s] == most[s] else f"between {least[s]:.4g} and {most[s]:.4g}")
        for s in np.flatnonzero(is_off)
    ]


def actions_of(subject: Subject, one: Round) -> Figures:
    """How often each seat did what, of the steps at which it was still in the game."""
    steps, env = one.trajectory.steps, subject.env
    active, action = (np.asarray(x)[..., subject.seats] for x in (steps.before.active, steps.decision.action))
    number = active.sum(axis=(0, 1))
    return {
        f"action/{name}": (active & (action == index)).sum(axis=(0, 1)) / number
        for index, name in enumerate(env.action_names)
    }


def lets_go(subject: Subject, still: dict[str, Any], fast: dict[str, Any]) -> list[str]:
    """Where a weight follows how far play moves: whether it is not higher after an update that moved far
    than after one that moved nothing."""
    config = subject.config(subject.learner)
    is_followed = getattr(config, "align_adaptive", False) and getattr(config, "align_weight", 0.0)
    if not is_followed or "align/weight" not in still or "align/weight" not in fast:
        return []
    calm, wild = (float(np.mean(np.asarray(logged["align/weight"]))) for logged in (still, fast))
    moved = float(np.nanmean(np.asarray(fast["drift/kl"])))
    if wild > calm or moved < config.align_target:
        return []
    return [f"align weighs {wild:.3g} after play moved {moved:.3g} nats, and {calm:.3g} after it stood still"]


# --- ratios ---------------------------------------------------------------------------------------


def ratios_of(subject: Subject, one: Round, key: Key) -> tuple[dict[str, Any], Bounds]:
    """What an update logs that learns nothing, from weights that are not those that played; and what it
    may: a mean over minibatches, each of as many columns, of which some have more rows in the game."""
    config = subject.config(subject.learner)
    learner, count = without_rates(one.before.learner)
    descent = next((d for name, d in descents(one).items() if "policy" in name.split("+")), None)
    if not count or descent is None or "rows" not in one.taps or getattr(config, "search_weight", 0.0):
        return {}, {}  # rates or columns are not told, or a search decides some of the rows
    loud = all_disturbed(one.before.params, key, NOISE)
    (_, _, logged), taps = subject.parts().learn(loud, learner, one.trajectory, update_key(one.before))
    rows = taps["rows"].policy
    counts, log_prob, again = (np.asarray(x) for x in (rows.counts, rows.log_prob, taps["rows"].again))
    log_ratio = np.where(counts, np.float64(again) - log_prob, 0.0)
    ratio, players = np.exp(log_ratio), counts.shape[-1]
    clip = config.clip / (players if config.clip_by_team else 1)
    each = {
        "policy/kl": ratio - 1.0 - log_ratio,
        "policy/ratio": ratio,
        "policy/clip_share": np.abs(ratio - 1.0) > clip,
    }
    is_own = bool(own_tensors(one.before.params))
    least, most = weights_of_rows(counts, descent, is_own)
    means = {name: _mean(x, counts, (0, 1) if is_own else (0, 1, 2)) for name, x in each.items()}
    return logged, {name: (mean * least, mean * most) for name, mean in means.items()}


def weights_of_rows(counts: Bool[np.ndarray, "time env seat"], descent: Descent, is_own: bool):
    """How much a row may weigh in a mean over minibatches, at least and at most, by what it weighs in the
    mean over all rows; by seat."""
    by_column = counts.reshape(-1, descent.rows, *counts.shape[1:]).sum(axis=1)
    by_column = np.sort(by_column.reshape(-1, counts.shape[-1]), axis=0)
    if not is_own:
        by_column = np.broadcast_to(np.sort(by_column.sum(axis=-1))[:, None], by_column.shape)
    minibatches = max(m for m in range(1, descent.minibatches + 1) if descent.columns % m == 0)
    each = descent.columns // minibatches
    fair = by_column.sum(axis=0) / minibatches
    return fair / by_column[-each:].sum(axis=0), fair / by_column[:each].sum(axis=0).clip(1)


def _mean(x: np.ndarray, counts: np.ndarray, axes: tuple[int, ...]) -> Float[np.ndarray, " seat"]:
    mean = np.where(counts, x, 0.0).sum(axis=axes) / counts.sum(axis=axes).clip(1)
    return np.broadcast_to(mean, counts.shape[-1:])


# --- drift ----------------------------------------------------------------------------------------


def drift_of(subject: Subject, one: Round) -> tuple[dict[str, Any], Bounds]:
    """How far play moves in an update with high rates, in the games that are looked at; nothing where these
    cannot be played again."""
    learner, count = with_rates(one.before.learner, FAST)
    if not count or getattr(subject.config(subject.learner), "target", "none") == "act":
        return {}, {}  # rates are not told, or a copy plays and what learns is looked at
    before, trajectory = one.before.params, one.trajectory
    (after, _, logged), _ = subject.parts().learn(before, learner, trajectory, update_key(one.before))
    active = np.asarray(trajectory.steps.before.active)
    few = how_many(*active.shape[:2])
    active = active[:, :few, subject.seats]
    old, new = (policies(subject, one, params)[:, :few] for params in (before, after))
    played = np.asarray(trajectory.steps.decision.policy)[:, :few, subject.seats]
    if not np.allclose(np.where(active[..., None], old - played, 0.0), 0.0, atol=1e-5):
        return {}, {}  # it remembers, or plays by more than what it sees now
    return logged, exactly(slow_drift(old.astype(np.float64), new.astype(np.float64), active))


def slow_drift(
    old: Float[np.ndarray, "time env seat action"],
    new: Float[np.ndarray, "time env seat action"],
    active: Bool[np.ndarray, "time env seat"],
) -> Figures:
    """KL(old || new) by seat, of all, and of all others; and half the absolute difference of joint play."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(old > 0, old * (np.log(old) - np.log(new)), 0.0).sum(axis=-1)
    own, is_played, seats = np.where(active, terms, 0.0), active.any(axis=-1), range(active.shape[-1])
    by_state, everyone = own[is_played], np.ones(len(seats))
    found = {
        "drift/kl": _mean(own, active, (0, 1)),
        "drift/joint_kl": by_state.sum(axis=-1).mean() * everyone,
        "drift/others_kl": np.array([np.delete(by_state, s, axis=-1).sum(axis=-1).mean() for s in seats]),
    }
    if old.shape[-1] ** len(seats) <= MOST_JOINT_ACTIONS:
        in_turn = [np.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])[:TV_STATES] for x in (old, new)]
        counts = np.swapaxes(is_played, 0, 1).ravel()[:TV_STATES]
        apart = np.array([np.abs(_joint(a) - _joint(b)).sum() / 2 for a, b in zip(*in_turn, strict=True)])
        found["drift/joint_tv"] = apart[counts].mean() * everyone
    return found


def _joint(policy: Float[np.ndarray, "seat action"]) -> np.ndarray:
    """The chance of every joint action."""
    chance = np.ones(1)
    for own in policy:
        chance = np.outer(chance, own).ravel()
    return chance


def policies(subject: Subject, one: Round, params: PyTree) -> Float[np.ndarray, "time env seat action"]:
    """Of the learner's seats at every moment of a round, with these weights."""
    steps, actor, act = one.trajectory.steps, one.before.actor, subject.parts().act
    found = []
    for time in range(steps.before.first.shape[0]):
        now, state = jax.tree.map(lambda x, t=time: x[t], (steps.before, steps.state))
        state = state if jax.tree.leaves(state) else actor.env_state
        found.append(act(params, actor.memory, now, state, jax.random.key(time))[1].policy)
    return np.asarray(jnp.stack(found))[:, :, subject.seats]


FIGURES = (
    Check(
        "figures",
        "data",
        "Do figures say what their names promise?",
        "exact",
        "algorithms",
        figures,
        ("rows", "stillness"),
    ),
)
