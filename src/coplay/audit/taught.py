"""Does every label teach? What a model is to foretell is changed, place by place, and it must cost otherwise.

A label that may be anything teaches nothing, whatever figures say: a model of a game in which nothing ever
vanishes has a loss as small as any other's.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms.subgoal_stage import ToldSubgoals
from coplay.audit.captured import quick, update_key
from coplay.audit.compare import all_disturbed
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.learned_world import NO_WORLD, members_of, world_of
from coplay.audit.subject import Budget, Subject
from coplay.audit.terms import NOISE, teller
from coplay.nets.world import World
from coplay.nets.world_fit import Moves, loss
from coplay.taps import TERMS
from coplay.types import Key, PyTree, Trajectory

MOVES = 512  # that are looked at
LATER = ("surprise", "ahead")  # terms that are about what co-players do


# --- what a model of the game is to foretell -----------------------------------------------------


def world_taught(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does it cost otherwise what every player and thing that was there did, and nothing what the gone do?"""
    statistic = "labels of the learned game that cost the same whatever they say, or that nobody is there for"
    one = subject.rounds()[1]
    members = members_of(one.before.params)
    if members is None or "world/remembered" not in one.taps:
        return not_run(statistic, NO_WORLD)
    world = world_of(subject.env, subject.config(subject.learner))
    first = jax.tree.map(lambda x: x[0], members)
    kept = one.taps["world/remembered"].moves  # [env, slot, ...], of which two rounds are written
    written = 2 * subject.learning_job().num_steps
    rows = jax.tree.map(lambda x: x[:, :written].reshape(-1, *x.shape[2:])[:MOVES], kept)
    ask = quick(lambda weights, rows: _costs_otherwise(world, weights, rows))
    asked = [ask(all_disturbed(first, k, NOISE), rows) for k in jax.random.split(key)]
    heard = jax.tree.map(jnp.logical_or, *asked)  # two labels may be as likely by chance, but not twice
    wrong, count = [], 0
    for head, is_heard in heard.items():
        is_there = np.asarray(rows.before.there if head == "there" else rows.before.here)
        deaf, astray = (np.asarray(x) for x in (is_there & ~is_heard, ~is_there & is_heard))
        count += is_there.size
        if deaf.any():
            wrong.append(f"{int(deaf.sum())} labels of {SAID[head]} cost the same whatever they say")
        if astray.any():
            wrong.append(f"{SAID[head]} costs something of who had gone")
    return exact(statistic, len(wrong), count, "; ".join(wrong))


SAID = {"step": "where players go", "reward": "what is paid", "there": "what vanishes"}


def _costs_otherwise(world: World, weights: PyTree, rows: Moves) -> dict[str, Bool[Array, "row place"]]:
    """By head and place, whether a row costs otherwise once the label there is another. What it costs as it
    is comes from the same program, so that rounding makes no difference."""
    here = rows.before.here.astype(jnp.float32)

    def heard(head: str, other: Array) -> Bool[Array, "row place"]:
        old = getattr(rows.happened, head)

        def cost(place: Int[Array, ""]) -> Float[Array, " row"]:
            is_place = (jnp.arange(old.shape[1]) == place)[None]
            happened = dataclasses.replace(rows.happened, **{head: jnp.where(is_place, other, old)})
            return loss(world, weights, dataclasses.replace(rows, happened=happened), here)

        costs = jax.vmap(cost, out_axes=1)(jnp.arange(-1, old.shape[1]))  # the first: nowhere
        return costs[:, 1:] != costs[:, :1]

    happened, values = rows.happened, len(world.reward_values)
    others = {"reward": (happened.reward + 1) % values, "there": ~happened.there}
    others["step"] = (happened.step + 1) % (world.leaving + 1)
    return {head: heard(head, other) for head, other in others.items() if other.shape[1]}


# --- what a model of co-players is to foretell ---------------------------------------------------


def moves_taught(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do the last moves of a round teach, and does what is read foretell later moves only?"""
    statistic = "terms that do not hear what co-players did last, or that foretell what came before"
    one = subject.rounds()[-1]
    loud = all_disturbed(one.after.params, key, NOISE)
    tell = teller(subject)

    def told(trajectory: Trajectory) -> dict[str, Float[np.ndarray, "*group"]]:
        said: Any = tell(loud, one.before.learner, trajectory, update_key(one.before)).get(f"{TERMS}subgoals")
        values = said.terms.values if isinstance(said, ToldSubgoals) else {}
        return {name: np.asarray(values[name]) for name in LATER if name in values}

    usual = told(one.trajectory)
    if not usual:
        return not_run(statistic, "nobody here reads subgoals of co-players")
    late, early = told(_otherwise(one.trajectory, -1)), told(_otherwise(one.trajectory, 0))
    wrong = [
        f"{name} is the same whatever co-players did last"
        for name in usual
        if np.any(late[name] == usual[name])
    ]
    is_balanced = subject.config(subject.learner).model_balanced  # by how often each move was made in all
    if "ahead" in usual and not is_balanced and np.any(early["ahead"] != usual["ahead"]):
        wrong.append("ahead foretells moves before which nothing was read")
    return exact(statistic, len(wrong), 2 * len(usual), "; ".join(wrong))


def _otherwise(trajectory: Trajectory, step: int) -> Trajectory:
    """As if everybody had made another move that was legal at one step, where there was one."""
    action, legal = trajectory.steps.decision.action[step], trajectory.steps.before.legal[step]
    is_taken = jax.nn.one_hot(action, legal.shape[-1], dtype=bool)
    other = jnp.argmax(legal & ~is_taken, axis=-1).astype(action.dtype)
    other = jnp.where(jnp.any(legal & ~is_taken, axis=-1), other, action)
    steps = trajectory.steps
    decision = dataclasses.replace(steps.decision, action=steps.decision.action.at[step].set(other))
    return dataclasses.replace(trajectory, steps=dataclasses.replace(steps, decision=decision))


TAUGHT = (
    Check(
        "world_taught",
        "models",
        "Does all that the learned game is to foretell teach it?",
        "exact",
        "nets",
        world_taught,
        ("world_rows",),
    ),
    Check(
        "moves_taught",
        "models",
        "Do models of co-players learn from all moves, and only from what came before them?",
        "exact",
        "opponents",
        moves_taught,
        ("opponent_rows",),
    ),
)
