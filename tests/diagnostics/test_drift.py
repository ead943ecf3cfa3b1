"""Drift, worked by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from coplay.diagnostics import drift

EVEN, LEANING = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.75, 0.25]))


def test_divergence_is_0_of_itself_and_the_sum_otherwise():
    assert float(drift.divergence(EVEN, EVEN)) == 0.0
    # 0.5 ln(0.5 / 0.75) + 0.5 ln(0.5 / 0.25) = 0.5 ln(4 / 3)
    assert_allclose(drift.divergence(EVEN, LEANING), 0.5 * np.log(4 / 3), rtol=1e-5)


def test_what_is_illegal_adds_nothing():
    one_way = jnp.array([0.0, -1e9])
    assert_allclose(drift.divergence(one_way, LEANING), np.log(4 / 3), rtol=1e-5)
    assert float(drift.divergence(one_way, one_way)) == 0.0


def test_those_who_are_out_have_not_moved():
    old, new = jnp.stack([EVEN, EVEN])[None], jnp.stack([LEANING, LEANING])[None]
    found = drift.moved(old, new, jnp.array([[True, False]]))
    assert_allclose(found, [[0.5 * np.log(4 / 3), 0.0]], rtol=1e-5)


def test_joint_variation_sums_over_joint_actions():
    # (.25, .25, .25, .25) against (.75, .25) x (.5, .5) = (.375, .375, .125, .125): half of 4 * .125
    old, new = jnp.stack([EVEN, EVEN])[None], jnp.stack([LEANING, EVEN])[None]
    assert_allclose(drift.joint_variation(old, new, jnp.zeros((1, 2))), [0.25], rtol=1e-5)


def test_what_was_drawn_tells_joint_variation_where_there_are_too_many_actions(monkeypatch):
    key = jax.random.key(0)
    old, new = (jax.nn.log_softmax(jax.random.normal(k, (1, 3, 4))) for k in jax.random.split(key))
    exact = drift.joint_variation(old, new, jnp.zeros((1, 3)))
    actions = jnp.array(list(itertools.product(range(4), repeat=3)))
    chance = jnp.exp(sum(old[0, seat, actions[:, seat]] for seat in range(3)))
    log_ratio = jnp.stack([(new - old)[0, seat, actions[:, seat]] for seat in range(3)], axis=-1)
    monkeypatch.setattr(drift, "MOST_JOINT_ACTIONS", 10)
    drawn = drift.joint_variation(jnp.tile(old, (64, 1, 1)), jnp.tile(new, (64, 1, 1)), log_ratio)
    assert_allclose(jnp.sum(chance * drawn), exact[0], rtol=1e-5)


def test_the_others_ratio_leaves_oneself_out():
    found = drift.others_ratio(jnp.log(jnp.array([[2.0, 3.0, 5.0]])))
    assert_allclose(found, [[15.0, 10.0, 6.0]], rtol=1e-5)


def test_policies_that_never_agree_differ_by_ln_2():
    left, right = jnp.array([0.0, -1e9]), jnp.array([-1e9, 0.0])
    assert_allclose(drift.difference_of_policies(left, right), np.log(2), rtol=1e-5)
    assert float(drift.difference_of_policies(LEANING, LEANING)) == 0.0


def test_conflict_is_the_mean_cosine_and_the_share_of_pairs_that_oppose():
    # pairs: at right angles 0, opposite -1, at right angles 0
    cosine, share = drift.conflict(jnp.array([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]))
    assert_allclose(cosine, -1 / 3, rtol=1e-5)
    assert_allclose(share, 1 / 3, rtol=1e-5)


def test_gradients_that_go_on_turn_by_1_those_that_go_back_by_minus_1():
    one = jnp.array([3.0, 0.0, 4.0])
    assert_allclose(drift.turn(one, 2.0 * one), 1.0, rtol=1e-6)
    assert_allclose(drift.turn(one, -0.5 * one), -1.0, rtol=1e-6)
    # (3, 0, 4) and (0, 5, 5): 20 / (5 * sqrt 50)
    assert_allclose(drift.turn(one, jnp.array([0.0, 5.0, 5.0])), 4 / np.sqrt(50), rtol=1e-6)
    assert np.isnan(drift.turn(one, jnp.zeros(3)))


def test_noise_is_the_variance_by_the_square_of_the_mean():
    # means (2, 0), variances 2 and 2 (one less than two parts): 4 / 4
    assert_allclose(drift.noise(jnp.array([[1.0, 1.0], [3.0, -1.0]])), 1.0, rtol=1e-5)
    assert float(drift.noise(jnp.ones((4, 3)))) == 0.0
