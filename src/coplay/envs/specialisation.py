"""Specialisation: as many tasks as players, and it pays to do what nobody else does.

The smallest game that tells whether learners act differently: in one round, players who share a
policy and do not know who they are can earn 1 - (1 - 1/n)^n at best, and players who differ earn 1.
"""

import dataclasses
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.envs import grid
from coplay.errors import require
from coplay.types import Environment, Picture, TimeStep, plain_goals, pytree

NONE_YET = -1  # as the last action, before the first round


@dataclasses.dataclass(frozen=True)
class SpecialisationConfig:
    num_agents: int = 4  # players, and tasks to choose from; 2 to 16
    rounds: int = 1  # with more, even a shared policy can sort itself out
    reward: Literal["own", "shared"] = "own"  # 1 / (players on one's task), or distinct tasks / players

    def __post_init__(self):
        require(2 <= self.num_agents <= 16, f"num_agents={self.num_agents} must lie between 2 and 16")
        require(self.rounds >= 1, f"rounds={self.rounds} must be at least 1")
        require(self.reward in ("own", "shared"), f"reward={self.reward!r} must be 'own' or 'shared'")


@pytree
class SpecialisationState:
    last: Int[Array, " agent"]  # the task each chose last, or NONE_YET
    time: Int[Array, ""]


def make(**options) -> Environment:
    config = SpecialisationConfig(**options)
    players = config.num_agents
    names = tuple(f"task {k + 1}" for k in range(players))
    counts = range(1, players + 1)
    return Environment(
        name="specialisation",
        options=config,
        kind="mixed-motive" if config.reward == "own" else "cooperative",
        num_agents=players,
        num_actions=players,
        observation_size=2 * players + 1,
        action_names=names,
        neutral_action=0,
        goals=plain_goals(names, shown=lambda row, action, reward, after: action),
        horizon=config.rounds,
        reset=lambda key: reset(config),
        step=lambda state, action, key: step(config, state, action),
        rename=rename,
        view=lambda state: (_observe(config, state), _legal(config)),
        split=lambda row: split(config, row),
        draw=lambda state: draw(config, state),
        outcomes=lambda before, after: {"distinct": jnp.sum(_players_on(config, after.last) > 0)},
        reward_values=tuple(1 / k if config.reward == "own" else k / players for k in counts),
        ceiling=float(config.rounds),
        starts=1,
        pays=(("distinct", 1.0),),
        random_return=config.rounds * (1 - (1 - 1 / players) ** players),
    )


def step(
    config: SpecialisationConfig, state: SpecialisationState, action: Int[Array, " agent"]
) -> tuple[SpecialisationState, TimeStep]:
    action = jnp.where((action >= 0) & (action < config.num_agents), action, 0)
    after = SpecialisationState(last=action, time=state.time + 1)
    return after, _look(config, after, _reward(config, action), first=False)


def _reward(config: SpecialisationConfig, action: Int[Array, " agent"]) -> Float[Array, " agent"]:
    if config.reward == "own":
        return 1.0 / jnp.sum(action[:, None] == action[None, :], axis=1)
    distinct = jnp.sum(_players_on(config, action) > 0)
    return jnp.broadcast_to(distinct / config.num_agents, (config.num_agents,))


def _players_on(config: SpecialisationConfig, action: Int[Array, " agent"]) -> Int[Array, " task"]:
    return jnp.sum(action[:, None] == jnp.arange(config.num_agents)[None, :], axis=0)


def reset(config: SpecialisationConfig) -> tuple[SpecialisationState, TimeStep]:
    state = SpecialisationState(last=jnp.full(config.num_agents, NONE_YET, jnp.int32), time=jnp.int32(0))
    return state, _look(config, state, jnp.zeros(config.num_agents), first=True)


def rename(state: SpecialisationState, order: Int[Array, " agent"]) -> SpecialisationState:
    """The same game with other names: new seat i is the old seat order[i]."""
    return dataclasses.replace(state, last=state.last[order])


def _look(config: SpecialisationConfig, state: SpecialisationState, reward, first: bool) -> TimeStep:
    over = jnp.broadcast_to(state.time >= config.rounds, (config.num_agents,))
    return TimeStep(
        observation=_observe(config, state),
        legal=_legal(config),
        reward=reward,
        active=~over,
        terminated=over,
        truncated=jnp.bool_(False),
        first=jnp.bool_(first),
    )


def _legal(config: SpecialisationConfig) -> Bool[Array, "agent action"]:
    return jnp.ones((config.num_agents, config.num_agents), bool)


# --- what players see ---------------------------------------------------------------------------


def _observe(config: SpecialisationConfig, state: SpecialisationState) -> Float[Array, "agent feature"]:
    """One's own last task, the share of players on each task, the time. Nothing says who one is."""
    players = config.num_agents
    own = (state.last[:, None] == jnp.arange(players)[None, :]).astype(jnp.float32)
    share = _players_on(config, state.last) / players
    return jnp.concatenate(
        [
            own,
            jnp.broadcast_to(share[None, :], (players, players)),
            jnp.broadcast_to(state.time / config.rounds, (players, 1)),
        ],
        axis=1,
    )


def split(config: SpecialisationConfig, row: Float[Array, " feature"]) -> dict[str, Array]:
    players = config.num_agents
    return {"own": row[:players], "share": row[players:-1], "time": row[-1:]}


def draw(config: SpecialisationConfig, state: SpecialisationState) -> Picture:
    """A row for each player, a column for each task; players stand on what they chose last."""
    players = config.num_agents
    chose = state.last != NONE_YET
    return Picture(
        grid=jnp.array([players, players]),
        cells={},
        players=grid.cells_or_nowhere(jnp.arange(players) * players + state.last, chose, players),
    )
