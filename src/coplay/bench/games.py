"""How fast games step: with observations, resets and random players, many games at once."""

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, PartitionSpec

from coplay.bench.item import Item, seconds_of
from coplay.envs import make_game
from coplay.training.rollout import is_over, reset_finished
from coplay.types import Environment

GAMES, STEPS = 4096, 200


def stepping(name: str = "4h1s_4x4", observation: str = "entities") -> Item:
    """Joint steps per second of the stag hunt; every observation is summed into the result."""
    env = make_game(name, observation=observation)
    rate, plain = _best_rate(env)
    return Item(
        name="stepping",
        figure=rate,
        unit="joint steps/s",
        against="",
        ratio=None,
        details={"game": name, "observation": observation, "games": GAMES, "one_device": plain},
    )


def coin_game() -> Item:
    """The coin game against JaxMARL's, the same work: random players, observations summed, resets."""
    env = make_game("coin_game")
    if importlib.util.find_spec("jaxmarl") is None:
        rate, plain = _best_rate(env)
        return Item(
            "coin_game", rate, "joint steps/s", "JaxMARL is not installed", None, {"one_device": plain}
        )
    # One program on one device each, which may use every thread: the same terms for both.
    ours, theirs = _rates(_many_steps(*_ours(env, GAMES)), _many_steps(*_jaxmarl_coin_game()))
    details = {"jaxmarl": theirs, "games": GAMES}
    return Item("coin_game", ours, "joint steps/s", "JaxMARL's coin game", ours / theirs, details)


def _best_rate(env: Environment) -> tuple[float, float]:
    """On all devices or one, whichever is faster, and on one."""
    count = len(jax.devices())
    if count == 1:
        (plain,) = _rates(_many_steps(*_ours(env, GAMES)))
        return plain, plain
    plain, spread = _rates(_many_steps(*_ours(env, GAMES)), _many_steps_on_devices(env, count))
    return max(plain, spread), plain


def _rates(*calls: Callable[[], Any]) -> list[float]:
    """Joint steps per second of calls that make STEPS steps in GAMES games, taken in turn."""
    return [GAMES * STEPS / seconds for seconds in seconds_of(*calls)]


def _ours(env: Environment, games: int) -> tuple[Callable, Any]:
    """A step function over (state, timestep) of all games, and where it starts."""

    def step(carry, key):
        state, timestep = carry
        play_key, step_key, reset_key = jax.random.split(key, 3)
        action = uniform_legal(play_key, timestep.legal)
        state, after = jax.vmap(env.step)(state, action, jax.random.split(step_key, games))
        keys = jax.random.split(reset_key, games)
        carry = reset_finished(env, state, after, is_over(after), keys)
        return carry, jnp.sum(carry[1].observation) + jnp.sum(after.reward)

    return step, jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), games))


def uniform_legal(key, legal: jax.Array) -> jax.Array:
    """One legal action per row, each as likely as the others."""
    unit = jax.random.uniform(key, legal.shape[:-1])
    count = jnp.cumsum(legal, axis=-1, dtype=jnp.int32)
    chosen = jnp.floor(unit * count[..., -1]).astype(jnp.int32)
    return jnp.argmax(count > chosen[..., None], axis=-1).astype(jnp.int32)


def _many_steps(step: Callable, start: Any) -> Callable[[], Any]:
    @jax.jit
    def run(carry, key):
        carry, sums = jax.lax.scan(step, carry, jax.random.split(key, STEPS))
        return carry, jnp.sum(sums)

    return lambda: run(start, jax.random.key(1))


def _many_steps_on_devices(env: Environment, count: int) -> Callable[[], Any]:
    """The same games, an equal part of them on each device (as many devices as divide the games)."""
    count = max(n for n in range(1, count + 1) if GAMES % n == 0)
    step, start = _ours(env, GAMES // count)
    mesh = Mesh(jax.devices()[:count], ("device",), axis_types=(AxisType.Auto,))

    def run(carry, key):
        key = jax.random.fold_in(key, jax.lax.axis_index("device"))
        carry, sums = jax.lax.scan(step, carry, jax.random.split(key, STEPS))
        return carry, jnp.sum(sums)[None]

    part = PartitionSpec("device")
    sharded = jax.jit(
        jax.shard_map(run, mesh=mesh, in_specs=(part, PartitionSpec()), out_specs=part, check_vma=False)
    )
    whole = jax.tree.map(lambda x: jnp.concatenate([x] * count), start)
    return lambda: sharded(whole, jax.random.key(1))


def _jaxmarl_coin_game() -> tuple[Callable, Any]:
    import jaxmarl  # type: ignore[import-not-found]

    env: Any = jaxmarl.make("coin_game")

    def step(carry, key):
        state, _ = carry
        play_key, step_key = jax.random.split(key)
        action = jax.random.randint(play_key, (GAMES, 2), 0, 5)
        actions = {agent: action[:, i] for i, agent in enumerate(env.agents)}
        obs, state, reward, _, _ = jax.vmap(env.step)(jax.random.split(step_key, GAMES), state, actions)
        total = sum(jnp.sum(x) for x in jax.tree.leaves(obs)) + sum(jnp.sum(r) for r in reward.values())
        return (state, obs), total

    obs, state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), GAMES))
    # Two steps first: some of its types change after the first.
    carry = (state, obs)
    for seed in range(2):
        carry, _ = jax.jit(step)(carry, jax.random.key(seed))
    return step, carry
