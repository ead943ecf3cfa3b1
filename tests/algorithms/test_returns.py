"""Targets, worked by hand: discount 0.5, trace 0.5, two steps."""

import jax.numpy as jnp
from numpy.testing import assert_allclose

from coplay.algorithms.returns import advantages, lambda_returns, monte_carlo


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


def imagined(cut=(False, True), next_value=(4.0, 10.0)):
    # rewards 1, 2; the game goes on for sure, then with chance 0.5
    return lambda_returns(
        reward=jnp.array([1.0, 2.0]),
        next_value=jnp.array(next_value),
        goes_on=jnp.array([1.0, 0.5]),
        cut=jnp.array(cut),
        discount=0.9,
        trace=0.5,
    )


def test_imagined_returns_bootstrap_at_the_cut():
    # G_1 = 2 + 0.9*0.5*10 = 6.5; G_0 = 1 + 0.9*(0.5*4 + 0.5*6.5) = 5.725
    assert_allclose(imagined(), [5.725, 6.5])


def test_an_imagined_cut_after_the_first_step_leaves_out_the_second():
    # G_0 = 1 + 0.9*4 = 4.6, whatever follows
    assert_allclose(imagined(cut=(True, True)), [4.6, 6.5])


def test_an_imagined_end_does_not_bootstrap():
    # Nothing goes on after the second step: G_1 = 2; G_0 = 1 + 0.9*(0.5*4 + 0.5*2) = 3.7
    ends = {"goes_on": jnp.array([1.0, 0.0]), "cut": jnp.array([False, True]), "discount": 0.9, "trace": 0.5}
    found = lambda_returns(reward=jnp.array([1.0, 2.0]), next_value=jnp.array([4.0, 10.0]), **ends)
    assert_allclose(found, [3.7, 2.0])
