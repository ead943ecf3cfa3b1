"""Targets, worked by hand: discount 0.5, trace 0.5, two steps."""

import jax.numpy as jnp
from numpy.testing import assert_allclose

from coplay.algorithms.returns import advantages, monte_carlo


def two_steps(ends=(False, True), cut=(False, False), last_value=4.0):
    # rewards 1, 2; values 0.5, 1; the value of `after` is the next row's, then last_value
    return {
        "reward": jnp.array([1.0, 2.0]),
        "value": jnp.array([0.5, 1.0]),
        "next_value": jnp.array([1.0, last_value]),
        "ends": jnp.array(ends),
        "cut": jnp.array(cut),
        "discount": 0.5,
        "trace": 0.5,
    }


def test_a_terminated_episode_stops_counting():
    # surprise_1 = 2 - 1 = 1; surprise_0 = 1 + 0.5*1 - 0.5 = 1; advantage_0 = 1 + 0.25*1 = 1.25
    assert_allclose(advantages(**two_steps()), [1.25, 1.0])


def test_a_truncated_episode_still_counts_the_future():
    # surprise_1 = 2 + 0.5*4 - 1 = 3; surprise_0 = 1; advantage_0 = 1 + 0.25*3 = 1.75
    assert_allclose(advantages(**two_steps(ends=(False, False), cut=(False, True))), [1.75, 3.0])


def test_nothing_leaks_back_from_the_episode_after_a_cut():
    # the first step is cut: surprise_0 = 1 + 0.5*1 - 0.5 = 1 and no trace from the second
    assert_allclose(advantages(**two_steps(ends=(False, True), cut=(True, False)))[0], 1.0)


def test_the_garbage_value_after_an_end_is_never_read():
    assert_allclose(advantages(**two_steps(last_value=float("nan"))), [1.25, 1.0])


def test_monte_carlo_is_the_discounted_return_less_the_value():
    # return_1 = 2, return_0 = 1 + 0.5*2 = 2; less values 0.5 and 1
    assert_allclose(monte_carlo(**two_steps()), [1.5, 1.0])
