"""Scripted discs of MPE: they push along the longer axis towards what they are after, or away from it."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.players.scripted import ScriptedPlayer, certain, one_latent, uniform
from coplay.types import Environment

COAST = 0
DIRECTION = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], np.float32)  # of each action: x, y


def nearest_landmark(env: Environment) -> ScriptedPlayer:
    """Pushes towards the nearest landmark, whoever else is after it."""

    def targets(row):
        offset = env.split(row)["landmarks"]
        return offset, jnp.ones(offset.shape[0], bool)

    def goal(row) -> Int[Array, ""]:
        return jnp.argmax(_nearest(*targets(row))).astype(jnp.int32)

    return _mover("nearest_landmark", targets, goal, sign=1.0)


def chaser(env: Environment) -> ScriptedPlayer:
    """Pushes towards the nearest prey; coasts where there is none."""
    return _mover("chaser", *_the_others(env, hunting=False), sign=1.0)


def fleer(env: Environment) -> ScriptedPlayer:
    """Pushes away from the nearest predator; coasts where there is none."""
    return _mover("fleer", *_the_others(env, hunting=True), sign=-1.0)


def _mover(name: str, targets: Callable, goal: Callable, sign: float) -> ScriptedPlayer:
    """`targets`: row -> offsets [thing, xy] and which of them count."""

    def policy(latent, row, legal) -> Float[Array, " action"]:
        offset, counts = targets(row)
        return push(offset, counts, legal, sign)

    return one_latent(name, policy, goal=lambda latent, row: goal(row))


def push(
    offset: Float[Array, "thing xy"],
    counts: Bool[Array, " thing"],
    legal: Bool[Array, " action"],
    sign: float,
) -> Float[Array, " action"]:
    """Uniform over the nearest things, then over the actions that push straight along the longer axis to the
    one drawn (`sign` 1) or away from it (-1). Who is on top of it, or has nothing to go by, coasts."""
    nearest = _nearest(offset, counts)
    along = jnp.sum(sign * offset[:, None, :] * DIRECTION[None], axis=2)  # [thing, action]
    best = (along == jnp.max(along, axis=1, keepdims=True)) & (along > 0) & legal[None, :]
    still = certain(COAST, legal.shape[0])[None, :]
    moves = jnp.where(jnp.any(best, axis=1, keepdims=True), _rows(best), still)
    mixed = jnp.sum(uniform(nearest)[:, None] * moves, axis=0)
    return jnp.where(jnp.any(counts), mixed, still[0])


def _rows(best: Bool[Array, "thing action"]) -> Float[Array, "thing action"]:
    return best / jnp.maximum(jnp.sum(best, axis=1, keepdims=True), 1)


def _nearest(offset: Float[Array, "thing xy"], counts: Bool[Array, " thing"]) -> Bool[Array, " thing"]:
    distance = jnp.where(counts, jnp.sum(offset**2, axis=1), jnp.inf)
    return counts & (distance == jnp.min(distance))


def _the_others(env: Environment, hunting: bool) -> tuple[Callable, Callable]:
    """Others of one role as targets, and the nearest of them as a goal: a player by its seat.
    Who has only its own kind to go by is after nobody, for goals are players of the other role."""

    def targets(row):
        seen = env.split(row)
        return seen["others"], seen["hunting"] == hunting

    def goal(row: Float[Array, " feature"]) -> Int[Array, ""]:
        offset, counts = targets(row)
        is_prey = env.split(row)["role"][1] > 0.5
        seat = jnp.argmax(_nearest(offset, counts)) + jnp.where(is_prey, 0, 1)  # one predator is oneself
        is_of_other_role = jnp.any(counts) & (is_prey == hunting)
        return jnp.where(is_of_other_role, seat, -1).astype(jnp.int32)

    return targets, goal
