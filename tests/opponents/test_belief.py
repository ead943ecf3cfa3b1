"""Bayes' rule worked by hand, and goals that vanish."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from coplay.opponents.belief import (
    FLOOR,
    after_action,
    after_showing,
    floored,
    over_possible,
    whim_after_action,
)

BOTH = jnp.array([True, True])


def test_a_belief_follows_bayes_rule():
    # Prior 0.5 each, likelihoods 0.8 and 0.2: posterior 0.8 and 0.2.
    policy = jnp.array([[0.8, 0.2], [0.2, 0.8]])
    posterior = jnp.exp(after_action(jnp.log(jnp.array([0.5, 0.5])), policy, BOTH, jnp.int32(0)))
    assert_allclose(posterior, [0.8, 0.2], rtol=1e-6)


def test_of_a_goal_that_cannot_be_had_nothing_is_learned():
    # Between the first two goals Bayes' rule holds: 0.1 * 0.8 to 0.2 * 0.2. The third keeps its 0.7.
    policy = jnp.array([[0.8, 0.2], [0.2, 0.8], [0.0, 1.0]])
    prior, possible = jnp.log(jnp.array([0.1, 0.2, 0.7])), jnp.array([True, True, False])
    posterior = jnp.exp(after_action(prior, policy, possible, jnp.int32(0)))
    assert_allclose(posterior, [0.3 * 8 / 12, 0.3 * 4 / 12, 0.7], rtol=1e-5)


def test_a_belief_stays_put_when_every_goal_explains_the_action_equally():
    prior = jnp.log(jnp.array([0.7, 0.3]))
    policy = jnp.array([[0.6, 0.4], [0.6, 0.4]])
    assert_allclose(after_action(prior, policy, BOTH, jnp.int32(1)), prior, rtol=1e-6)


def test_one_surprise_never_kills_a_goal():
    policy = floored(jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), jnp.array([True, True, False]))
    assert_allclose(policy, [[1 - FLOOR / 2, FLOOR / 2, 0.0], [FLOOR / 2, 1 - FLOOR / 2, 0.0]])
    posterior = jnp.exp(after_action(jnp.log(jnp.array([0.5, 0.5])), policy, BOTH, jnp.int32(0)))
    assert posterior[1] > 0.005


def test_who_does_what_no_goal_explains_acts_on_a_whim():
    # Wanting something, this action has chance 0.5 * 0.1 + 0.5 * 0.2 = 0.15; on a whim, one in three.
    policy = jnp.array([[0.1, 0.9, 0.0], [0.2, 0.1, 0.7]])
    believed = jnp.log(jnp.array([0.5, 0.5]))
    legal, action = jnp.ones(3, bool), jnp.int32(0)
    after = whim_after_action(jnp.float32(0.05), believed, policy, legal, action)
    assert_allclose(after, 0.05 / 3 / (0.05 / 3 + 0.95 * 0.15), rtol=1e-6)
    assert whim_after_action(jnp.float32(0.0), believed, policy, legal, action) == 0.0
    sure = jnp.float32(0.5)
    for _ in range(100):
        sure = whim_after_action(sure, believed, policy, legal, action)
    assert sure < 1.0
    goes_for_it = policy.at[0].set(jnp.array([1.0, 0.0, 0.0]))
    for _ in range(20):
        sure = whim_after_action(sure, jnp.log(jnp.array([0.99, 0.01])), goes_for_it, legal, action)
    assert sure < 0.01, "a mind can change back"


def test_a_goal_whose_target_is_gone_is_believed_of_nobody():
    log_belief = jnp.log(jnp.array([0.9, 0.08, 0.02]))
    left = jnp.exp(over_possible(log_belief, jnp.array([False, True, True])))
    assert_allclose(left, [0.0, 0.8, 0.2], atol=1e-6)


def test_when_all_that_was_believed_is_gone_any_goal_left_is_as_likely():
    believed = jnp.array([0.0, -2e9, -2e9])
    assert_allclose(jnp.exp(over_possible(believed, jnp.array([False, True, True]))), [0, 0.5, 0.5])


def test_beliefs_are_finite_whatever_is_seen():
    rng = np.random.default_rng(0)
    log_belief = jnp.log(jnp.array([0.5, 0.5]))
    for _ in range(200):
        policy = floored(jnp.eye(2)[rng.permutation(2)], jnp.ones(2, bool))
        possible = jnp.asarray(rng.random(2) < 0.9)
        log_belief = after_action(log_belief, policy, possible, jnp.int32(rng.integers(2)))
        assert np.isfinite(over_possible(log_belief, possible)).all()
    assert np.isfinite(log_belief).all()
    assert_allclose(jax.nn.logsumexp(log_belief), 0.0, atol=1e-5)


def test_after_a_goal_was_given_away_the_rest_is_shared_by_belief_over_what_is_left():
    belief = jnp.log(jnp.array([0.4, 0.3, 0.1, 0.2]))
    possible = jnp.array([False, True, True, True])  # the first was removed; the last is to do no more
    after = jnp.exp(after_showing(belief, possible, jnp.float32(0.6)))
    assert_allclose(after, [0.0, 0.45, 0.15, 0.4], atol=1e-6)
