"""What only shows over a whole run, or in company: do rates fall as it is long, does a game teach alone?"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax

from coplay.audit.captured import Round, update_key
from coplay.audit.compare import module_at, modules, plain
from coplay.audit.fairness import ALONE, GIFT
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.subject import Budget, Subject
from coplay.types import Key, PyTree, Trajectory

HALF_WAY = (0.2, 0.8)  # of a first update's way, half-way: the rate is half, and falls on within the update
AT_THE_END = 0.2  # the most of it that is left when the run is over


def pace(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does the learning rate fall to 0 over the run, and no sooner?"""
    statistic = "networks that move otherwise than half as far half-way through the run, or still at its end"
    one, config = subject.rounds()[0], subject.config(subject.learner)
    if not getattr(config, "anneal", False):
        return not_run(statistic, "rates do not fall here")
    first, half, last = (_moved(subject, one, share) for share in (0.0, 0.5, 1.0))
    falls = [name for name in first if first[name] > 0 and half[name] != first[name]]
    if not falls:
        return exact(statistic, 1, 1, "no network moves less far when half of the run is over")
    wrong = []
    for name in falls:
        then, left = half[name] / first[name], last[name] / first[name]
        if not HALF_WAY[0] < then < HALF_WAY[1]:
            wrong.append(f"{name} moves {then:.2g} times as far as at first when half of the run is over")
        elif left > AT_THE_END:
            wrong.append(f"{name} still moves {left:.2g} times as far as at first when the run is over")
    what = f"{wrong[0]}: is its schedule as long as the run?" if wrong else ""
    return exact(statistic, len(wrong), len(falls), what)


def _moved(subject: Subject, one: Round, share: float) -> dict[str, float]:
    """How far each network moves in the first update, were so much of the run over."""
    updates, params = subject.learning_job().num_updates, one.before.params
    learner = _later(one.before.learner, one.after.learner, share * updates)
    (after, _, _), _ = subject.parts().learn(params, learner, one.trajectory, update_key(one.before))
    squares = {module.name: 0.0 for module in modules(params)}
    pairs = zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(after), strict=True)
    for (path, old), new in pairs:
        if np.issubdtype(plain(old).dtype, np.floating):
            squares[module_at(path).name] += float(np.sum((plain(new) - plain(old)) ** 2))
    return {name: float(np.sqrt(square)) for name, square in squares.items()}


def _later(before: PyTree, after: PyTree, updates: float) -> PyTree:
    """A learner whose schedules have counted on by so many updates; `after` is one update later."""

    def counted(old, new):
        if not isinstance(old, optax.ScaleByScheduleState):
            return old
        steps = jnp.asarray((new.count - old.count) * updates)
        return old._replace(count=old.count + steps.astype(jnp.int32))

    return jax.tree.map(counted, before, after, is_leaf=lambda x: isinstance(x, optax.ScaleByScheduleState))


def own_game(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does what is paid in one game teach by that game's rows alone?"""
    statistic = "figures of other games that change with what one game pays"
    one = subject.rounds()[1]
    if "estimates" not in one.taps:
        return not_run(statistic, "this learner does not tell what its targets are made of")
    _, taps = subject.parts().learn(
        one.before.params, one.before.learner, _paid_more(one.trajectory), update_key(one.before)
    )
    names = {module.short for module in modules(one.before.params)}
    asked = ("reward", "advantage") if names <= ALONE else ("reward",)  # models learn from all games at once
    wrong, seen = [], 0
    for name in asked:
        was, now = (np.asarray(getattr(told["estimates"], name)) for told in (one.taps, taps))
        other = (was != now).any(axis=(0, 2))
        seen += other.size
        wrong += [
            f"the {name} of game {game} changes with game 0's pay" for game in np.flatnonzero(other[1:]) + 1
        ]
        wrong += [] if other[0] else [f"the {name} of a game does not change with what it pays"]
    return exact(statistic, len(wrong), seen, wrong[0] if wrong else "")


def _paid_more(played: Trajectory) -> Trajectory:
    """In the first game only, whoever is still in it."""
    after = played.steps.after
    gift = jnp.where(played.steps.before.active[:, :1], GIFT, 0.0)
    paid = dataclasses.replace(after, reward=after.reward.at[:, :1].add(gift))
    return dataclasses.replace(played, steps=dataclasses.replace(played.steps, after=paid))


PACE = (
    Check(
        "own_game", "value", "Does a game teach by its own pay?", "exact", "algorithms", own_game, ("rows",)
    ),
    Check(
        "pace",
        "pipeline",
        "Do rates fall over the whole run?",
        "exact",
        "algorithms",
        pace,
        ("loop", "steps_taken"),
    ),
)
