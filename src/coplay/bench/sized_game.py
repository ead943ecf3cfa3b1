"""A game in which nothing counts but its sizes: as many players, features and actions as are asked for."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from coplay.types import Environment, Picture, TimeStep, plain_goals, pytree


@dataclasses.dataclass(frozen=True)
class Sizes:
    num_agents: int = 8
    features: int = 136
    num_actions: int = 14
    horizon: int = 100


@pytree
class Clock:
    time: Int[Array, ""]
    last: Int[Array, " agent"]  # what everyone did last


def make(**options) -> Environment:
    sizes = Sizes(**options)
    names = tuple(f"action {k + 1}" for k in range(sizes.num_actions))
    return Environment(
        name="sized_game",
        options=sizes,
        kind="cooperative",
        num_agents=sizes.num_agents,
        num_actions=sizes.num_actions,
        observation_size=sizes.features,
        action_names=names,
        neutral_action=0,
        goals=plain_goals(names, shown=lambda row, action, reward, after: action),
        horizon=sizes.horizon,
        reset=lambda key: _reset(sizes),
        step=lambda state, action, key: _step(sizes, state, action),
        rename=lambda state, order: dataclasses.replace(state, last=state.last[order]),
        view=lambda state: (_observe(sizes, state), _legal(sizes)),
        split=lambda row: {"row": row},
        draw=lambda state: _draw(sizes),
        outcomes=lambda before, after: {},
        reward_range=(0.0, 1.0),
    )


def _reset(sizes: Sizes) -> tuple[Clock, TimeStep]:
    state = Clock(jnp.int32(0), jnp.zeros(sizes.num_agents, jnp.int32))
    return state, _look(sizes, state, jnp.zeros(sizes.num_agents), first=True)


def _step(sizes: Sizes, state: Clock, action: Int[Array, " agent"]) -> tuple[Clock, TimeStep]:
    state = Clock(state.time + 1, action)
    return state, _look(sizes, state, (action == 0).astype(jnp.float32), first=False)


def _look(sizes: Sizes, state: Clock, reward: Float[Array, " agent"], first: bool) -> TimeStep:
    is_over = jnp.broadcast_to(state.time >= sizes.horizon, (sizes.num_agents,))
    return TimeStep(
        observation=_observe(sizes, state),
        legal=_legal(sizes),
        reward=reward,
        active=~is_over,
        terminated=is_over,
        truncated=jnp.bool_(False),
        first=jnp.bool_(first),
    )


def _observe(sizes: Sizes, state: Clock) -> Float[Array, "agent feature"]:
    """Waves of the clock and of what one did, so that no program can work them out beforehand."""
    phase = (state.time + state.last).astype(jnp.float32)
    return jnp.sin(phase[:, None] * jnp.arange(1.0, sizes.features + 1)[None, :])


def _legal(sizes: Sizes):
    return jnp.ones((sizes.num_agents, sizes.num_actions), bool)


def _draw(sizes: Sizes) -> Picture:
    return Picture(grid=jnp.array([1, 1]), cells={}, players=jnp.zeros((sizes.num_agents, 2), jnp.int32))
