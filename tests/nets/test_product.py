"""A layer's product: its gradient is written out, and must be the one that would be derived."""

import jax
import jax.numpy as jnp
import pytest
from numpy.testing import assert_allclose

from coplay.nets.mlp import Linear, product

ROWS = 11


def gradients(multiply, rows, weight, told):
    return jax.grad(lambda r, w: jnp.sum(multiply(r, w) * told), argnums=(0, 1))(rows, weight)


def drawn(inputs: int, outputs: int, *more: int):
    keys = jax.random.split(jax.random.key(inputs + outputs), 3)
    return (
        jax.random.normal(keys[0], (*more, ROWS, inputs)),
        jax.random.normal(keys[1], (*more, inputs, outputs)),
        jax.random.normal(keys[2], (*more, ROWS, outputs)),
    )


@pytest.mark.parametrize(("inputs", "outputs"), [(6, 4), (6, 1), (5, 5), (3, 7)])
def test_the_gradient_is_the_derived_one(inputs, outputs):
    given = drawn(inputs, outputs)
    for found, expected in zip(gradients(product, *given), gradients(jnp.matmul, *given), strict=True):
        assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("inputs", "outputs"), [(6, 4), (3, 7)])
def test_mapped_over_weights_it_is_that_of_each(inputs, outputs):
    given = drawn(inputs, outputs, 2)
    mapped = jax.vmap(lambda *one: gradients(product, *one))(*given)
    for index in range(2):
        alone = gradients(jnp.matmul, *(x[index] for x in given))
        for found, expected in zip(mapped, alone, strict=True):
            assert_allclose(found[index], expected, rtol=1e-5, atol=1e-6)


def test_a_layer_reads_rows_of_any_shape_alike():
    layer = Linear(jax.random.key(0), 4, 3, 1.0)
    rows = jax.random.normal(jax.random.key(1), (2, 5, 4))
    assert layer(rows).shape == (2, 5, 3)
    assert_allclose(layer(rows)[1, 2], rows[1, 2] @ layer.weight + layer.bias, rtol=1e-5, atol=1e-6)
