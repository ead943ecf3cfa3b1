"""Coin game: two players on a torus, one coin at a time, and a choice to take what is the other's.

Who enters the coin's cell takes it for +1; if the coin was the other's, its owner loses 2. Both may
enter in one step: `tie` says what happens then, and neither rule looks at a player's index.
"""

import dataclasses
import functools
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.envs import grid
from coplay.errors import require
from coplay.types import Environment, Key, Picture, TimeStep, plain_goals, pytree

PLAYERS = 2
ACTION_NAMES = grid.MOVE_NAMES
NUM_ACTIONS = len(ACTION_NAMES)
CHANNELS = 4  # self, other, own coin, the other's coin
GAIN, LOSS = 1.0, 2.0  # of the taker, and of the owner if the taker is someone else


@dataclasses.dataclass(frozen=True)
class CoinGameConfig:
    size: int = 3  # the board is a size x size torus
    horizon: int = 50  # steps in an episode
    tie: Literal["both", "share"] = "both"  # both take the whole coin, or half of it each

    def __post_init__(self):
        require(2 <= self.size <= 8, f"size={self.size} must lie between 2 and 8")
        require(self.horizon >= 1, f"horizon={self.horizon} must be at least 1")
        require(self.tie in ("both", "share"), f"tie={self.tie!r} must be 'both' or 'share'")


@pytree
class CoinGameState:
    players: Int[Array, " agent"]  # cell of each
    coin: Int[Array, ""]  # its cell
    owner: Bool[Array, " agent"]  # true for the one whose colour the coin has
    previous: Int[Array, " agent"]  # the action each carried out last
    time: Int[Array, ""]


def make(**options) -> Environment:
    config = CoinGameConfig(**options)
    return Environment(
        name="coin_game",
        options=config,
        kind="mixed-motive",
        num_agents=PLAYERS,
        num_actions=NUM_ACTIONS,
        observation_size=_observation_size(config),
        action_names=ACTION_NAMES,
        neutral_action=grid.STAY,
        goals=plain_goals(("own coin", "any coin"), shown=lambda *seen: _coin_taken(config, *seen)),
        horizon=config.horizon,
        reset=lambda key: reset(config, key),
        step=lambda state, action, key: step(config, state, action, key),
        rename=rename,
        view=lambda state: (_observe(config, state), _legal()),
        split=lambda row: split(config, row),
        draw=lambda state: draw(config, state),
        outcomes=outcomes,
        plane_shape=(config.size, config.size, CHANNELS),
        reward_values=(-2.0, -1.0, 0.0, 1.0) if config.tie == "both" else (-2.0, -0.5, 0.0, 0.5, 1.0),
        ceiling=_ceiling(config.size, config.horizon),
        by_touch=True,
        mirrored=True,
        random_return=0.0,  # the owner takes a coin (+1 in all) as often as the other does (-1)
    )


def step(
    config: CoinGameConfig, state: CoinGameState, action: Int[Array, " agent"], key: Key
) -> tuple[CoinGameState, TimeStep]:
    action = jnp.where((action >= 0) & (action < NUM_ACTIONS), action, grid.STAY)
    players = _moved(config, state.players, action)
    takes = players == state.coin
    taken = jnp.any(takes)
    number = grid.draw_below(grid.random_words(key, 1), _num_free(config, players))[0]
    after = CoinGameState(
        players=players,
        coin=jnp.where(taken, _free_cell(players, number), state.coin),
        owner=state.owner ^ taken,  # the next coin has the other colour
        previous=action,
        time=state.time + 1,
    )
    return after, _look(config, after, _reward(config, takes, state.owner), first=False)


def _moved(config: CoinGameConfig, cell: Int[Array, " agent"], action: Int[Array, " agent"]):
    """Where each player stands after its move; every edge leads to the opposite one."""
    size = config.size
    row = cell // size + (action == grid.DOWN) + (size - 1) * (action == grid.UP)
    column = cell % size + (action == grid.RIGHT) + (size - 1) * (action == grid.LEFT)
    return (row % size) * size + column % size


def _reward(config: CoinGameConfig, takes: Bool[Array, " agent"], owner: Bool[Array, " agent"]):
    """A taker's gain less an owner's loss; half of both when a tie is shared."""
    reward = jnp.where(takes, GAIN, 0.0) - jnp.where(owner & takes[::-1], LOSS, 0.0)
    return jnp.where(jnp.all(takes), 0.5 * reward, reward) if config.tie == "share" else reward


def _num_free(config: CoinGameConfig, players: Int[Array, " agent"]) -> Int[Array, ""]:
    return config.size**2 - 1 - (players[0] != players[1])


def _free_cell(players: Int[Array, " agent"], number: Int[Array, ""]) -> Int[Array, ""]:
    """The cell of that number among those without a player: step past each taken one in turn."""
    low, high = jnp.minimum(players[0], players[1]), jnp.maximum(players[0], players[1])
    number = number + (number >= low)
    return number + ((number >= high) & (low != high))


def reset(config: CoinGameConfig, key: Key) -> tuple[CoinGameState, TimeStep]:
    words = grid.random_words(key, PLAYERS + 1)
    players = grid.draw_below(words[:PLAYERS], config.size**2)
    number = grid.draw_below(words[PLAYERS:], 2 * _num_free(config, players))[0]  # a cell and a colour
    state = CoinGameState(
        players=players,
        coin=_free_cell(players, number // 2),
        owner=jnp.arange(PLAYERS) == number % 2,
        previous=jnp.full(PLAYERS, grid.STAY, jnp.int32),
        time=jnp.int32(0),
    )
    return state, _look(config, state, jnp.zeros(PLAYERS), first=True)


def rename(state: CoinGameState, order: Int[Array, " agent"]) -> CoinGameState:
    """The same game with other names: new seat i is the old seat order[i], and its colour goes along."""
    return dataclasses.replace(
        state,
        players=state.players[order],
        owner=state.owner[order],
        previous=state.previous[order],
    )


def outcomes(before: CoinGameState, after: CoinGameState) -> dict[str, Array]:
    """Coins that players took: their own, and the other's; a tie counts once for each."""
    takes = after.players == before.coin
    return {
        "own_coins": jnp.sum(takes & before.owner),
        "other_coins": jnp.sum(takes & ~before.owner),
    }


def _coin_taken(config: CoinGameConfig, row, action, reward, after) -> Int[Array, ""]:
    """What a step says of a player's aim: its own coin, any coin, or (-1) nothing yet."""
    before, here = split(config, row), split(config, after)["self"]
    takes_own = jnp.any(before["own_coin"] & here)
    takes_other = jnp.any(before["other_coin"] & here)
    return jnp.where(takes_own, 0, jnp.where(takes_other, 1, -1)).astype(jnp.int32)


def _look(config: CoinGameConfig, state: CoinGameState, reward, first: bool) -> TimeStep:
    over = jnp.broadcast_to(state.time >= config.horizon, (PLAYERS,))
    return TimeStep(
        observation=_observe(config, state),
        legal=_legal(),
        reward=reward,
        active=~over,
        terminated=over,
        truncated=jnp.bool_(False),
        first=jnp.bool_(first),
    )


def _legal() -> Bool[Array, "agent action"]:
    return jnp.ones((PLAYERS, NUM_ACTIONS), bool)


# --- what players see ---------------------------------------------------------------------------


def _observe(config: CoinGameConfig, state: CoinGameState) -> Float[Array, "agent feature"]:
    """Planes, channel last: self, other, own coin, the other's coin; previous actions; time."""
    seats = jnp.arange(PLAYERS)[None, :]
    features = jnp.concatenate(
        [
            grid.in_circle(state.players) * CHANNELS + seats,
            (state.coin * CHANNELS + jnp.where(state.owner, 2, 3))[:, None],
            config.size**2 * CHANNELS + seats * NUM_ACTIONS + grid.in_circle(state.previous),
        ],
        axis=1,
    )
    size = _observation_size(config)
    is_time = (jnp.arange(size) == size - 1)[None, :]
    return jnp.where(is_time, state.time / config.horizon, grid.hot(features, size).astype(jnp.float32))


def split(config: CoinGameConfig, row: Float[Array, " feature"]) -> dict[str, Array]:
    """One observer's row as boards: self, others [other, row, column], own_coin, other_coin; then
    previous actions [player, action], own first, and the clock."""
    tail = PLAYERS * NUM_ACTIONS + 1
    boards = jnp.moveaxis(row[:-tail].reshape(config.size, config.size, CHANNELS) > 0.5, -1, 0)
    return {
        "self": boards[0],
        "others": boards[1:2],
        "own_coin": boards[2],
        "other_coin": boards[3],
        "previous": row[-tail:-1].reshape(PLAYERS, NUM_ACTIONS),
        "time": row[-1:],
    }


def draw(config: CoinGameConfig, state: CoinGameState) -> Picture:
    """The coin goes by the name of the seat it belongs to, counted from 1."""
    place = jnp.broadcast_to(state.coin, (PLAYERS,))
    coins = grid.cells_or_nowhere(place, state.owner, config.size)
    return Picture(
        grid=jnp.array([config.size, config.size]),
        cells={"coin of player 1": coins[:1], "coin of player 2": coins[1:]},
        players=grid.rows_and_columns(state.players, config.size),
    )


# --- what the game declares ----------------------------------------------------------------------


def _observation_size(config: CoinGameConfig) -> int:
    return config.size**2 * CHANNELS + PLAYERS * NUM_ACTIONS + 1


@functools.cache
def _ceiling(size: int, horizon: int) -> float:
    """The best mean return of two players who act as one, by backward induction.

    On a torus only offsets matter: `value[x, y]` is what is left to earn in all when the coin lies
    at offset x from its owner and y from the other. Both tie rules earn 0 in all on a tie.
    """
    cells = np.arange(size**2)
    minus = _torus_minus(size)
    moves = minus[0, [0, 1, size, size * (size - 1), size - 1]]  # stay, and one cell each way
    after_move = minus[:, moves]
    own, other = cells[:, None] == 0, cells[None, :] == 0  # who has reached the coin
    value = np.zeros((size**2, size**2))
    for _ in range(horizon):
        total = np.where(own | other, 1.0 * own - other + _fresh_coin(value, minus)[minus], value)
        value = total[after_move[:, :, None, None], after_move[None, None]].max((1, 3))
    return float(_fresh_coin(value, minus).mean() / PLAYERS)


def _torus_minus(size: int) -> np.ndarray:
    """Offsets as cells: [i, j] is the cell that lies from 0 as cell i lies from cell j."""
    row, column = np.divmod(np.arange(size**2), size)
    rows = (row[:, None] - row[None, :]) % size
    return rows * size + (column[:, None] - column[None, :]) % size


def _fresh_coin(value: np.ndarray, minus: np.ndarray) -> np.ndarray:
    """[b]: the mean value of a new coin on a free cell, the last owner at 0 and its new owner at b."""
    cells = np.arange(len(value))
    free = (cells[None, :] != 0) & (cells[None, :] != cells[:, None])
    return (value[minus.T, cells[None, :]] * free).sum(1) / free.sum(1)
