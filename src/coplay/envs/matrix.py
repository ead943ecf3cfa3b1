"""Iterated two-player matrix games: two actions, known payoffs, and what was played last in view.

Each player sees the last joint action from its own side. In matching pennies the roles are drawn at
reset and live in the state, so that renaming the players moves the roles along.
"""

import dataclasses
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.envs import grid
from coplay.errors import require
from coplay.types import Environment, Key, Picture, TimeStep, plain_goals, pytree

PLAYERS, NUM_ACTIONS = 2, 2
NONE_YET = -1  # as the last action, before the first round
OBSERVATION_SIZE = NUM_ACTIONS**2 + 3  # the last joint action, "none yet", matcher, time
SAFETY_STOP = 1000  # rounds, where only chance ends a game


GameName = Literal["prisoners_dilemma", "stag_hunt", "chicken", "matching_pennies", "pure_coordination"]


@dataclasses.dataclass(frozen=True)
class Game:
    payoffs: tuple[float, float, float, float]  # to oneself, for (own, other) = 00, 01, 10, 11
    action_names: tuple[str, str]
    kind: Literal["mixed-motive", "zero-sum", "cooperative"]
    has_roles: bool = False  # one player, drawn at reset, earns the payoffs; the other loses them


GAMES: dict[GameName, Game] = {
    "prisoners_dilemma": Game((-1.0, -3.0, 0.0, -2.0), ("cooperate", "defect"), "mixed-motive"),
    "stag_hunt": Game((4.0, 0.0, 3.0, 2.0), ("stag", "hare"), "mixed-motive"),
    "chicken": Game((3.0, 1.0, 4.0, 0.0), ("swerve", "straight"), "mixed-motive"),
    "matching_pennies": Game((1.0, -1.0, -1.0, 1.0), ("heads", "tails"), "zero-sum", has_roles=True),
    "pure_coordination": Game((1.0, 0.0, 0.0, 1.0), ("left", "right"), "cooperative"),
}


@dataclasses.dataclass(frozen=True)
class MatrixConfig:
    game: GameName = "prisoners_dilemma"  # whose payoffs
    rounds: int = 10  # 1 for a one-shot game; has no effect with continue_probability
    continue_probability: float | None = None  # hides the time and ends each round by a draw

    def __post_init__(self):
        require(self.game in GAMES, f"game={self.game!r} must be one of {', '.join(GAMES)}")
        require(self.rounds >= 1, f"rounds={self.rounds} must be at least 1")
        require(
            self.continue_probability is None or 0 < self.continue_probability < 1,
            f"continue_probability={self.continue_probability} must lie between 0 and 1, or be left out",
        )


@pytree
class MatrixState:
    last: Int[Array, " agent"]  # the action each played last, or NONE_YET
    matcher: Bool[Array, " agent"]  # false for both in a game without roles
    time: Int[Array, ""]


def make(**options) -> Environment:
    config = MatrixConfig(**options)
    game = GAMES[config.game]
    return Environment(
        name="matrix",
        options=config,
        kind=game.kind,
        num_agents=PLAYERS,
        num_actions=NUM_ACTIONS,
        observation_size=OBSERVATION_SIZE,
        action_names=game.action_names,
        neutral_action=0,
        goals=plain_goals(game.action_names, shown=lambda row, action, reward, after: action),
        horizon=SAFETY_STOP if config.continue_probability else config.rounds,
        reset=lambda key: reset(config, key),
        step=lambda state, action, key: step(config, state, action, key),
        rename=rename,
        view=lambda state: (_observe(config, state), _legal()),
        split=split,
        draw=draw,
        outcomes=lambda before, after: outcomes(config, after),
        reward_values=tuple(sorted(set(game.payoffs))),
        starts=PLAYERS if game.has_roles else 1,
        ceiling=_expected_rounds(config) * float(_mean_payoffs(game).max()),
        random_return=_expected_rounds(config) * float(_mean_payoffs(game).mean()),
        can_truncate=config.continue_probability is not None,
    )


PRESETS = {
    "prisoners_dilemma": {"game": "prisoners_dilemma"},
    "matrix_stag_hunt": {"game": "stag_hunt"},
    "chicken": {"game": "chicken"},
    "matching_pennies": {"game": "matching_pennies"},
    "pure_coordination": {"game": "pure_coordination"},
}


def step(
    config: MatrixConfig, state: MatrixState, action: Int[Array, " agent"], key: Key
) -> tuple[MatrixState, TimeStep]:
    action = jnp.where(action == 1, action, 0)
    after = dataclasses.replace(state, last=action, time=state.time + 1)
    return after, _look(config, after, _payoff(config, state, action), _is_over(config, after, key))


def _payoff(config: MatrixConfig, state: MatrixState, action) -> Float[Array, " agent"]:
    game = GAMES[config.game]
    cell = NUM_ACTIONS * action + action[::-1]
    payoff = jnp.zeros(PLAYERS)
    for number, value in enumerate(game.payoffs):
        payoff = jnp.where(cell == number, value, payoff)
    return jnp.where(state.matcher, payoff, -payoff) if game.has_roles else payoff


def _is_over(config: MatrixConfig, after: MatrixState, key: Key) -> Bool[Array, ""]:
    """Whether the game's own rule ends it: after the last round, or by a draw in every round."""
    if config.continue_probability is None:
        return after.time >= config.rounds
    unit = (grid.random_words(key, 1)[0] >> 8).astype(jnp.float32) * (1.0 / (1 << 24))
    return unit >= config.continue_probability


def reset(config: MatrixConfig, key: Key) -> tuple[MatrixState, TimeStep]:
    role = grid.draw_below(grid.random_words(key, 1), PLAYERS)
    state = MatrixState(
        last=jnp.full(PLAYERS, NONE_YET, jnp.int32),
        matcher=(jnp.arange(PLAYERS) == role) & GAMES[config.game].has_roles,
        time=jnp.int32(0),
    )
    return state, _look(config, state, jnp.zeros(PLAYERS), jnp.bool_(False), first=True)


def rename(state: MatrixState, order: Int[Array, " agent"]) -> MatrixState:
    """The same game with other names: new seat i is the old seat order[i], and its role goes along."""
    return dataclasses.replace(state, last=state.last[order], matcher=state.matcher[order])


def outcomes(config: MatrixConfig, after: MatrixState) -> dict[str, Array]:
    """How many played each action."""
    names = GAMES[config.game].action_names
    return {name: jnp.sum(after.last == action) for action, name in enumerate(names)}


def _look(config, state: MatrixState, reward, is_over, first: bool = False) -> TimeStep:
    over = jnp.broadcast_to(is_over, (PLAYERS,))
    can_stop = config.continue_probability is not None
    return TimeStep(
        observation=_observe(config, state),
        legal=_legal(),
        reward=reward,
        active=~over,
        terminated=over,
        truncated=(state.time >= SAFETY_STOP) & ~is_over & can_stop,
        first=jnp.bool_(first),
    )


def _legal() -> Bool[Array, "agent action"]:
    return jnp.ones((PLAYERS, NUM_ACTIONS), bool)


# --- what players see ---------------------------------------------------------------------------


def _observe(config: MatrixConfig, state: MatrixState) -> Float[Array, "agent feature"]:
    """The last joint action from one's own side (or "none yet"), the matcher's bit, the time."""
    joint = jnp.where(state.last == NONE_YET, NUM_ACTIONS**2, NUM_ACTIONS * state.last + state.last[::-1])
    shown = joint[:, None] == jnp.arange(NUM_ACTIONS**2 + 1)[None, :]
    hidden = config.continue_probability is not None
    time = jnp.zeros(()) if hidden else state.time / config.rounds
    return jnp.concatenate(
        [
            shown.astype(jnp.float32),
            state.matcher[:, None].astype(jnp.float32),
            jnp.broadcast_to(time, (PLAYERS, 1)),
        ],
        axis=1,
    )


def split(row: Float[Array, " feature"]) -> dict[str, Array]:
    """`last`: the joint action as [own, other], all zero before the first round."""
    joint = NUM_ACTIONS**2
    return {
        "last": row[:joint].reshape(NUM_ACTIONS, NUM_ACTIONS),
        "none_yet": row[joint],
        "matcher": row[joint + 1],
        "time": row[joint + 2 :],
    }


def draw(state: MatrixState) -> Picture:
    """A row for each player, a column for each action; players stand on what they played last."""
    rows = jnp.arange(PLAYERS)
    played = state.last != NONE_YET
    return Picture(
        grid=jnp.array([PLAYERS, NUM_ACTIONS]),
        cells={},
        players=grid.cells_or_nowhere(rows * NUM_ACTIONS + state.last, played, NUM_ACTIONS),
    )


# --- what the game declares ----------------------------------------------------------------------


def _mean_payoffs(game: Game) -> np.ndarray:
    """[own, other]: what the two earn on average."""
    payoffs = np.reshape(game.payoffs, (NUM_ACTIONS, NUM_ACTIONS))
    return 0 * payoffs if game.has_roles else (payoffs + payoffs.T) / 2


def _expected_rounds(config: MatrixConfig) -> float:
    p = config.continue_probability
    return float(config.rounds) if p is None else (1 - p**SAFETY_STOP) / (1 - p)
