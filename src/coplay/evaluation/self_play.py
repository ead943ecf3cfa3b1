"""Scores: every game plays one whole episode, so that short episodes are not counted more often."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coplay.training.rollout import is_over, start_playing
from coplay.types import (
    Algorithm,
    Environment,
    EnvState,
    Key,
    Params,
    TimeStep,
    Transition,
    as_played,
    pytree,
    stream,
)


@pytree
class Scores:
    """What one batch of episodes came to."""

    episode_return: Float[Array, "*seed game agent"]
    length: Float[Array, "*seed game"]
    outcomes: dict[str, Float[Array, "*seed game"]]


@pytree
class Moment:
    """One step of a watched game."""

    state: EnvState  # as the move left it
    action: jax.Array  # [game, agent]
    reward: jax.Array
    policy: jax.Array
    active: jax.Array
    goal: jax.Array | tuple[()]  # [game, agent] what each was after, () where nobody says
    belief: jax.Array | tuple[()]  # [game, agent, other, goal], () where nobody holds any
    playing: jax.Array  # [game]: the episode was not over yet


def play_episodes(env: Environment, algorithm: Algorithm, params: Params, key: Key, games: int) -> Scores:
    """One episode in each of `games` games."""

    def one_step(carry, key):
        carry, _ = _step(env, algorithm, params, carry, key)
        return carry, None

    carry = _start(env, algorithm, key, games)
    carry, _ = jax.lax.scan(one_step, carry, jax.random.split(stream(key, "play"), env.horizon))
    return carry["scores"]


def watch_episodes(env: Environment, algorithm: Algorithm, params: Params, key: Key, games: int):
    """The same episodes with everything that happened, [time, game, ...], and the states they began in."""

    def one_step(carry, key):
        return _step(env, algorithm, params, carry, key)

    carry = _start(env, algorithm, key, games)
    start = carry["env_state"]
    carry, moments = jax.lax.scan(one_step, carry, jax.random.split(stream(key, "play"), env.horizon))
    return carry["scores"], moments, start


def _start(env: Environment, algorithm: Algorithm, key: Key, games: int):
    actor = start_playing(env, algorithm, key, games)
    counts = jax.eval_shape(jax.vmap(env.outcomes), actor.env_state, actor.env_state)
    return {
        "memory": actor.memory,
        "env_state": actor.env_state,
        "timestep": actor.timestep,
        "over": jnp.zeros(games, bool),
        "scores": Scores(
            episode_return=jnp.zeros((games, env.num_agents)),
            length=jnp.zeros(games),
            outcomes={name: jnp.zeros(games) for name in counts},
        ),
    }


def _step(env: Environment, algorithm: Algorithm, params: Params, carry, key: Key):
    timestep: TimeStep = carry["timestep"]
    memory, decision = as_played(algorithm).act(
        params, carry["memory"], timestep, carry["env_state"], stream(key, "act")
    )
    keys = jax.random.split(stream(key, "step"), timestep.first.shape[0])
    env_state, after = jax.vmap(env.step)(carry["env_state"], decision.action, keys)
    memory = algorithm.watch(params, memory, Transition(before=timestep, decision=decision, after=after))
    playing = ~carry["over"]
    happened = jax.vmap(env.outcomes)(carry["env_state"], env_state)
    scores: Scores = carry["scores"]
    scores = Scores(
        episode_return=scores.episode_return + jnp.where(playing[:, None], after.reward, 0.0),
        length=scores.length + playing,
        outcomes={
            name: scores.outcomes[name] + jnp.where(playing, count, 0) for name, count in happened.items()
        },
    )
    moment = Moment(
        state=env_state,
        action=decision.action,
        reward=after.reward,
        policy=decision.policy,
        active=timestep.active,
        goal=decision.thoughts.goal,
        belief=decision.thoughts.belief,
        playing=playing,
    )
    carry = {
        "memory": memory,
        "env_state": env_state,
        "timestep": after,
        "over": carry["over"] | is_over(after),
        "scores": scores,
    }
    return carry, moment
