"""A critic whose last layer the context moves: what it starts as, where it is read, and what it moves."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.algorithms.actor_critic import to_columns
from coplay.algorithms.targets import Round, _column_memory, _last_values, _values
from coplay.envs import make_game
from coplay.training.rollout import collect, start_playing
from tests.algorithms.generated import ENVS, LENGTH, TIME, batch_of, config, loss_of, loud, parts, played

CONTEXTS = {
    "identity": {},
    "local": {"context": "local_history", "history_reads": ("observation", "reward")},
    "joint": {"context": "joint", "history_reads": ("observation", "reward")},
}
MOVED = {"generated_critic": "last_layer"}


@pytest.fixture(scope="module")
def env():
    return make_game("specialisation", num_agents=4, rounds=9)  # longer than a round of play


def batch_with(env, settings, change=lambda params: params):
    """What is learned from, and the weights."""
    model, _, algorithm = parts(env, settings)
    params = change(algorithm.init(jax.random.key(0)))
    batch = batch_of(env, settings, params, played(env, algorithm, params))
    weights = {name: params.common["group"][name] for name in model.networks}
    return batch, weights


@pytest.mark.parametrize("changes", CONTEXTS.values(), ids=CONTEXTS)
def test_it_starts_as_the_plain_critic(env, changes):
    plain, _ = batch_with(env, config(**changes))
    moved, _ = batch_with(env, config(**MOVED, **changes))
    for name in ("value", "target"):
        assert_allclose(getattr(moved, name), getattr(plain, name), atol=1e-5)
    assert_allclose(moved.policy.advantage, plain.policy.advantage, atol=1e-4)


@pytest.mark.parametrize("changes", CONTEXTS.values(), ids=CONTEXTS)
def test_what_its_heads_say_reaches_values_and_learning_and_not_play(env, changes):
    settings = config(**MOVED, **changes)
    poisoned, _ = batch_with(env, settings, lambda params: loud(params, jnp.nan, of=("critic_generator",)))
    assert np.isnan(poisoned.value).all() and np.isnan(poisoned.target).all()
    assert np.isfinite(poisoned.policy.log_prob).all()
    batch, weights = batch_with(env, settings)
    loss = jax.jit(loss_of(env, settings))
    spoilt = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), weights["critic_generator"])
    assert np.isfinite(loss(weights, batch))
    assert np.isnan(loss(weights | {"critic_generator": spoilt}, batch))


@pytest.mark.parametrize("changes", CONTEXTS.values(), ids=CONTEXTS)
def test_what_the_critic_learns_does_not_move_the_context(env, changes):
    # advantages of zero leave nothing but the critic's own loss
    bare = {"entropy_weight": 0.0, "smooth_weight": 0.0, "align_weight": 0.0}
    settings = config(**MOVED, **bare, **changes)
    batch, weights = batch_with(env, settings, loud)
    rows = dataclasses.replace(batch.policy, advantage=jnp.zeros_like(batch.policy.advantage))
    worthless = dataclasses.replace(batch, policy=rows)
    gradient = jax.jit(jax.grad(loss_of(env, settings)))(weights, worthless)
    assert not any(x.any() for x in jax.tree.leaves(gradient["generator"]))
    assert all(x.any() for x in jax.tree.leaves(gradient["critic_generator"]))


@pytest.mark.parametrize("changes", CONTEXTS.values(), ids=CONTEXTS)
def test_values_at_a_cut_and_at_the_end_of_a_round_are_read_as_within_it(env, changes):
    settings = config(**MOVED, **changes)
    model, _, algorithm = parts(env, settings)
    params = loud(algorithm.init(jax.random.key(0)))

    @jax.jit
    def two_rounds(params):
        actor = start_playing(env, algorithm, jax.random.key(1), ENVS)
        actor, one, *_ = collect(env, algorithm, params, actor, jax.random.key(2), LENGTH, LENGTH)
        _, two, *_ = collect(env, algorithm, params, actor, jax.random.key(3), LENGTH, LENGTH)
        values = [value_of(env, model, params, each)[0] for each in (one, two)]
        return one, values, _last_values(model, params, one)

    one, values, at_end = two_rounds(params)
    assert_allclose(at_end, values[1][0], atol=1e-5)

    # Told that it was cut after every step, the critic looks at what came next and sees what it saw there.
    after = dataclasses.replace(
        one.steps.after,
        truncated=jnp.ones_like(one.steps.after.truncated),
        terminated=jnp.zeros((4, 6, 4), bool),
    )
    cut = dataclasses.replace(one, steps=dataclasses.replace(one.steps, after=after))
    cutting = dataclasses.replace(env, can_truncate=True)
    _, at_cut = jax.jit(lambda params, cut: value_of(cutting, model, params, cut))(params, cut)
    assert_allclose(at_cut[:-1], values[0][1:], atol=1e-5)
    assert_allclose(at_cut[-1], values[1][0], atol=1e-5)
    assert np.ptp(values[0]) > 1e-3


def value_of(env, model, params, trajectory):
    """[time, env, seat]: predicted before each step, and after it."""
    time = trajectory.steps.before.first.shape[0]
    round_of_play = Round(model, trajectory, time)
    seen = round_of_play.columns(
        model.views["critic"](trajectory.steps.before, trajectory.steps.decision.notes, model.seats, params)
    )
    return _values(env, round_of_play, params, _column_memory(model, trajectory), seen)[1:]


def test_it_learns_at_the_generators_rate_and_is_told_apart(env):
    settings = config(**MOVED, generator_rate=1e-3, learning_rate=5e-4)
    _, extra, algorithm = parts(env, settings)
    assert extra.rates == {"generator": 1e-3, "critic_generator": 1e-3}
    params = algorithm.init(jax.random.key(0))
    update = jax.jit(algorithm.learn.update)
    _, _, figures = update(
        params, algorithm.learn.init(params), played(env, algorithm, params), jax.random.key(0)
    )
    assert float(figures["critic_generator/grad_norm"]) > 0


def test_the_critic_still_sees_what_all_see(env):
    # a NaN in what player 1 sees reaches every player's value and, by identity, no other player's policy
    settings = config(**MOVED)
    model, _, algorithm = parts(env, settings)
    params = algorithm.init(jax.random.key(0))
    trajectory = played(env, algorithm, params)
    seen = trajectory.steps.before.observation.at[:, :, 1].set(jnp.nan)
    rows = model.views["critic"](
        dataclasses.replace(trajectory.steps.before, observation=seen), (), model.seats, params
    )
    assert np.isnan(np.asarray(to_columns(rows, TIME))).any(axis=-1).all()
