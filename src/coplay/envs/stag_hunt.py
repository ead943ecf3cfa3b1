"""Markov stag hunt: a hare feeds one hunter, a stag feeds a company. Who eats leaves, with the prey.

A step, in order: hunts are read where players stand, prey and the fed vanish, everyone else moves
at once, the clock moves on. There is no tie to break, so no rule looks at a player's index.
"""

import dataclasses
import itertools
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.envs import grid, paths
from coplay.envs.walls import WallMaps, wall_maps
from coplay.errors import require
from coplay.types import Board, Entities, Environment, Goals, Key, Picture, TimeStep, pytree

HUNT_STAG, HUNT_HARE = 5, 6
ACTION_NAMES = (*grid.MOVE_NAMES, "hunt stag", "hunt hare")
NUM_ACTIONS = len(ACTION_NAMES)


@dataclasses.dataclass(frozen=True)
class StagHuntConfig:
    size: int = 8  # the board is size x size
    players: int = 4  # 2 to 8
    hares: int = 4
    stags: int = 1
    wall_components: int = 0  # pieces of wall; 0 for an open board
    horizon: int = 35  # steps in an episode
    end_after_first_hunt: int | None = None  # end this many steps after the first catch
    stag_hunters: int = 2  # players who must hunt the same stag in the same step
    stag_reward: float = 10.0
    hare_reward: float = 1.0
    strengths: tuple[int, ...] | None = None  # a stag is split in this proportion; None: equally
    mask_lone_stag_hunt: bool = False  # hunting a stag is legal only in company
    observation: Literal["board", "entities"] = "board"  # planes, or offsets (smaller and faster)
    map_seed: int = 0  # of the bank of wall maps
    num_maps: int = 512  # wall maps in the bank

    def __post_init__(self):
        cells = self.size**2
        require(2 <= self.size <= 32, f"size={self.size} must lie between 2 and 32")
        require(2 <= self.players <= 8, f"players={self.players} must lie between 2 and 8")
        require(self.hares >= 0, f"hares={self.hares} must not be negative")
        require(self.stags >= 0, f"stags={self.stags} must not be negative")
        require(self.hares + self.stags > 0, "there is no prey: raise hares or stags")
        require(
            self.hares + self.stags + 4 * self.wall_components <= cells,
            f"stags={self.stags} and hares={self.hares} with wall_components={self.wall_components} "
            f"do not fit on {cells} cells; lower them or raise size={self.size}",
        )
        require(self.wall_components >= 0, f"wall_components={self.wall_components} must not be negative")
        require(self.horizon >= 1, f"horizon={self.horizon} must be at least 1")
        require(
            self.end_after_first_hunt is None or self.end_after_first_hunt >= 1,
            f"end_after_first_hunt={self.end_after_first_hunt} must be at least 1, or left out",
        )
        require(
            1 <= self.stag_hunters <= self.players,
            f"stag_hunters={self.stag_hunters} must lie between 1 and players={self.players}",
        )
        require(self.num_maps >= 1, f"num_maps={self.num_maps} must be at least 1")
        require(
            self.strengths is None or len(self.strengths) == self.players,
            f"strengths={self.strengths} must name one whole number for each of {self.players} players",
        )
        require(min(self.strengths or (1,)) >= 0, f"strengths={self.strengths} must not be negative")


@pytree
class StagHuntState:
    map: Int[Array, ""]  # number of the wall map; the bank itself stays outside
    players: Int[Array, " agent"]  # cell of each
    stags: Int[Array, " stag"]
    hares: Int[Array, " hare"]
    active: Bool[Array, " agent"]
    stag_alive: Bool[Array, " stag"]
    hare_alive: Bool[Array, " hare"]
    previous: Int[Array, " agent"]  # the action each carried out last
    strengths: Int[Array, " agent"]
    time: Int[Array, ""]
    end: Int[Array, ""]  # the horizon, until a first catch shortens it


def make(**options) -> Environment:
    config = StagHuntConfig(**options)
    maps = wall_maps(config.size, config.wall_components, config.map_seed, config.num_maps)
    lengths = path_lengths(config)
    return Environment(
        name="stag_hunt",
        options=config,
        kind="mixed-motive",
        num_agents=config.players,
        num_actions=NUM_ACTIONS,
        observation_size=_observation_size(config),
        action_names=ACTION_NAMES,
        neutral_action=grid.STAY,
        goals=Goals(
            names=("stag", "hare"),
            features=2 + paths.FEATURES,
            look=lambda row: _prey_seen(config, lengths, row),
            shown=_prey_caught,
            tried=_prey_hunted,
        ),
        horizon=config.horizon,
        reset=lambda key: reset(config, maps, key),
        step=lambda state, action, key: step(config, maps, state, action),
        rename=rename,
        split=lambda row: split(config, row),
        view=lambda state: (_observe(config, maps, state), _legal(config, maps, state)),
        draw=lambda state: draw(config, maps, state),
        outcomes=outcomes,
        plane_shape=(config.size, config.size, config.players + 3) if config.observation == "board" else None,
        reward_values=_reward_values(config),
        ceiling=_ceiling(config),
        entities=None if config.strengths else _entities(config, maps),  # strength is no thing on a board
    )


PRESETS = {
    "4h1s_4x4": {"size": 4},
    "4h1s_8x8": {"size": 8},
    "4h1s_8x8_walls": {"size": 8, "wall_components": 5},
    "4h2s_8x8": {"size": 8, "stags": 2},
}


def step(
    config: StagHuntConfig, maps: WallMaps, state: StagHuntState, action: Int[Array, " agent"]
) -> tuple[StagHuntState, TimeStep]:
    action = jnp.where(_is_legal(config, maps, state, action), action, grid.STAY)
    reward, fed, prey_alive = _hunt(config, state, action)
    moved = grid.moved(state.players, action, config.size)
    return _arrive(config, maps, state, action, moved, state.active & ~fed, prey_alive, reward)


def _arrive(config, maps: WallMaps, state: StagHuntState, action, players, active, prey_alive, reward):
    """The next moment, whoever says what the moves came to; the clock goes by rule."""
    time = state.time + 1
    state = dataclasses.replace(
        state,
        players=players,
        active=active,
        stag_alive=prey_alive[: config.stags],
        hare_alive=prey_alive[config.stags :],
        previous=jnp.where(state.active, action, state.previous),
        time=time,
        end=_end_after(config, state, time, jnp.any(state.active & ~active)),
    )
    return state, _look(config, maps, state, reward, first=False)


def _entities(config: StagHuntConfig, maps: WallMaps) -> Entities:
    def read(state: StagHuntState) -> Board:
        prey = jnp.concatenate([state.stags, state.hares])
        alive = jnp.concatenate([state.stag_alive, state.hare_alive])
        return Board(state.players, state.active, prey, alive)

    def write(state: StagHuntState, action: Int[Array, " agent"], board: Board, reward):
        action = jnp.where(_is_legal(config, maps, state, action), action, grid.STAY)
        return _arrive(config, maps, state, action, board.players, board.here, board.there, reward)

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
    moved = jnp.any(_open_moves(config, maps, state) & (board.players[:, None] == by_move), axis=1)
    stayed = board.players == state.players
    prey = jnp.concatenate([state.stags, state.hares])
    alive = jnp.concatenate([state.stag_alive, state.hare_alive])
    needed = np.array([config.stag_hunters] * config.stags + [1] * config.hares)
    left, vanished = state.active & ~board.here, alive & ~board.there
    eaten = _stands_on(state.players, prey, vanished) & left[:, None]
    players = jnp.where(left, stayed & jnp.any(eaten, axis=1), stayed | moved) | ~state.active
    fed = jnp.sum(eaten, axis=0) >= needed
    nothing_returns = jnp.all(state.active | ~board.here) & jnp.all(alive | ~board.there)
    return jnp.all(players) & jnp.all(fed | ~vanished) & nothing_returns


def _hunt(config: StagHuntConfig, state: StagHuntState, action: Int[Array, " agent"]):
    """Who eats what: reward, the fed, and the prey that is left."""
    on_stag = _stands_on(state.players, state.stags, state.stag_alive) & state.active[:, None]
    on_hare = _stands_on(state.players, state.hares, state.hare_alive) & state.active[:, None]
    at_stag = on_stag & (action == HUNT_STAG)[:, None]
    at_hare = on_hare & (action == HUNT_HARE)[:, None]
    stag_falls = jnp.sum(at_stag, axis=0) >= config.stag_hunters
    hare_falls = jnp.any(at_hare, axis=0)
    reward = config.stag_reward * _share(at_stag & stag_falls[None, :], state.strengths)
    reward = reward + config.hare_reward * _share(at_hare, jnp.ones_like(state.strengths))
    fed = jnp.any(at_stag & stag_falls[None, :], axis=1) | jnp.any(at_hare, axis=1)
    alive = jnp.concatenate([state.stag_alive & ~stag_falls, state.hare_alive & ~hare_falls])
    return reward, fed, alive


def _stands_on(players, prey, alive) -> Bool[Array, "agent prey"]:
    return (players[:, None] == prey[None, :]) & alive[None, :]


def _share(hunts: Bool[Array, "agent prey"], strengths: Int[Array, " agent"]) -> Float[Array, " agent"]:
    """Each prey goes to its hunters by strength, equally if they have none; whole sums stay exact."""
    strength = jnp.where(hunts, strengths[:, None], 0)
    count = jnp.sum(hunts, axis=0)
    total = jnp.sum(strength, axis=0)
    part = jnp.where((total > 0)[None, :], strength, hunts.astype(jnp.int32))
    whole = jnp.maximum(jnp.where(total > 0, total, count), 1)
    return jnp.sum(part / whole[None, :], axis=1)


def _end_after(config: StagHuntConfig, state: StagHuntState, time, someone_ate):
    if config.end_after_first_hunt is None:
        return state.end
    everything_alive = jnp.all(state.stag_alive) & jnp.all(state.hare_alive)
    shortened = jnp.minimum(config.horizon, time + config.end_after_first_hunt)
    return jnp.where(someone_ate & everything_alive, shortened, state.end)


def reset(config: StagHuntConfig, maps: WallMaps, key: Key) -> tuple[StagHuntState, TimeStep]:
    num_prey = config.stags + config.hares
    words = grid.random_words(key, 1 + config.players + num_prey)
    number = grid.draw_below(words[:1], len(maps.walls))[0]
    if config.wall_components:
        num_free = jnp.asarray(maps.num_free)[number]
        free_cells = jnp.asarray(maps.free_cells)[number]
    else:
        num_free, free_cells = jnp.int32(config.size**2), None
    players = grid.draw_below(words[1 : 1 + config.players], num_free)
    prey = grid.draw_distinct(words[1 + config.players :], num_free)
    if free_cells is not None:
        players, prey = free_cells[players], free_cells[prey]
    state = StagHuntState(
        map=number,
        players=players,
        stags=prey[: config.stags],
        hares=prey[config.stags :],
        active=jnp.ones(config.players, bool),
        stag_alive=jnp.ones(config.stags, bool),
        hare_alive=jnp.ones(config.hares, bool),
        previous=jnp.full(config.players, grid.STAY, jnp.int32),
        strengths=jnp.asarray(config.strengths or (1,) * config.players, jnp.int32),
        time=jnp.int32(0),
        end=jnp.int32(config.horizon),
    )
    return state, _look(config, maps, state, jnp.zeros(config.players), first=True)


def rename(state: StagHuntState, order: Int[Array, " agent"]) -> StagHuntState:
    """The same game with other names: new seat i is the old seat order[i]."""
    return dataclasses.replace(
        state,
        players=state.players[order],
        active=state.active[order],
        previous=state.previous[order],
        strengths=state.strengths[order],
    )


def outcomes(before: StagHuntState, after: StagHuntState) -> dict[str, Array]:
    return {
        "stags": jnp.sum(before.stag_alive & ~after.stag_alive),
        "hares": jnp.sum(before.hare_alive & ~after.hare_alive),
    }


def _look(config, maps: WallMaps, state: StagHuntState, reward, first: bool) -> TimeStep:
    nothing_left = ~(jnp.any(state.stag_alive) | jnp.any(state.hare_alive))
    over = (state.time >= state.end) | ~jnp.any(state.active) | nothing_left
    return TimeStep(
        observation=_observe(config, maps, state),
        legal=_legal(config, maps, state),
        reward=reward.astype(jnp.float32),
        active=state.active & ~over,
        terminated=~state.active | over,
        truncated=jnp.bool_(False),
        first=jnp.bool_(first),
    )


def _legal(config, maps: WallMaps, state: StagHuntState) -> Bool[Array, "agent action"]:
    on_stag = _stands_on(state.players, state.stags, state.stag_alive)
    on_hare = _stands_on(state.players, state.hares, state.hare_alive)
    if config.mask_lone_stag_hunt:
        company = jnp.sum(on_stag & state.active[:, None], axis=0) >= config.stag_hunters
        on_stag = on_stag & company[None, :]
    may = jnp.concatenate(
        [
            _open_moves(config, maps, state),
            jnp.zeros((config.players, 1), bool),
            jnp.any(on_stag, axis=1, keepdims=True),
            jnp.any(on_hare, axis=1, keepdims=True),
        ],
        axis=1,
    )
    stay = jnp.arange(NUM_ACTIONS) == grid.STAY
    return (may & state.active[:, None]) | stay[None, :]


def _open_moves(config, maps: WallMaps, state: StagHuntState) -> Bool[Array, "agent 4"]:
    if config.wall_components == 0:
        return grid.open_moves(state.players, config.size)
    return jnp.asarray(maps.open_moves)[state.map, state.players]


def _is_legal(config, maps, state, action) -> Bool[Array, " agent"]:
    chosen = action[:, None] == jnp.arange(NUM_ACTIONS)[None, :]
    return jnp.any(_legal(config, maps, state) & chosen, axis=1)


# --- what players see ---------------------------------------------------------------------------


def _observe(config, maps: WallMaps, state: StagHuntState) -> Float[Array, "agent feature"]:
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


def _prey_seen(config: StagHuntConfig, lengths: paths.Lengths, row: Float[Array, " feature"]):
    """Whether there is a stag and a hare left, and how near the nearest of each is."""
    seen = split(config, row)
    prey = jnp.stack([seen["stags"], seen["hares"]]).reshape(2, -1)
    away = paths.to_nearest(lengths(seen["walls"], paths.cell_of(seen["self"])), prey)
    description = jnp.concatenate([jnp.eye(2), paths.nearness(away, config.size)], axis=1)
    return jnp.any(prey, axis=1), description


def path_lengths(config: StagHuntConfig) -> paths.Lengths:
    """Round the walls, if there are any."""
    if config.wall_components == 0:
        return paths.on_open_board(config.size)
    maps = wall_maps(config.size, config.wall_components, config.map_seed, config.num_maps)
    return paths.round_walls(maps, config.size)


def _prey_caught(row, action: Int[Array, ""], reward: Float[Array, ""], after) -> Int[Array, ""]:
    """Which prey a player's step brought it: 0 a stag, 1 a hare, -1 none."""
    return jnp.where(reward > 0, jnp.where(action == HUNT_STAG, 0, 1), -1).astype(jnp.int32)


def _prey_hunted(action: Int[Array, ""]) -> Int[Array, ""]:
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


# --- what the game declares ----------------------------------------------------------------------


def _observation_size(config: StagHuntConfig) -> int:
    cells, players = config.size**2, config.players
    tail = players * NUM_ACTIONS + 2
    if config.observation == "board":
        return cells * (players + 3) + tail
    walls = cells if config.wall_components else 0
    return grid.entities_size(players, config.stags + config.hares) + walls + tail


def _reward_values(config: StagHuntConfig) -> tuple[float, ...]:
    """Nothing, a share of a hare, or a share of a stag for every possible company."""
    strengths = config.strengths or (1,) * config.players
    values = {0.0} | {config.hare_reward / k for k in range(1, config.players + 1)}
    for size in range(config.stag_hunters, config.players + 1):
        for company in itertools.combinations(strengths, size):
            total = sum(company)
            parts = [s / total if total else 1 / size for s in company]
            values |= {config.stag_reward * float(np.float32(part)) for part in parts}
    return tuple(sorted(values))


def _ceiling(config: StagHuntConfig) -> float:
    """The best mean return: some companies on stags, the rest on distinct hares."""
    most = min(config.stags, config.players // config.stag_hunters)
    totals = [
        stags * config.stag_reward
        + min(config.hares, config.players - stags * config.stag_hunters) * config.hare_reward
        for stags in range(most + 1)
    ]
    return max(totals) / config.players
