"""The stag hunt as players and prey on cells, for models that learn how it moves."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from coplay.envs import grid
from coplay.envs.stag_hunt.config import StagHuntConfig, StagHuntState
from coplay.envs.stag_hunt.rules import arrive, is_legal, open_moves, stands_on
from coplay.envs.walls import WallMaps
from coplay.types import Board, Entities


def entities(config: StagHuntConfig, maps: WallMaps) -> Entities:
    def read(state: StagHuntState) -> Board:
        prey = jnp.concatenate([state.stags, state.hares])
        alive = jnp.concatenate([state.stag_alive, state.hare_alive])
        return Board(state.players, state.active, prey, alive)

    def write(state: StagHuntState, action: Int[Array, " agent"], board: Board, reward):
        action = jnp.where(is_legal(config, maps, state, action), action, grid.STAY)
        return arrive(config, maps, state, action, board.players, board.here, board.there, reward)

    return Entities(
        width=config.size,
        num_cells=config.size**2,
        steps=((0, 0), *((int(row), int(column)) for row, column in grid.MOVES)),
        kinds=("stag", "hare"),
        kind_of=(0,) * config.stags + (1,) * config.hares,
        read=read,
        write=write,
        possible=lambda state, board: _can_follow(config, maps, state, board),
    )


def _can_follow(
    config: StagHuntConfig, maps: WallMaps, state: StagHuntState, board: Board
) -> Bool[Array, ""]:
    """Whether somebody's moves lead from here to that board: one cell at most and through no wall, who leaves
    has eaten where it stood, prey that is gone has fed enough, nobody and nothing comes back."""
    by_move = state.players[:, None] + jnp.asarray(grid.MOVES @ [config.size, 1], jnp.int32)[None]
    moved = jnp.any(open_moves(config, maps, state) & (board.players[:, None] == by_move), axis=1)
    stayed = board.players == state.players
    prey = jnp.concatenate([state.stags, state.hares])
    alive = jnp.concatenate([state.stag_alive, state.hare_alive])
    needed = np.array([config.stag_hunters] * config.stags + [1] * config.hares)
    left, vanished = state.active & ~board.here, alive & ~board.there
    eaten = stands_on(state.players, prey, vanished) & left[:, None]
    players = jnp.where(left, stayed & jnp.any(eaten, axis=1), stayed | moved) | ~state.active
    fed = jnp.sum(eaten, axis=0) >= needed
    nothing_returns = jnp.all(state.active | ~board.here) & jnp.all(alive | ~board.there)
    return jnp.all(players) & jnp.all(fed | ~vanished) & nothing_returns
