"""Bayes' rule worked by hand, goals that vanish, and what is kept between episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.opponents.belief import (
    BETWEEN,
    FLOOR,
    Episode,
    after_action,
    after_showing,
    floored,
    over_possible,
)
from coplay.opponents.goals import UNKNOWN


def test_a_belief_follows_bayes_rule():
    # Prior 0.5 each, likelihoods 0.8 and 0.2: posterior 0.8 and 0.2.
    policy = jnp.array([[0.8, 0.2], [0.2, 0.8]])
    posterior = jnp.exp(after_action(jnp.log(jnp.array([0.5, 0.5])), policy, jnp.int32(0)))
    assert_allclose(posterior, [0.8, 0.2], rtol=1e-6)


def test_a_belief_stays_put_when_every_goal_explains_the_action_equally():
    prior = jnp.log(jnp.array([0.7, 0.3]))
    policy = jnp.array([[0.6, 0.4], [0.6, 0.4]])
    assert_allclose(after_action(prior, policy, jnp.int32(1)), prior, rtol=1e-6)


def test_one_surprise_never_kills_a_goal():
    policy = floored(jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), jnp.array([True, True, False]))
    assert_allclose(policy, [[1 - FLOOR / 2, FLOOR / 2, 0.0], [FLOOR / 2, 1 - FLOOR / 2, 0.0]])
    posterior = jnp.exp(after_action(jnp.log(jnp.array([0.5, 0.5])), policy, jnp.int32(0)))
    assert posterior[1] > 0.005


def test_a_goal_whose_target_is_gone_is_believed_of_nobody():
    log_belief = jnp.log(jnp.array([0.9, 0.08, 0.02]))
    left = jnp.exp(over_possible(log_belief, jnp.array([False, True, True])))
    assert_allclose(left, [0.0, 0.8, 0.2], atol=1e-6)


def test_when_all_that_was_believed_is_gone_any_goal_left_is_as_likely():
    believed = jnp.array([0.0, -2e9, -2e9])
    assert_allclose(jnp.exp(over_possible(believed, jnp.array([False, True, True]))), [0, 0.5, 0.5])


def episode(label, posterior=(0.9, 0.1)):
    return Episode(jnp.int32(label), jnp.array(posterior), jnp.int32(label != UNKNOWN))


@pytest.mark.parametrize("rule", BETWEEN)
def test_the_first_prior_is_open_and_every_prior_adds_up(rule):
    between = BETWEEN[rule](3)
    kept = between.start()
    assert_allclose(between.prior(kept)[:2], between.prior(kept)[0])
    assert_allclose(jnp.sum(between.prior(kept)), 1.0, rtol=1e-6)
    for _ in range(5):
        kept = between.keep(kept, episode(1, (0.8, 0.1, 0.1)))
    assert_allclose(jnp.sum(between.prior(kept)), 1.0, rtol=1e-6)


def test_counters_count_with_a_slow_fade():
    # From 1 each: 0.995, 1.995 after one label of goal 1; then 0.990025, 2.985025.
    between = BETWEEN["counters"](2)
    kept = between.keep(between.keep(between.start(), episode(1)), episode(1))
    assert_allclose(kept, [0.990025, 2.985025], rtol=1e-6)
    assert_allclose(between.prior(kept)[1], 2.985025 / 3.97505, rtol=1e-6)


@pytest.mark.parametrize("rule", ["counters", "average"])
def test_an_episode_without_a_label_changes_nothing(rule):
    between = BETWEEN[rule](2)
    kept = between.keep(between.start(), episode(0))
    assert_allclose(between.keep(kept, episode(UNKNOWN)), kept)


def test_the_published_average_moves_by_two_percent():
    between = BETWEEN["average"](2)
    assert_allclose(between.keep(between.start(), episode(0)), [0.98 * 0.5 + 0.02, 0.98 * 0.5], rtol=1e-6)


def test_a_sticky_mind_starts_from_the_last_posterior_with_some_doubt():
    between = BETWEEN["sticky"](2)
    assert_allclose(between.prior(between.keep(between.start(), episode(0))), [0.86, 0.14], rtol=1e-6)


def test_a_long_memory_turns_slowly_and_a_sticky_one_at_once():
    def after_a_change(rule):
        between = BETWEEN[rule](2)
        kept = between.start()
        for _ in range(30):
            kept = between.keep(kept, episode(1, (0.1, 0.9)))
        return float(between.prior(between.keep(kept, episode(0, (0.9, 0.1))))[0])

    assert after_a_change("counters") < 0.15
    assert after_a_change("sticky") > 0.8


def test_beliefs_are_finite_whatever_is_seen():
    rng = np.random.default_rng(0)
    log_belief = jnp.log(jnp.array([0.5, 0.5]))
    for _ in range(200):
        policy = floored(jnp.eye(2)[rng.permutation(2)], jnp.ones(2, bool))
        log_belief = after_action(log_belief, policy, jnp.int32(rng.integers(2)))
        log_belief = over_possible(log_belief, jnp.asarray(rng.random(2) < 0.9))
    assert np.isfinite(log_belief).all()
    assert_allclose(jax.nn.logsumexp(log_belief), 0.0, atol=1e-5)


def test_removals_are_counted_from_a_poisson_start():
    between = BETWEEN["removal_count"](7)
    start = between.start()
    assert_allclose(start[1:5], [0.368, 0.184, 0.061, 0.015], atol=5e-4)
    assert_allclose(start.sum(), 1.0, rtol=1e-6)
    chance = float(start[1:].sum())
    assert_allclose(between.prior(start), [chance / 6] * 6 + [1 - chance], rtol=1e-5)
    kept = between.keep(start, Episode(jnp.int32(2), jnp.ones(7) / 7, jnp.int32(3)))
    assert_allclose(kept, 0.98 * start + np.eye(7)[3], rtol=1e-6)


def test_after_two_removals_a_third_comes_with_the_chance_of_more_than_two():
    between = BETWEEN["removal_count"](4)
    kept = jnp.array([0.4, 0.3, 0.2, 0.1])
    assert_allclose(between.again(kept, jnp.int32(2)), 0.1 / 0.3, rtol=1e-6)
    assert_allclose(between.again(kept, jnp.int32(3)), 0.0)


def test_after_a_goal_was_given_away_the_rest_is_shared_by_belief_over_what_is_left():
    belief = jnp.log(jnp.array([0.4, 0.3, 0.1, 0.2]))
    possible = jnp.array([False, True, True, True])  # the first was removed; the last is to do no more
    after = jnp.exp(after_showing(belief, possible, jnp.float32(0.6)))
    assert_allclose(after, [0.0, 0.45, 0.15, 0.4], atol=1e-6)
