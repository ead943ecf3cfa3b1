"""Who sits where: games whose learners change seats every episode, or keep other names throughout.

Both wrap a game and give a game. `shuffled` takes away what a seat could give a learner; `renamed`
repeats a whole training under other names, to show that none of them mattered.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from coplay.envs import grid
from coplay.errors import BadInput
from coplay.types import Board, Entities, Environment, EnvState, Key, TimeStep, pytree, stream


@pytree
class ShuffledState:
    inner: EnvState  # the game itself, by seat
    order: Int[Array, " agent"]  # learner i sits in seat order[i]


def shuffled(env: Environment) -> Environment:
    """The game with seats drawn anew at each reset; every row follows its learner.

    A learner sees the others in the order they sit, which is another one in every episode.
    """

    def reset(key: Key) -> tuple[ShuffledState, TimeStep]:
        words = grid.random_words(stream(key, "seats"), env.num_agents)
        order = grid.draw_distinct(words, jnp.int32(env.num_agents))
        inner, timestep = env.reset(stream(key, "game"))
        return ShuffledState(inner, order), _rows(timestep, order)

    def step(state: ShuffledState, action: Int[Array, " agent"], key: Key) -> tuple[ShuffledState, TimeStep]:
        inner, timestep = env.step(state.inner, action[_inverse(state.order)], key)
        return dataclasses.replace(state, inner=inner), _rows(timestep, state.order)

    def view(state: ShuffledState) -> tuple[Array, Array]:
        observation, legal = env.view(state.inner)
        return observation[state.order], legal[state.order]

    return dataclasses.replace(
        env,
        reset=reset,
        step=step,
        rename=lambda state, order: dataclasses.replace(state, order=state.order[order]),
        view=view,
        draw=lambda state: env.draw(env.rename(state.inner, state.order)),
        outcomes=lambda before, after: env.outcomes(before.inner, after.inner),
        entities=env.entities and _shuffled_entities(env.entities),
        alike=(),  # everyone sits everywhere in time
    )


def _shuffled_entities(entities: Entities) -> Entities:
    """The game as a board on which learners have their own places, whichever seats they sit in."""

    def write(state: ShuffledState, action: Int[Array, " agent"], board: Board, reward):
        seats = _inverse(state.order)
        by_seat = _players(board, seats)
        inner, timestep = entities.write(state.inner, action[seats], by_seat, reward[seats])
        return dataclasses.replace(state, inner=inner), _rows(timestep, state.order)

    return dataclasses.replace(
        entities,
        read=lambda state: _players(entities.read(state.inner), state.order),
        write=write,
        possible=lambda state, board: entities.possible(state.inner, _players(board, _inverse(state.order))),
    )


def renamed(env: Environment, order: Sequence[int]) -> Environment:
    """The game started under other names: seat i is what seat order[i] would have been.

    Only a turn of the circle is accepted, such as (1, 2, 3, 0): then everyone still sees the others
    in the order they sit and each row of the game is bit for bit a row of the original, moved. Games
    commute with renaming, so that a step needs no change.
    """
    seats = _turn_of_the_circle(order, env.num_agents)

    return dataclasses.replace(env, reset=lambda key: start_as(env, seats, key))


def start_as(env: Environment, order: Int[Array, " agent"], key: Key) -> tuple[EnvState, TimeStep]:
    """A fresh game in which seat i is what seat order[i] would have been."""
    state, timestep = env.reset(key)
    return env.rename(state, order), _rows(timestep, order)


def _rows(timestep: TimeStep, order: Int[Array, " agent"]) -> TimeStep:
    """Everything that has a row for each agent, in that order."""
    return dataclasses.replace(
        timestep,
        observation=timestep.observation[order],
        legal=timestep.legal[order],
        reward=timestep.reward[order],
        active=timestep.active[order],
        terminated=timestep.terminated[order],
    )


def _players(board: Board, order: Int[Array, " agent"]) -> Board:
    """The board with its players in that order."""
    return dataclasses.replace(board, players=board.players[order], here=board.here[order])


def _inverse(order: Int[Array, " agent"]) -> Int[Array, " agent"]:
    """Which learner sits in each seat."""
    learners = jnp.arange(order.shape[0])
    return jnp.sum(jnp.where(order[:, None] == learners[None, :], learners[:, None], 0), axis=0)


def _turn_of_the_circle(order: Sequence[int], num_agents: int) -> jax.Array:
    turns = grid.cyclic_order(num_agents)
    if tuple(order) not in {tuple(int(seat) for seat in turn) for turn in turns}:
        raise BadInput(
            f"order={tuple(order)} must be a turn of the circle of {num_agents} players, "
            f"such as {tuple(int(seat) for seat in turns[1])}"
        )
    return jnp.asarray(np.asarray(order), jnp.int32)
