"""Random play to look at: moments of it, returns of whole episodes, and starts, each by one program."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from coplay.audit.captured import quick
from coplay.envs import grid
from coplay.envs.contract import random_legal
from coplay.training.rollout import is_over, reset_finished
from coplay.types import Environment, EnvState, Key, TimeStep, stream

GAMES = 128  # side by side, for moments
BLOCK = 4096  # episodes side by side


class Moments(NamedTuple):
    """Steps of random play, [moment, ...]; the last of its legal actions is what an eager player takes, so
    that several often want the same."""

    state: EnvState
    before: TimeStep
    action: Int[Array, "moment agent"]
    key: Key  # of the step
    next_state: EnvState
    after: TimeStep


def moments(env: Environment, count: int, key: Key) -> Moments:
    """So many (rounded up to whole rounds of 128 games), everyone eager in half of its moves."""

    def one_step(carry, key):
        state, before = carry
        action = _half_eager(before.legal, stream(key, "act"))
        keys = jax.random.split(stream(key, "step"), GAMES)
        next_state, after = jax.vmap(env.step)(state, action, keys)
        resets = jax.random.split(stream(key, "reset"), GAMES)
        carry = reset_finished(env, next_state, after, is_over(after), resets)
        return carry, Moments(state, before, action, keys, next_state, after)

    def walk(key: Key) -> Moments:
        start = jax.vmap(env.reset)(jax.random.split(stream(key, "start"), GAMES))
        walked = jax.lax.scan(one_step, start, jax.random.split(key, -(-count // GAMES)))[1]
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), walked)

    return quick(walk)(key)


def _half_eager(legal: Bool[Array, "game agent action"], key: Key) -> Int[Array, "game agent"]:
    games, agents, actions = legal.shape
    words = grid.random_words(key, 2 * games * agents).reshape(2, games, agents)
    drawn = jax.vmap(random_legal)(legal, words[0])
    last = actions - 1 - jnp.argmax(legal[..., ::-1], axis=-1).astype(jnp.int32)
    return jnp.where(words[1] >> 31 == 0, drawn, last)


def random_returns(env: Environment, episodes: int, key: Key) -> np.ndarray:
    """What each player earned in whole episodes of uniform legal play, [episode, agent]."""
    blocks = -(-episodes // BLOCK)
    play = _block_of_returns(env)
    return np.concatenate([np.asarray(play(jax.random.fold_in(key, block))) for block in range(blocks)])


def _block_of_returns(env: Environment):
    def one_step(carry, key):
        state, timestep, earned, is_on = carry
        words = grid.random_words(stream(key, "act"), BLOCK * env.num_agents).reshape(BLOCK, env.num_agents)
        action = jax.vmap(random_legal)(timestep.legal, words)
        state, timestep = jax.vmap(env.step)(state, action, jax.random.split(stream(key, "step"), BLOCK))
        earned = earned + jnp.where(is_on[:, None], timestep.reward, 0.0)
        return (state, timestep, earned, is_on & ~is_over(timestep)), None

    @jax.jit
    def play(key: Key):
        state, timestep = jax.vmap(env.reset)(jax.random.split(stream(key, "start"), BLOCK))
        start = state, timestep, jnp.zeros((BLOCK, env.num_agents)), jnp.ones(BLOCK, bool)
        return jax.lax.scan(one_step, start, jax.random.split(key, env.horizon))[0][2]

    return play


def starts(reset: Callable, count: int, key: Key) -> tuple[EnvState, TimeStep]:
    """So many fresh games: states and what everyone sees, [game, ...]."""
    return jax.vmap(reset)(jax.random.split(key, count))
