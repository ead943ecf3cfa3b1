"""Rare actions count more, and chances stay true."""

import jax
import jax.numpy as jnp
from numpy.testing import assert_allclose

from coplay.opponents.balance import MOST, balanced_surprise, rarity_weights


def test_weights_are_roots_of_rarity_with_a_limit_and_a_mean_of_one():
    share = jnp.array([0.8, 0.2, 0.0])
    weight = rarity_weights(share, MOST)
    assert_allclose(weight[1] / weight[0], 2.0, rtol=1e-5)  # the root of 0.8 / 0.2
    assert_allclose(weight[2] / weight[0], MOST, rtol=1e-5)
    assert_allclose(jnp.sum(weight * share), 1.0, rtol=1e-5)


def test_what_is_learned_from_weighted_rows_is_how_the_player_acts():
    share = jnp.array([0.7, 0.25, 0.05])
    action = jnp.repeat(jnp.arange(3), jnp.array([70, 25, 5]))
    weight = rarity_weights(share, MOST)

    def cost(logits):
        told = jnp.broadcast_to(jax.nn.log_softmax(logits)[None], (100, 3))
        return jnp.mean(balanced_surprise(told, action, weight))

    assert_allclose(jax.grad(cost)(jnp.log(share)), 0.0, atol=1e-5)  # nothing to learn at the true chances
    assert jnp.abs(jax.grad(cost)(jnp.log(share * weight))).max() > 0.05


def test_equal_weights_are_plain_surprise():
    told = jax.nn.log_softmax(jnp.array([[0.3, -1.0], [2.0, 0.5]]))
    assert_allclose(
        balanced_surprise(told, jnp.array([1, 0]), jnp.ones(2)), [-told[0, 1], -told[1, 0]], rtol=1e-6
    )


def test_where_nothing_has_been_done_all_count_alike():
    assert_allclose(rarity_weights(jnp.zeros(3), MOST), 1.0)
