"""What players of the stag hunt see, what they can be after, and how it looks to people."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.envs import grid, paths
from coplay.envs.stag_hunt.config import (
    HUNT_HARE,
    HUNT_STAG,
    NUM_ACTIONS,
    StagHuntConfig,
    StagHuntState,
)
from coplay.envs.walls import WallMaps, wall_maps
from coplay.types import Picture


def observation_size(config: StagHuntConfig) -> int:
    cells, players = config.size**2, config.players
    tail = players * NUM_ACTIONS + 2
    if config.observation == "board":
        return cells * (players + 3) + tail
    walls = cells if config.wall_components else 0
    return grid.entities_size(players, config.stags + config.hares) + walls + tail


def observe(config, maps: WallMaps, state: StagHuntState) -> Float[Array, "agent feature"]:
    view = _see_board if config.observation == "board" else _see_entities
    clock = jnp.stack([state.time, state.end - state.time]) / config.horizon
    return jnp.concatenate(
        [
            view(config, maps, state),
            grid.previous_actions(state.previous, NUM_ACTIONS),
            jnp.broadcast_to(clock[None, :], (config.players, 2)),
        ],
        axis=1,
    )


def _see_board(config, maps: WallMaps, state: StagHuntState) -> Float[Array, "agent feature"]:
    """Planes, channel last: the observer, the others in cyclic order, walls, stags, hares."""
    cells = config.size**2
    bodies = grid.in_circle(grid.planes(state.players, state.active, cells))
    stags = jnp.any(grid.planes(state.stags, state.stag_alive, cells), axis=0)
    hares = jnp.any(grid.planes(state.hares, state.hare_alive, cells), axis=0)
    things = jnp.stack([jnp.asarray(maps.walls)[state.map], stags, hares])
    everything = jnp.concatenate([bodies, jnp.broadcast_to(things[None], (config.players, 3, cells))], axis=1)
    return jnp.swapaxes(everything, 1, 2).reshape(config.players, -1).astype(jnp.float32)


def _see_entities(config, maps: WallMaps, state: StagHuntState) -> Float[Array, "agent feature"]:
    """Own cell, offsets and presence of the others and of prey (see `grid.entities`); then walls, if any."""
    prey = jnp.concatenate([state.stags, state.hares])
    alive = jnp.concatenate([state.stag_alive, state.hare_alive])
    seen = grid.entities(state.players, state.active, prey, alive, config.size)
    if not config.wall_components:
        return seen
    walls = jnp.asarray(maps.walls)[state.map].astype(jnp.float32)
    return jnp.concatenate([seen, jnp.broadcast_to(walls[None], (config.players, *walls.shape))], axis=1)


def split(config: StagHuntConfig, row: Float[Array, " feature"]) -> dict[str, Array]:
    """One observer's row as boards: self, others [other, row, column], walls, stags, hares;
    then previous actions [player, action], own first, and the clock."""
    players = config.players
    tail = players * NUM_ACTIONS + 2
    boards = (_split_board if config.observation == "board" else _split_entities)(config, row[:-tail])
    square = boards.reshape(players + 3, config.size, config.size)
    return {
        "self": square[0],
        "others": square[1:players],
        "walls": square[players],
        "stags": square[players + 1],
        "hares": square[players + 2],
        "previous": row[-tail:-2].reshape(players, NUM_ACTIONS),
        "time": row[-2:],
    }


def _split_board(config, part: Float[Array, " feature"]) -> Bool[Array, "channel cell"]:
    return part.reshape(config.size**2, config.players + 3).T > 0.5


def _split_entities(config, part: Float[Array, " feature"]) -> Bool[Array, "channel cell"]:
    players, size = config.players, grid.entities_size(config.players, config.stags + config.hares)
    shown = grid.split_entities(part[:size], config.size)
    walls = part[size:][None] > 0.5 if config.wall_components else jnp.zeros((1, config.size**2), bool)
    stags = jnp.any(shown[players : players + config.stags], axis=0, keepdims=True)
    hares = jnp.any(shown[players + config.stags :], axis=0, keepdims=True)
    return jnp.concatenate([shown[:players], walls, stags, hares])


def prey_seen(config: StagHuntConfig, lengths: paths.Lengths, row: Float[Array, " feature"]):
    """Whether there is a stag and a hare left, and how near the nearest of each is.

    Round walls lengths are looked up, one by one, so few are asked for; on an open board they are computed,
    and a whole board takes less time than a list.
    """
    is_listed = config.observation == "entities" and config.wall_components > 0
    walls, cell, places, is_there = (_prey_listed if is_listed else _prey_drawn)(config, row)
    away = paths.to_nearest(lengths(walls, cell, places), is_there)
    description = jnp.concatenate([jnp.eye(2), paths.nearness(away, config.size)], axis=1)
    return jnp.any(is_there, axis=1), description


def _prey_drawn(config: StagHuntConfig, row: Float[Array, " feature"]):
    """Walls, own cell, and on which of all cells there is a stag and a hare."""
    seen = split(config, row)
    prey = jnp.stack([seen["stags"], seen["hares"]]).reshape(2, -1)
    return seen["walls"], paths.cell_of(seen["self"]), None, prey


def _prey_listed(config: StagHuntConfig, row: Float[Array, " feature"]):
    """Walls, own cell, where each prey is, and which of them are stags and which hares that are left."""
    size, num_prey = config.size, config.stags + config.hares
    listed = grid.entities_size(config.players, num_prey)
    cell, is_present = grid.entity_cells(row[:listed], size)
    walls = row[listed : listed + size**2].reshape(size, size) > 0.5
    is_stag = np.arange(num_prey) < config.stags
    is_there = is_present[-num_prey:][None] & np.stack([is_stag, ~is_stag])
    return walls, cell[0], cell[-num_prey:], is_there


def path_lengths(config: StagHuntConfig) -> paths.Lengths:
    """Round the walls, if there are any."""
    if config.wall_components == 0:
        return paths.on_open_board(config.size)
    maps = wall_maps(config.size, config.wall_components, config.map_seed, config.num_maps)
    return paths.round_walls(maps, config.size)


def prey_caught(row, action: Int[Array, ""], reward: Float[Array, ""], after) -> Int[Array, ""]:
    """Which prey a player's step brought it: 0 a stag, 1 a hare, -1 none."""
    return jnp.where(reward > 0, jnp.where(action == HUNT_STAG, 0, 1), -1).astype(jnp.int32)


def prey_hunted(action: Int[Array, ""]) -> Int[Array, ""]:
    """Which prey an action is to catch, whether it does or not: 0 a stag, 1 a hare, -1 none."""
    return jnp.where(action == HUNT_STAG, 0, jnp.where(action == HUNT_HARE, 1, -1)).astype(jnp.int32)


def draw(config: StagHuntConfig, maps: WallMaps, state: StagHuntState) -> Picture:
    cells = config.size**2
    walls = jnp.asarray(maps.walls)[state.map]
    return Picture(
        grid=jnp.array([config.size, config.size]),
        cells={
            "wall": grid.cells_or_nowhere(jnp.arange(cells), walls, config.size),
            "stag": grid.cells_or_nowhere(state.stags, state.stag_alive, config.size),
            "hare": grid.cells_or_nowhere(state.hares, state.hare_alive, config.size),
        },
        players=grid.cells_or_nowhere(state.players, state.active, config.size),
    )
