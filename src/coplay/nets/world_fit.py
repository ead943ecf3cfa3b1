"""What a world model learns from, joint moves that were made, and what it says of them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.nets import world as worlds
from coplay.nets.world import Drawn, Foreseen, World
from coplay.types import Board, Environment, EnvState, PyTree, pytree


@pytree
class Moves:
    """One row for every joint move."""

    state: EnvState  # before the move
    before: Board
    after: Board
    action: Int[Array, "*row agent"]
    is_legal: Bool[Array, "*row agent"]
    happened: Drawn  # the labels


def moves(
    env: Environment,
    world: World,
    state: EnvState,
    next_state: EnvState,
    action,
    reward: Float[Array, "*row"],
) -> Moves:
    """One joint move in one game, with its labels."""
    before, after = world.entities.read(state), world.entities.read(next_state)
    is_legal = jnp.take_along_axis(env.view(state)[1], action[:, None], axis=1)[:, 0]
    return Moves(state, before, after, action, is_legal, worlds.true_drawn(world, before, after, reward))


def said(world: World, weights: PyTree, rows: Moves) -> Foreseen:
    """By one member."""
    return worlds.foreseen(world, weights, worlds.rows_of(world, rows.before, rows.action, rows.is_legal))


@pytree
class Surprises:
    """In nats; 0 for who had left and what had vanished."""

    step: Float[Array, "*row agent"]
    reward: Float[Array, "*row agent"]
    there: Float[Array, "*row thing"]


def surprises(told: Foreseen, rows: Moves) -> Surprises:
    happened = rows.happened
    return Surprises(
        step=jnp.where(rows.before.here, _of(told.step, happened.step), 0.0),
        reward=jnp.where(rows.before.here, _of(told.reward, happened.reward), 0.0),
        there=jnp.where(rows.before.there, _of(told.there, happened.there.astype(jnp.int32)), 0.0),
    )


def _of(log_chance: Float[Array, "*row choice"], choice: Int[Array, "*row"]) -> Float[Array, "*row"]:
    return -jnp.take_along_axis(log_chance, choice[..., None], axis=-1)[..., 0]


def loss(
    world: World, weights: PyTree, rows: Moves, weight: Float[Array, "*row agent"]
) -> Float[Array, "*row"]:
    """What each joint move costs: the surprises of all heads, added up over who and what was there; what
    happened to a player counts by its weight."""
    costs = surprises(said(world, weights, rows), rows)
    return jnp.sum((costs.step + costs.reward) * weight, axis=-1) + jnp.sum(costs.there, axis=-1)


def of_some_member(each: Foreseen, member: Int[Array, " row"]) -> Foreseen:
    """From what all members say [member, row, ...], for every row what one of them does."""
    row = jnp.arange(member.shape[0])
    return jax.tree.map(lambda x: x[member, row], each)


def same_board(one: Board, other: Board) -> Bool[Array, "*row"]:
    """Who has left is nowhere, whatever cell is kept for it."""
    players = (one.here == other.here) & ((one.players == other.players) | ~other.here)
    return jnp.all(players, axis=-1) & jnp.all(one.there == other.there, axis=-1)
