"""Loss terms against sums worked by hand."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.algorithms import value_scale
from coplay.algorithms.losses import PolicyRows, clipped_policy_loss, clipped_value_loss, log_policy
from coplay.algorithms.rewards import mixed


def rows(advantage, log_prob, counts=(True, True)):
    return PolicyRows(
        legal=jnp.array([[True, True, False], [True, True, False]]),
        action=jnp.array([0, 1], jnp.int32),
        log_prob=jnp.array(log_prob, jnp.float32),
        advantage=jnp.array(advantage, jnp.float32),
        counts=jnp.array(counts),
    )


def test_illegal_actions_have_no_probability():
    policy = jnp.exp(log_policy(jnp.array([0.0, 0.0, 50.0]), jnp.array([True, True, False])))
    assert_allclose(policy, [0.5, 0.5, 0.0], atol=1e-7)


def test_an_unchanged_policy_has_ratio_one_and_no_divergence():
    loss, entropy, figures = clipped_policy_loss(jnp.zeros((2, 3)), rows([1.0, 3.0], np.log([0.5, 0.5])), 0.2)
    assert_allclose(loss, -4.0)  # -(1*1 + 1*3)
    assert_allclose(entropy, 2 * np.log(2), rtol=1e-6)
    assert_allclose(
        [figures["policy/ratio"], figures["policy/kl"], figures["policy/clip_share"]], [2, 0, 0], atol=1e-6
    )


def test_the_gain_of_a_larger_step_is_clipped_and_its_loss_is_not():
    # both actions are now twice as likely as when taken: ratio 2, clipped to 1.2
    # advantage +1 earns min(2, 1.2) = 1.2; advantage -1 costs min(-2, -1.2) = -2
    loss, _, figures = clipped_policy_loss(jnp.zeros((2, 3)), rows([1.0, -1.0], np.log([0.25, 0.25])), 0.2)
    assert_allclose(loss, -(1.2 - 2.0), rtol=1e-6)
    assert_allclose(figures["policy/clip_share"], 2)


def test_rows_of_the_departed_count_nowhere_even_when_they_are_nan():
    counted = rows([1.0, np.nan], [np.log(0.5), np.nan], counts=(True, False))
    loss, entropy, figures = clipped_policy_loss(jnp.zeros((2, 3)), counted, 0.2)
    assert_allclose([loss, entropy], [-1.0, np.log(2)], rtol=1e-6)
    assert all(np.isfinite(figure) for figure in figures.values())


def test_value_errors_grow_in_proportion_beyond_huber():
    # error 1: 0.5; error 4 with huber 2: 2 * (4 - 1) = 6
    loss = clipped_value_loss(jnp.array([1.0, 4.0]), jnp.zeros(2), jnp.zeros(2), jnp.ones(2, bool), None, 2.0)
    assert_allclose(loss, 6.5)


def test_a_value_that_jumped_is_charged_the_worse_error():
    # moved from 0 to 1 (the target): clipped to 0.2, whose error 0.5*0.64 = 0.32 is the worse one
    loss = clipped_value_loss(jnp.array([1.0]), jnp.zeros(1), jnp.ones(1), jnp.ones(1, bool), 0.2, None)
    assert_allclose(loss, 0.32, rtol=1e-6)


@pytest.mark.parametrize(("share", "expected"), [(0.0, [4.0, 0.0]), (1.0, [2.0, 2.0]), (0.5, [3.0, 1.0])])
def test_learning_reward_mixes_own_and_team(share, expected):
    assert_allclose(mixed(jnp.array([4.0, 0.0]), share), expected)


def test_the_teams_mean_is_the_same_to_the_bit_under_every_renaming():
    reward = np.float32([0.1, 1 / 3, 2.5, 0.7])
    means = {
        float(mixed(jnp.array(reward[list(order)]), 1.0)[0]) for order in itertools.permutations(range(4))
    }
    assert len(means) == 1


def test_the_value_scale_tracks_returns_and_ignores_what_does_not_count():
    scale = value_scale.start()
    returns, counts = jnp.array([1.0, 3.0, 99.0]), jnp.array([True, True, False])
    for _ in range(3):
        scale = value_scale.updated(scale, returns, counts)
    mean, deviation = value_scale.mean_and_deviation(scale)
    assert_allclose([mean, deviation], [2.0, 1.0], rtol=1e-5)
    assert_allclose(
        value_scale.denormalised(scale, value_scale.normalised(scale, returns)), returns, rtol=1e-5
    )


def test_the_value_scale_is_the_identity_before_any_data():
    assert_allclose(value_scale.normalised(value_scale.start(), jnp.array([5.0])), [5.0])
