"""`fit` that stops: no further epoch once one's figures say so."""

import jax
import jax.numpy as jnp
import optax
import pytest
from numpy.testing import assert_allclose

from coplay.training.stages import Fit, fit
from tests.every.test_algorithms import chunks
from tests.small import small_job


def descended(goes_on, epochs=4):
    """One weight that a loss of slope 1 pulls down by 1 a step; two columns, one minibatch."""

    def loss(weights, batch):
        value = jnp.sum(batch) * weights["w"]["x"]
        return value, {"level": value}

    descend = fit(loss, optax.sgd(1.0), Fit(epochs, 1, 10, goes_on))
    weights = {"w": {"x": jnp.float32(10.0)}}
    state = optax.sgd(1.0).init(weights)
    return descend(weights, state, jnp.ones((2, 1)), jnp.sum, jax.random.key(0))


@pytest.mark.parametrize(("lowest", "epochs"), [(0.0, 4), (9.5, 2), (11.0, 1)])
def test_epochs_after_the_one_that_says_stop_change_nothing(lowest, epochs):
    # the epochs see levels of 10, 9, 8 and 7, and another is begun while one saw more than the lowest
    weights, _, figures = descended(lambda sums: sums["level"] > lowest)
    assert_allclose(weights["w"]["x"], 10.0 - epochs)
    assert_allclose(figures["epochs"], epochs)
    assert_allclose(figures["level"], 10.0 - (epochs - 1) / 2)  # the mean of the epochs that counted


def test_a_limit_that_is_never_reached_changes_nothing_and_a_tight_one_stops_after_one_epoch():
    free = chunks(small_job("mappo_4h1s_4x4"), updates=1)
    loose = chunks(small_job("mappo_4h1s_4x4", **{"mappo.stop_kl": 100.0}), updates=1)
    tight = chunks(small_job("mappo_4h1s_4x4", **{"mappo.stop_kl": 1e-12}), updates=1)
    assert (loose[2]["policy/epochs"] == 2).all() and (tight[2]["policy/epochs"] == 1).all()
    for a, b in zip(jax.tree.leaves(free[1]), jax.tree.leaves(loose[1]), strict=True):
        assert_allclose(a, b, atol=1e-6)
