"""A run's model of the game: its weights, and what it foretells of moves made afresh.

Members of an ensemble are asked all together (the mean of their chances) for what they know, and one of them
for a board that could come of it. What is made of that: `trained_worlds.py` and `trained_growth.py`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from coplay.audit import captured
from coplay.audit.subject import Subject
from coplay.errors import BadInput
from coplay.experiment import settings_of
from coplay.nets import world as worlds
from coplay.nets.world import World
from coplay.nets.world_fit import Moves, moves, said
from coplay.types import Environment, Key, PyTree, Seated, Trajectory, stream

NO_WORLD = "nobody learns a model of the game here"


def members_of(params: PyTree) -> PyTree | None:
    """Weights [member, ...] of a model of the game."""
    for part in jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, Seated)):
        if isinstance(part, Seated) and "members" in part.common:
            return part.common["members"]
    return None


def world_of(env: Environment, config: Any) -> World:
    assert env.entities is not None and env.reward_values is not None, "the game has been refused otherwise"
    return worlds.world_model(
        env.entities, env.num_agents, env.num_actions, env.reward_values, config.world_hidden
    )[0]


class Chances(NamedTuple):
    """As `Foreseen`, the mean over members."""

    step: Float[np.ndarray, "*row agent choice"]
    reward: Float[np.ndarray, "*row agent value"]
    there: Float[np.ndarray, "*row thing 2"]


class Foretold(NamedTuple):
    """Moves of one seed, beside what was foretold of them, [row, ...]."""

    moves: Moves
    chance: Chances
    is_possible: Bool[np.ndarray, " row"]  # a board that one member drew


class Learned(NamedTuple):
    """Models of the game, and the games they are asked about, by seed."""

    world: World
    members: list[PyTree]
    games: list[Trajectory]


def learned_world(subject: Subject) -> Learned:
    members = [members_of(params) for params in subject.trained().params]
    if members[0] is None:
        raise BadInput(NO_WORLD)
    assert subject.experiment is not None
    config = settings_of(subject.experiment, subject.learner)
    return Learned(world_of(subject.env, config), members, subject.trained_games())


def foretold_of(subject: Subject) -> list[Foretold]:
    """Of every seed, once for all checks."""
    return subject.once("trained worlds", lambda: _foretold(subject, learned_world(subject)))


def _foretold(subject: Subject, learned: Learned) -> list[Foretold]:
    env, world = subject.env, learned.world

    def ask(members: PyTree, steps: PyTree, key: Key):
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        made = jax.vmap(lambda *one: moves(env, world, *one))(
            rows.state, rows.next_state, rows.decision.action, rows.after.reward
        )
        each = jax.vmap(lambda one: said(world, one, made))(members)
        first = jax.tree.map(lambda x: x[0], each)
        board = worlds.next_board(world, made.before, worlds.draw(first, key))
        mean = [jnp.mean(jnp.exp(x), axis=0) for x in (each.step, each.reward, each.there)]
        return made, mean, jax.vmap(world.entities.possible)(made.state, board)

    asked, key = captured.quick(ask), stream(jax.random.key(subject.seed), "trained worlds")
    found = [asked(m, games.steps, key) for m, games in zip(learned.members, learned.games, strict=True)]
    return [Foretold(made, Chances(*map(np.asarray, mean)), np.asarray(can)) for made, mean, can in found]
