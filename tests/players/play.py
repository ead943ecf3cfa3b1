"""Plays many games at once with given players, and keeps what a test asks for.

These programs run once, so that compiling them costs more than running them: they are compiled in haste.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from coplay.players.scripted import PlayerRows, bayes_filter, machine, no_goal, scripted
from coplay.types import Decision, Transition


def play(env, seated, num_envs, num_steps, key, keep, again=False):
    """`keep(transition, alive, memories)` of every step, stacked [time, ...].

    `seated` maps seats to an Algorithm that plays them. `alive` [env] says whether the game was still on
    before the step. With `again`, a finished game starts anew and its players remember each other.
    """
    return _compiled(env, tuple(seated.items()), num_envs, num_steps, keep, again)(key)


@functools.lru_cache(maxsize=64)
def _compiled(env, seated, num_envs, num_steps, keep, again):
    order = np.argsort(np.concatenate([seats for seats, _ in seated]))
    players = [algorithm for _, algorithm in seated]

    def reset(key):
        return jax.vmap(env.reset)(jax.random.split(key, num_envs))

    def act(params, memories, timestep, state, key):
        acted = [
            player.act(param, memory, timestep, state, jax.random.fold_in(key, i))
            for i, (player, param, memory) in enumerate(zip(players, params, memories, strict=True))
        ]
        decisions = [decision for _, decision in acted]
        joined = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1)[:, order], *decisions)
        return [memory for memory, _ in acted], Decision(joined.action, joined.log_prob, joined.policy)

    def step(params, carry, key):
        memories, state, timestep = carry
        memories, decision = act(params, memories, timestep, state, key)
        step_keys = jax.random.split(jax.random.fold_in(key, 101), num_envs)
        state, after = jax.vmap(env.step)(state, decision.action, step_keys)
        transition = Transition(timestep, decision, after)
        alive = jnp.any(timestep.active, axis=1) & ~timestep.truncated
        kept = keep(transition, alive, memories)
        memories = [
            player.watch(param, memory, transition)
            for player, param, memory in zip(players, params, memories, strict=True)
        ]
        if again:
            over = ~jnp.any(after.active, axis=1) | after.truncated
            state, after = _where(over, reset(jax.random.fold_in(key, 102)), (state, after))
        return (memories, state, after), kept

    def run(key, start):
        params = [player.init(key) for player in players]
        memories = [player.remember(num_envs) for player in players]
        keys = jax.random.split(key, num_steps)
        return jax.lax.scan(lambda carry, key: step(params, carry, key), (memories, *start), keys)[1]

    begin = compiled(reset)
    go_on = compiled(run, optimised=num_envs * num_steps > 50_000)
    return lambda key: go_on(jax.random.fold_in(key, 1), begin(key))


def _where(over, new, old):
    return jax.tree.map(lambda n, o: jnp.where(over.reshape(-1, *[1] * (n.ndim - 1)), n, o), new, old)


@functools.cache
def compiled(function, optimised=False):
    """In a third of the usual time, but ten times slower to run; `optimised`: in two thirds, and as fast."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": int(optimised)})


def policy_of(player, timestep, latent=0, seat=0):
    """What the player would do in that seat of one game."""
    rows = timestep.observation[seat], timestep.legal[seat]
    return np.asarray(compiled(player.policy)(jnp.int32(latent), *rows))


def keep_reward(transition, alive, memories):
    return jnp.where(alive[:, None], transition.after.reward, 0.0)


def keep_all(transition, alive, memories):
    return transition, alive, memories


def returns(env, seated, num_envs, key):
    """The return of every player in one episode, [env, agent]."""
    return np.asarray(play(env, seated, num_envs, env.horizon, key, keep_reward).sum(0), np.float64)


def returns_of_casts(env, players, casts, episodes, key):
    """The returns [cast, episode, agent] of several casts of one-latent players, in one program.

    `casts` [cast, seat] says which of `players` sits where: who plays is the latent state of one player.
    """
    kinds = np.repeat(np.array(casts), episodes, axis=0)
    seats = tuple(range(env.num_agents))
    anyone = machine(
        "anyone",
        start=[1 / len(players)] * len(players),
        policy=lambda latent, row, legal: jnp.stack([p.policy(0, row, legal) for p in players])[latent],
        advance=lambda latent, before, after: jax.nn.one_hot(latent, len(players)),
        goal=no_goal,
    )
    algorithm = scripted(anyone, env, seats)

    def remember(num_envs):
        return dataclasses.replace(algorithm.remember(num_envs), upcoming=jax.nn.one_hot(kinds, len(players)))

    earned = returns(env, {seats: algorithm._replace(remember=remember)}, len(kinds), key)
    return earned.reshape(len(casts), episodes, env.num_agents)


def guess(players, transition):
    """The filter for every seat of every game, all of `players` being equally likely at first."""
    before = transition.before
    rows = PlayerRows(
        observation=before.observation,
        legal=before.legal,
        action=transition.decision.action,
        after=transition.after.observation,
        active=before.active,
        first=jnp.broadcast_to(before.first[..., None], before.active.shape),
    )
    one = functools.partial(bayes_filter, players, jnp.ones(len(players)))
    return compiled(jax.vmap(jax.vmap(one, 1, 1), 1, 1))(rows)


def assert_mean(values, expected, floor=0.02):
    """Mean of independent values, within 4 standard errors of it or `floor`, if that is larger."""
    values = np.asarray(values, np.float64)
    error = values.std(ddof=1) / np.sqrt(len(values))
    assert abs(values.mean() - expected) <= max(4 * error, floor), (
        f"mean {values.mean():.3f} +- {error:.3f}, expected {expected}"
    )
