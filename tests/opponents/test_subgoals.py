"""Learned subgoals: what foretells later moves, and what may be said of pay."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from coplay.envs import make_game
from coplay.opponents import subgoals


def test_a_move_is_also_foretold_by_what_was_read_some_steps_before_while_the_player_was_there():
    read = jnp.arange(5.0).reshape(1, 5, 1, 1)
    counts = jnp.array([True, False, True, True, True]).reshape(1, 5, 1)
    first = jnp.array([[True, False, False, False, True]])
    earlier, follows = subgoals.some_steps_before(read, counts, first, jnp.array([1]))
    assert_allclose(np.asarray(earlier)[0, 1:, 0, 0], [0, 1, 2, 3])
    # Nobody was there before the first step, at the second, or before the new episode.
    assert np.asarray(follows)[0, :, 0].tolist() == [False, True, False, True, False]


def test_every_row_has_its_own_number_of_steps():
    read = jnp.stack([jnp.arange(4.0), 10 + jnp.arange(4.0)]).reshape(2, 4, 1, 1)
    counts, first = jnp.ones((2, 4, 1), bool), jnp.arange(4)[None].repeat(2, 0) == 0
    earlier, follows = subgoals.some_steps_before(read, counts, first, jnp.array([1, 3]))
    assert_allclose(np.asarray(earlier)[:, 3, 0, 0], [2, 10])
    assert np.asarray(follows)[..., 0].sum(axis=1).tolist() == [3, 1]


def test_pay_is_read_from_a_subgoal_in_a_straight_line():
    model, init = subgoals.subgoal_model(
        make_game("4h1s_4x4", observation="entities"), 2, (8,), foretells_pay=True
    )
    weights = init(jax.random.key(0))
    here, there = jnp.array([1.0, 0.0]), jnp.array([0.0, 3.0])

    def logits(x):
        """Up to a constant."""
        told = subgoals.pay_chances(model, weights, x)
        return told - told[0]

    nowhere = logits(jnp.zeros(2))
    assert_allclose(logits(here + there), logits(here) + logits(there) - nowhere, atol=1e-5)
    assert_allclose(jnp.exp(subgoals.pay_chances(model, weights, here)).sum(), 1.0, rtol=1e-5)
