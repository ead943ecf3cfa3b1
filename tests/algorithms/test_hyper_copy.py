"""A copy of the generator: when it is made anew, and what it means that it plays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.algorithms.hyper_config import HyperMAPPOConfig
from coplay.algorithms.losses import PolicyRows, clipped_policy_loss
from coplay.experiment import with_overrides
from coplay.players.frozen import greedy
from tests.algorithms.generated import (
    batch_of,
    config,
    first_policy,
    game_for,
    learned,
    loud,
    parts,
    played,
    ratio,
)
from tests.small import same_bits, small


@pytest.fixture(scope="module")
def env():
    return game_for({})


def test_the_copy_changes_only_when_it_is_due(env):
    _, _, algorithm = parts(env, config(target="anchor", target_every=3, explore=0.2))
    params = algorithm.init(jax.random.key(0))
    after = [params, *learned(algorithm, params, played(env, algorithm, params), updates=6)]
    copies = [np.asarray(each.common["group"]["target"]["generator"].heads.weight) for each in after]
    assert not copies[2].any() and copies[3].any()
    assert_array_equal(copies[3], after[3].common["group"]["generator"].heads.weight)
    assert_array_equal(copies[5], copies[3])
    # less is explored, and nothing after half of ten updates
    shares = [float(each.own["seat"]["exploring"][0]) for each in after]
    assert_allclose(shares, [0.2, 0.16, 0.12, 0.08, 0.04, 0.0, 0.0], atol=1e-6)


@pytest.mark.parametrize(("target", "is_held"), [("anchor", True), ("none", False)])
def test_an_anchor_holds_on_to_the_copy_and_without_one_play_holds_on_to_itself(env, target, is_held):
    settings = config(target=target, target_every=10, generator_rate=0.05)
    _, extra, algorithm = parts(env, settings)
    params = algorithm.init(jax.random.key(0))
    later = learned(algorithm, params, played(env, algorithm, params), updates=2)[-1]
    batch = batch_of(env, settings, later, played(env, algorithm, later))
    aligned = jax.jit(lambda weights: extra.speak(weights, batch)[1]["align"])
    align = float(aligned(later.common["group"]))  # before this update's first step
    assert align > 1e-2 if is_held else abs(align) < 1e-4, align


@pytest.mark.parametrize("changes", [{}, {"context": "local_history"}], ids=["identity", "local"])
def test_a_copy_that_plays_is_caught_up_with_at_a_sync_and_left_behind_after(env, changes):
    settings = config(target="act", target_every=2, **changes)
    _, extra, algorithm = parts(env, settings)
    params = algorithm.init(jax.random.key(0))
    after = [params, *learned(algorithm, params, played(env, algorithm, params), updates=3)]
    ratios, furthest = jax.jit(lambda weights, batch: ratio(extra, weights, batch)), []
    for now in after:
        batch = batch_of(env, settings, now, played(env, algorithm, now))
        furthest.append(float(jnp.max(jnp.abs(ratios(now.common["group"], batch) - 1.0))))
    assert furthest[0] < 1e-5 and furthest[2] < 1e-5, f"ratios where the copy is new: {furthest}"
    assert furthest[1] > 1e-4 and furthest[3] > 1e-4, f"ratios where the copy is old: {furthest}"


def test_between_syncs_play_stands_still_while_its_weights_learn(env):
    _, _, algorithm = parts(env, config(target="act", target_every=3))
    params = algorithm.init(jax.random.key(0))
    first, second, synced = learned(algorithm, params, played(env, algorithm, params), updates=3)
    for later in (first, second):
        assert same_bits(later.common["group"]["target"], params.common["group"]["target"])
        assert not same_bits(later.common["group"]["policy"], params.common["group"]["policy"])
    for name in ("policy", "generator"):
        assert same_bits(synced.common["group"]["target"][name], synced.common["group"][name])


def test_the_copy_plays_and_is_scored_and_what_learns_is_not(env):
    _, _, algorithm = parts(env, config(target="act", target_every=2))
    params = algorithm.init(jax.random.key(0))
    for of, is_heard in (("target", True), ("generator", False)):
        spoilt = loud(params, jnp.nan, of=(of,))
        log_prob = np.asarray(played(env, algorithm, spoilt).steps.decision.log_prob)
        scored = first_policy(env, greedy(algorithm), spoilt)
        assert np.isnan(log_prob).all() == np.isnan(log_prob).any() == is_heard
        assert np.isnan(scored).any() == is_heard


def test_drift_is_told_of_the_copy_that_plays(env):
    _, _, algorithm = parts(env, config(target="act", target_every=2))
    params = algorithm.init(jax.random.key(0))
    trajectory, learner = played(env, algorithm, params), algorithm.learn.init(params)
    told, update = [], jax.jit(algorithm.learn.update)
    for key in range(2):
        params, learner, figures = update(params, learner, trajectory, jax.random.key(key))
        told.append(figures)
    assert_array_equal(told[0]["drift/kl"], 0.0)
    assert float(told[0]["hyper/lag"]) > 1e-6
    # at a sync the copy moves by all that was learned since the last
    assert_allclose(jnp.mean(told[1]["drift/kl"]), told[1]["hyper/lag"], rtol=1e-5)


def test_what_a_negative_advantage_costs_ends_at_three_times_it():
    # ratios 5, 5 and 0.2; advantages -1, +1 and -1
    # min(-5, -1.2) = -5, floored at -3; min(5, 1.2) = 1.2; min(-0.2, -0.8) = -0.8: together -2.6
    rows = PolicyRows(
        legal=jnp.ones((3, 2), bool),
        action=jnp.zeros(3, jnp.int32),
        log_prob=jnp.log(0.5) - jnp.log(jnp.array([5.0, 5.0, 0.2])),
        advantage=jnp.array([-1.0, 1.0, -1.0]),
        counts=jnp.ones(3, bool),
    )
    loss = clipped_policy_loss(jnp.zeros((3, 2)), rows, 0.2, floor=3.0)[0]
    assert_allclose(loss, 2.6, rtol=1e-6)
    assert_allclose(clipped_policy_loss(jnp.zeros((3, 2)), rows, 0.2)[0], 4.6, rtol=1e-6)


@pytest.mark.parametrize("target", ["none", "anchor", "act"])
def test_what_a_copy_is_for_is_read_from_text(target):
    given = {"hyper_mappo.target": target, "hyper_mappo.target_every": "3"}
    settings = with_overrides(small("hyper_mappo_4h1s_4x4"), given).hyper_mappo
    assert (settings.target, settings.target_every) == (target, 3)


def test_only_where_the_copy_plays_is_the_cost_bounded():
    assert HyperMAPPOConfig(target="act", target_every=4).surrogate_floor == 3.0
    assert HyperMAPPOConfig(target="anchor").surrogate_floor is None
    assert HyperMAPPOConfig(target="act", context="none").surrogate_floor is None
