"""Chance without names, and rows of ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

from coplay.envs import grid


@pytest.fixture(scope="module")
def words() -> np.ndarray:
    """[key, word]: from keys that follow one another and from keys that were split, as games get them."""
    seeds = jax.vmap(jax.random.key)(jnp.arange(20_000))
    splits = jax.random.split(jax.random.key(0), 20_000)
    keys = jnp.concatenate([seeds, splits])
    return np.asarray(jax.jit(jax.vmap(lambda key: grid.random_words(key, 3)))(keys))


@pytest.mark.parametrize("part", [slice(None, 20_000), slice(20_000, None)])
def test_random_words_are_uniform_in_every_byte(words, part):
    for word in range(3):
        for shift in (0, 8, 16, 24):
            counts = np.bincount((words[part, word] >> shift) & 255, minlength=256)
            assert chisquare(counts).pvalue > 1e-4


def test_words_of_one_key_and_of_neighbouring_keys_are_unrelated(words):
    high = (words >> 28).astype(int)  # 16 classes
    pairs = [(high[:, 0], high[:, 1]), (high[:, 1], high[:, 2]), (high[:-1, 0], high[1:, 0])]
    for left, right in pairs:
        assert chisquare(np.bincount(left * 16 + right, minlength=256)).pvalue > 1e-4


def test_no_two_keys_give_the_same_words(words):
    assert len(np.unique(words, axis=0)) == len(words)


def test_draws_below_stay_below_and_reach_everything():
    bits = jnp.array([0, 2**32 - 1, 2**31], jnp.uint32)
    assert_array_equal(grid.draw_below(bits, 7), [0, 6, 3])


def test_distinct_draws_are_uniform_over_arrangements():
    keys = jax.random.split(jax.random.key(2), 24_000)
    drawn = jax.jit(jax.vmap(lambda key: grid.draw_distinct(grid.random_words(key, 2), jnp.int32(4))))(keys)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    _, counts = np.unique(np.asarray(drawn) @ [4, 1], return_counts=True)
    assert len(counts) == 12 and chisquare(counts).pvalue > 0.001


def test_hot_rows_are_true_where_they_are_told_and_nowhere_for_a_negative_feature():
    rows = grid.hot(jnp.array([[0, 3], [-1, 2], [2, 2]]), 4)
    assert_array_equal(rows, [[1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 1, 0]])


def test_everyone_sees_itself_first_and_the_others_in_the_order_they_sit():
    assert_array_equal(grid.in_circle(jnp.array([7, 8, 9])), [[7, 8, 9], [8, 9, 7], [9, 7, 8]])
    assert_array_equal(grid.cyclic_order(3), [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
