"""What the figures of all parts are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.offline.figures import linear_reading


def reading(inputs, goal):
    """Fitted on every other row."""
    counts, is_learned = jnp.ones(goal.shape, bool), jnp.arange(goal.size) % 2 == 0
    return float(linear_reading(inputs, goal, counts, is_learned, 2))


@pytest.mark.parametrize("rows", [40, 200_000])
def test_a_linear_reading_of_columns_that_say_the_same_twice_is_right_however_many_rows_there_are(rows):
    goal = jnp.asarray(np.random.default_rng(0).integers(2, size=rows))
    once = jax.nn.one_hot(goal, 2)  # adds up to the constant, too
    assert reading(jnp.concatenate([once, once], axis=-1), goal) == 1.0


def test_a_linear_reading_of_nothing_says_the_commonest():
    goal = jnp.array([0, 0, 0, 0, 1, 0, 0, 1])  # learned from 0 0 1 0, asked for 0 0 0 1
    assert_allclose(reading(jnp.zeros((8, 0)), goal), 0.75)
