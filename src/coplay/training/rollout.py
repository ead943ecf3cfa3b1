"""Play: every environment at once, `num_steps` long, with one place that handles an episode's end."""

import dataclasses

import jax
import jax.numpy as jnp

from coplay.training.devices import total
from coplay.types import (
    Actor,
    Algorithm,
    Environment,
    EnvState,
    Key,
    Metrics,
    Params,
    TimeStep,
    Trajectory,
    Transition,
    pytree,
    stream,
)


@pytree
class Tally:
    """Sums over a round: of the episodes that ended, and of the actions of players still in the game."""

    episode_return: jax.Array  # [agent]
    episode_length: jax.Array
    episodes: jax.Array
    actions: jax.Array  # [agent, action]


def collect(
    env: Environment,
    algorithm: Algorithm,
    params: Params,
    actor: Actor,
    key: Key,
    num_steps: int,
    sequence_length: int,
) -> tuple[Actor, Trajectory, Tally]:
    """Play `num_steps` in every environment; keep the memory each sequence started from."""

    def one_step(carry, key):
        actor, tally = carry
        actor, transition, ended = play_step(env, algorithm, params, actor, key)
        return (actor, _add(tally, ended, transition)), transition

    def one_sequence(carry, keys):
        memory = carry[0].memory
        carry, steps = jax.lax.scan(one_step, carry, keys)
        return carry, (steps, memory)

    keys = jax.random.split(key, (num_steps // sequence_length, sequence_length))
    actions = jnp.zeros((env.num_agents, env.num_actions), jnp.int32)
    tally = Tally(jnp.zeros(env.num_agents), jnp.int32(0), jnp.int32(0), actions)
    (actor, tally), (steps, memory) = jax.lax.scan(one_sequence, (actor, tally), keys)
    steps = jax.tree.map(lambda x: x.reshape(num_steps, *x.shape[2:]), steps)
    return actor, Trajectory(steps, memory, actor.timestep, actor.memory), tally


def play_step(env: Environment, algorithm: Algorithm, params: Params, actor: Actor, key: Key):
    """Act, step, watch, and start anew where a game is over."""
    num_envs = actor.timestep.first.shape[0]
    memory, decision = algorithm.act(
        params, actor.memory, actor.timestep, actor.env_state, stream(key, "act")
    )
    step_keys = jax.random.split(stream(key, "step"), num_envs)
    env_state, after = jax.vmap(env.step)(actor.env_state, decision.action, step_keys)
    states = (actor.env_state, env_state) if algorithm.reads_states else ()
    transition = Transition(actor.timestep, decision, after, *states)
    memory = algorithm.watch(params, memory, transition)
    ended = Ended(
        over=is_over(after),
        episode_return=actor.episode_return + after.reward,
        episode_length=actor.episode_length + 1,
    )
    reset_keys = jax.random.split(stream(key, "reset"), num_envs)
    env_state, timestep = reset_finished(env, env_state, after, ended.over, reset_keys)
    actor = Actor(
        memory=memory,
        env_state=env_state,
        timestep=timestep,
        episode_return=jnp.where(ended.over[:, None], 0.0, ended.episode_return),
        episode_length=jnp.where(ended.over, 0, ended.episode_length),
    )
    return actor, transition, ended


@pytree
class Ended:
    """Which games are over after a step, and what they came to (read only where `over`)."""

    over: jax.Array  # [env]
    episode_return: jax.Array  # [env, agent]
    episode_length: jax.Array  # [env]


def is_over(timestep: TimeStep) -> jax.Array:
    return timestep.truncated | jnp.all(timestep.terminated, axis=-1)


def reset_finished(
    env: Environment, state: EnvState, timestep: TimeStep, over: jax.Array, keys: Key
) -> tuple[EnvState, TimeStep]:
    """The one reset: where a game is over, a new one begins.

    Observations are made once, from the state that was chosen, rather than for both.
    """
    fresh_state, fresh = jax.vmap(env.reset)(keys)

    def choose(new, old):
        return jnp.where(over.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    state, timestep = jax.tree.map(choose, (fresh_state, fresh), (state, timestep))
    observation, legal = jax.vmap(env.view)(state)
    return state, dataclasses.replace(timestep, observation=observation, legal=legal)


def start_playing(env: Environment, algorithm: Algorithm, key: Key, num_envs: int) -> Actor:
    env_state, timestep = jax.vmap(env.reset)(jax.random.split(stream(key, "reset"), num_envs))
    return Actor(
        memory=algorithm.remember(num_envs),
        env_state=env_state,
        timestep=timestep,
        episode_return=jnp.zeros((num_envs, env.num_agents)),
        episode_length=jnp.zeros(num_envs, jnp.int32),
    )


def _add(tally: Tally, ended: Ended, transition: Transition) -> Tally:
    choices = jnp.arange(tally.actions.shape[-1])[None, None, :]
    taken = (transition.decision.action[..., None] == choices) & transition.before.active[..., None]
    return Tally(
        tally.episode_return + jnp.sum(jnp.where(ended.over[:, None], ended.episode_return, 0.0), axis=0),
        tally.episode_length + jnp.sum(jnp.where(ended.over, ended.episode_length, 0)),
        tally.episodes + jnp.sum(ended.over),
        tally.actions + jnp.sum(taken, axis=0),
    )


def describe(tally: Tally, action_names: tuple[str, ...]) -> Metrics:
    """Mean return and length of the episodes that ended (NaN where none did), and what players do."""
    tally = total(tally)
    episodes = tally.episodes.astype(jnp.float32)
    shares = tally.actions / jnp.sum(tally.actions, axis=-1, keepdims=True)
    return {f"action/{name}": shares[:, index] for index, name in enumerate(action_names)} | {
        "return": tally.episode_return / episodes,
        "length": tally.episode_length / episodes,
        "count/episodes": episodes,
    }
