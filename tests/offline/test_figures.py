"""What the figures of all parts are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.offline.figures import linear_beliefs, linear_reading, steps_to_sure


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


def test_beliefs_of_a_linear_reading_are_the_chances_that_things_were_drawn_with():
    draw = np.random.default_rng(1)
    inputs = draw.normal(size=(20_000, 2)).astype(np.float32)
    chance = 1 / (1 + np.exp(-(2 * inputs[:, 0] + 1)))
    goal = jnp.asarray((draw.random(20_000) < chance).astype(np.int32))
    told = linear_beliefs(jnp.asarray(inputs), goal, jnp.ones(20_000, bool), 2)
    assert_allclose(told[:, 1], chance, atol=0.03)


def test_rows_that_are_not_learned_from_do_not_count():
    goal = jnp.array([0, 1] * 20)
    inputs = jax.nn.one_hot(goal, 2)
    wrong = jnp.where(jnp.arange(40) < 10, goal, 1 - goal)  # most are labelled the other way round
    told = linear_beliefs(inputs, wrong, jnp.arange(40) < 10, 2)
    assert (np.asarray(told.argmax(axis=-1)) == np.asarray(goal)).all()


def test_steps_until_one_is_sure_and_stays_so_by_hand():
    chance = jnp.array([[0.5, 0.95, 0.5, 0.95], [0.95, 0.95, 0.1, 0.1], [0.5, 0.5, 0.5, 0.5]])[..., None]
    counts = jnp.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]], bool)[..., None]
    # Sure after 3 moves, after 0 (it has left when it is no longer), never.
    median, never = steps_to_sure(chance, counts, jnp.array([True, True, True]))
    assert_allclose([median, never], [3.0, 1 / 3])
    median, never = steps_to_sure(chance, counts, jnp.array([False, True, False]))
    assert_allclose([median, never], [0.0, 0.0])
