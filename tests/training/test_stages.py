"""`fit`: minibatches, chunks and counts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose

from coplay.training.stages import Fit, chunk_columns, fit


def squared(weights, batch):
    error = jnp.where(batch["counts"], (batch["x"] * weights["slope"] - batch["y"]) ** 2, 0.0)
    return jnp.sum(error), {"error": jnp.sum(error)}


def count(batch):
    return jnp.sum(batch["counts"]).astype(jnp.float32)


def data(columns=8, time=5):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(columns, time)), jnp.float32)
    return {
        "x": x,
        "y": 3.0 * x,
        "counts": jnp.asarray(np.random.default_rng(1).random((columns, time)) < 0.7),
    }


def run(plan, batch=None, learning_rate=0.1):
    optimiser = optax.sgd(learning_rate)
    weights = {"slope": jnp.float32(0.0)}
    descend = fit(squared, optimiser, plan)
    return jax.jit(lambda b, k: descend(weights, optimiser.init(weights), b, count, k))(
        data() if batch is None else batch, jax.random.key(0)
    )


@pytest.mark.parametrize("chunk_rows", [5, 10, 20, 40])
def test_a_gradient_summed_over_chunks_is_the_whole_gradient(chunk_rows):
    batch = data()
    whole = jax.grad(lambda w: squared(w, batch)[0] / count(batch))({"slope": jnp.float32(0.0)})
    weights, _, _ = run(Fit(epochs=1, minibatches=1, chunk_rows=chunk_rows))
    assert_allclose(weights["slope"], -0.1 * whole["slope"], rtol=1e-5)


def test_every_counted_row_is_used_once_an_epoch():
    seen = {"x": jnp.arange(8.0)[:, None], "y": jnp.zeros((8, 1)), "counts": jnp.ones((8, 1), bool)}

    def add_up(weights, batch):
        return jnp.sum(batch["x"] * weights["slope"]), {
            "sum": jnp.sum(batch["x"]),
            "rows": jnp.sum(batch["counts"]),
        }

    optimiser = optax.sgd(0.0)
    weights = {"slope": jnp.float32(0.0)}
    descend = fit(add_up, optimiser, Fit(epochs=3, minibatches=4, chunk_rows=1))
    _, _, figures = descend(weights, optimiser.init(weights), seen, count, jax.random.key(3))
    # each minibatch holds 2 of the 8 rows; its mean, averaged over minibatches, is the mean of all: 3.5
    assert_allclose([figures["sum"], figures["rows"]], [3.5, 1.0])


def test_rows_that_do_not_count_change_nothing():
    batch = data()
    spoiled = dict(batch, y=jnp.where(batch["counts"], batch["y"], 1e6))
    plan = Fit(epochs=2, minibatches=2, chunk_rows=10)
    assert_allclose(run(plan, spoiled)[0]["slope"], run(plan, batch)[0]["slope"])


def test_it_descends_to_the_answer():
    weights, _, _ = run(Fit(epochs=50, minibatches=2, chunk_rows=10))
    assert_allclose(weights["slope"], 3.0, atol=1e-2)


def test_columns_are_cut_into_as_many_minibatches_as_go_evenly():
    asked, even = Fit(epochs=2, minibatches=3, chunk_rows=10), Fit(epochs=2, minibatches=2, chunk_rows=10)
    assert_allclose(run(asked)[0]["slope"], run(even)[0]["slope"])
    assert not np.allclose(run(asked)[0]["slope"], run(Fit(2, 1, 10))[0]["slope"])


@pytest.mark.parametrize(
    ("columns", "rows", "most", "expected"),
    [(64, 70, 280, 4), (64, 70, 70, 1), (64, 70, 10, 1), (6, 1, 4, 3)],
)
def test_chunks_are_the_largest_equal_parts_that_fit(columns, rows, most, expected):
    assert chunk_columns(columns, rows, most) == expected
