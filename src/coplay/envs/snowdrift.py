"""Markov snowdrift game: a cleared road serves everybody, and those who clear it pay.

A step, in order: removals are read where players stand, everyone else moves at once, the clock moves
on. Removers of the same drift share its cost equally, so no rule looks at a player's index.
"""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.envs import grid, paths
from coplay.errors import require
from coplay.types import Environment, Goals, Key, Picture, TimeStep, pytree

REMOVE = 5
ACTION_NAMES = (*grid.MOVE_NAMES, "remove")
NUM_ACTIONS = len(ACTION_NAMES)
IDLE = tuple(action for action in range(NUM_ACTIONS) if action != REMOVE)
FEATURES = 3 + paths.FEATURES  # of a goal: to remove no more; a drift's offset and how near it is


@dataclasses.dataclass(frozen=True)
class SnowdriftConfig:
    size: int = 8  # the board is size x size
    players: int = 4  # 2 to 8
    drifts: int = 6  # at the start, each on a cell of its own
    horizon: int = 50  # steps in an episode
    removal_reward: float = 6.0  # to every player, for each drift removed
    removal_cost: float = 4.0  # shared by those who remove that drift in that step
    observation: Literal["board", "entities"] = "board"  # planes, or offsets (smaller and faster)

    def __post_init__(self):
        cells = self.size**2
        require(2 <= self.size <= 32, f"size={self.size} must lie between 2 and 32")
        require(2 <= self.players <= 8, f"players={self.players} must lie between 2 and 8")
        require(
            1 <= self.drifts <= cells,
            f"drifts={self.drifts} must lie between 1 and {cells}, the cells there are",
        )
        require(self.horizon >= 1, f"horizon={self.horizon} must be at least 1")


@pytree
class SnowdriftState:
    players: Int[Array, " agent"]  # cell of each
    drifts: Int[Array, " drift"]
    is_there: Bool[Array, " drift"]
    previous: Int[Array, " agent"]  # the action each carried out last
    time: Int[Array, ""]


def make(**options) -> Environment:
    config = SnowdriftConfig(**options)
    return Environment(
        name="snowdrift",
        options=config,
        kind="mixed-motive",
        num_agents=config.players,
        num_actions=NUM_ACTIONS,
        observation_size=_observation_size(config),
        action_names=ACTION_NAMES,
        neutral_action=grid.STAY,
        goals=_goals(config),
        horizon=config.horizon,
        reset=lambda key: reset(config, key),
        step=lambda state, action, key: step(config, state, action),
        rename=rename,
        view=lambda state: (_observe(config, state), _legal(config, state)),
        split=lambda row: split(config, row),
        draw=lambda state: draw(config, state),
        outcomes=outcomes,
        plane_shape=(config.size, config.size, _channels(config)) if config.observation == "board" else None,
        reward_values=_reward_values(config),
        ceiling=config.drifts * (config.removal_reward - config.removal_cost / config.players),
        pays=(("drifts", config.players * config.removal_reward - config.removal_cost),),
        by_touch=True,
        apart=("drift",),
        mirrored=True,
        random_return=11.0 if config == SnowdriftConfig(observation=config.observation) else None,
    )


def step(
    config: SnowdriftConfig, state: SnowdriftState, action: Int[Array, " agent"]
) -> tuple[SnowdriftState, TimeStep]:
    action = jnp.where(_is_legal(config, state, action), action, grid.STAY)
    removes = _stands_on(state) & (action == REMOVE)[:, None]
    after = dataclasses.replace(
        state,
        players=grid.moved(state.players, action, config.size),
        is_there=state.is_there & ~jnp.any(removes, axis=0),
        previous=action,
        time=state.time + 1,
    )
    return after, _look(config, after, _reward(config, removes), first=False)


def _stands_on(state: SnowdriftState) -> Bool[Array, "agent drift"]:
    return (state.players[:, None] == state.drifts[None, :]) & state.is_there[None, :]


def _reward(config: SnowdriftConfig, removes: Bool[Array, "agent drift"]) -> Float[Array, " agent"]:
    """Everyone gains by every drift that goes; each remover pays its part of the cost."""
    removers = jnp.sum(removes, axis=0)
    cost = config.removal_cost / jnp.maximum(removers, 1)
    gain = config.removal_reward * jnp.sum(removers > 0)
    return gain - jnp.sum(jnp.where(removes, cost[None, :], 0.0), axis=1)


def reset(config: SnowdriftConfig, key: Key) -> tuple[SnowdriftState, TimeStep]:
    cells = jnp.int32(config.size**2)
    words = grid.random_words(key, config.players + config.drifts)
    state = SnowdriftState(
        players=grid.draw_below(words[: config.players], cells),
        drifts=grid.draw_distinct(words[config.players :], cells),
        is_there=jnp.ones(config.drifts, bool),
        previous=jnp.full(config.players, grid.STAY, jnp.int32),
        time=jnp.int32(0),
    )
    return state, _look(config, state, jnp.zeros(config.players), first=True)


def rename(state: SnowdriftState, order: Int[Array, " agent"]) -> SnowdriftState:
    """The same game with other names: new seat i is the old seat order[i]."""
    return dataclasses.replace(state, players=state.players[order], previous=state.previous[order])


def outcomes(before: SnowdriftState, after: SnowdriftState) -> dict[str, Array]:
    return {"drifts": jnp.sum(before.is_there & ~after.is_there)}


def _look(config: SnowdriftConfig, state: SnowdriftState, reward, first: bool) -> TimeStep:
    is_over = (state.time >= config.horizon) | ~jnp.any(state.is_there)
    over = jnp.broadcast_to(is_over, (config.players,))
    return TimeStep(
        observation=_observe(config, state),
        legal=_legal(config, state),
        reward=reward,
        active=~over,
        terminated=over,
        truncated=jnp.bool_(False),
        first=jnp.bool_(first),
    )


def _legal(config: SnowdriftConfig, state: SnowdriftState) -> Bool[Array, "agent action"]:
    return jnp.concatenate(
        [
            grid.open_moves(state.players, config.size),
            jnp.ones((config.players, 1), bool),
            jnp.any(_stands_on(state), axis=1, keepdims=True),
        ],
        axis=1,
    )


def _is_legal(config: SnowdriftConfig, state: SnowdriftState, action) -> Bool[Array, " agent"]:
    chosen = action[:, None] == jnp.arange(NUM_ACTIONS)[None, :]
    return jnp.any(_legal(config, state) & chosen, axis=1)


# --- what players see ---------------------------------------------------------------------------


def _observe(config: SnowdriftConfig, state: SnowdriftState) -> Float[Array, "agent feature"]:
    return (_see_board if config.observation == "board" else _see_entities)(config, state)


def _see_entities(config: SnowdriftConfig, state: SnowdriftState) -> Float[Array, "agent feature"]:
    """Own cell, offsets and presence of the others and of drifts; previous actions; the time."""
    everyone = jnp.ones(config.players, bool)
    clock = jnp.broadcast_to(state.time / config.horizon, (config.players, 1))
    seen = grid.entities(state.players, everyone, state.drifts, state.is_there, config.size)
    return jnp.concatenate([seen, grid.previous_actions(state.previous, NUM_ACTIONS), clock], axis=1)


def _see_board(config: SnowdriftConfig, state: SnowdriftState) -> Float[Array, "agent feature"]:
    """Planes, channel last: the observer, the others in cyclic order, walls (none), drifts; then
    previous actions and the time."""
    channels, players = _channels(config), config.players
    seats = jnp.arange(players)[None, :]
    drifts = jnp.where(state.is_there, state.drifts * channels + players + 1, -1)
    features = jnp.concatenate(
        [
            grid.in_circle(state.players) * channels + seats,
            jnp.broadcast_to(drifts[None, :], (players, config.drifts)),
            config.size**2 * channels + seats * NUM_ACTIONS + grid.in_circle(state.previous),
        ],
        axis=1,
    )
    size = _observation_size(config)
    is_time = (jnp.arange(size) == size - 1)[None, :]
    return jnp.where(is_time, state.time / config.horizon, grid.hot(features, size).astype(jnp.float32))


def split(config: SnowdriftConfig, row: Float[Array, " feature"]) -> dict[str, Array]:
    """One observer's row as boards: self, others [other, row, column], walls, drifts; then previous
    actions [player, action], own first, and the clock."""
    players = config.players
    tail = players * NUM_ACTIONS + 1
    read = _split_board if config.observation == "board" else _split_entities
    boards = read(config, row[:-tail]).reshape(_channels(config), config.size, config.size)
    return {
        "self": boards[0],
        "others": boards[1:players],
        "walls": boards[players],
        "drifts": boards[players + 1],
        "previous": row[-tail:-1].reshape(players, NUM_ACTIONS),
        "time": row[-1:],
    }


def _split_board(config: SnowdriftConfig, part: Float[Array, " feature"]) -> Bool[Array, "channel cell"]:
    return part.reshape(config.size**2, _channels(config)).T > 0.5


def _split_entities(config: SnowdriftConfig, part: Float[Array, " feature"]) -> Bool[Array, "channel cell"]:
    shown = grid.split_entities(part, config.size)
    no_walls = jnp.zeros((1, config.size**2), bool)
    drifts = jnp.any(shown[config.players :], axis=0, keepdims=True)
    return jnp.concatenate([shown[: config.players], no_walls, drifts])


def _goals(config: SnowdriftConfig) -> Goals:
    """Each drift, described by its offset and how near it is, and none of them. Planes do not number drifts,
    so goals show in `entities` only."""
    names = (*(f"drift {k + 1}" for k in range(config.drifts)), "no more")
    if config.observation == "board":
        return Goals(names, FEATURES, None, None, aimless=(config.drifts,), idle=IDLE)
    return Goals(
        names,
        features=FEATURES,
        look=lambda row: _drifts_seen(config, row),
        shown=lambda row, action, reward, after: _drift_removed(config, row, action),
        aimless=(config.drifts,),
        idle=IDLE,
        away=(3, config.size),
    )


def _drifts_seen(config: SnowdriftConfig, row: Float[Array, " feature"]):
    """Which drifts are there, and where from here; to remove no more is always possible."""
    others, count = config.players - 1, config.players - 1 + config.drifts
    rows, columns, present = row[2 : 2 + 3 * count].reshape(3, count)[:, others:]
    possible = jnp.append(present > 0.5, True)
    places = jnp.stack([rows, columns], axis=1)
    offset = jnp.round(places * config.size).astype(jnp.int32)
    near = paths.nearness(paths.straight(offset), config.size)
    drifts = jnp.concatenate([jnp.zeros((config.drifts, 1)), places, near], axis=1)
    no_more = jax.nn.one_hot(0, FEATURES)[None]
    return possible, jnp.concatenate([drifts, no_more])


def _drift_removed(config: SnowdriftConfig, row: Float[Array, " feature"], action: Int[Array, ""]):
    """The drift that a player removes with this action, or -1."""
    possible, description = _drifts_seen(config, row)
    here = possible[:-1] & jnp.all(jnp.abs(description[:-1, 1:3]) < 0.5 / config.size, axis=1)
    return jnp.where((action == REMOVE) & jnp.any(here), jnp.argmax(here), -1).astype(jnp.int32)


def draw(config: SnowdriftConfig, state: SnowdriftState) -> Picture:
    return Picture(
        grid=jnp.array([config.size, config.size]),
        cells={"drift": grid.cells_or_nowhere(state.drifts, state.is_there, config.size)},
        players=grid.rows_and_columns(state.players, config.size),
    )


# --- what the game declares ----------------------------------------------------------------------


def _channels(config: SnowdriftConfig) -> int:
    return config.players + 2


def _observation_size(config: SnowdriftConfig) -> int:
    tail = config.players * NUM_ACTIONS + 1
    if config.observation == "entities":
        return grid.entities_size(config.players, config.drifts) + tail
    return config.size**2 * _channels(config) + tail


def _reward_values(config: SnowdriftConfig) -> tuple[float, ...]:
    """So many drifts removed in one step, and a part of the cost of one of them, or none of it."""
    values = {0.0}
    for removed in range(1, min(config.drifts, config.players) + 1):
        gain = config.removal_reward * removed
        most = config.players - (removed - 1)  # each of the others needs a remover of its own
        values |= {gain} | {gain - config.removal_cost / k for k in range(1, most + 1)}
    return tuple(sorted(values))
