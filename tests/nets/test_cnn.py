"""Convolutions written as products are convolutions."""

import jax
import jax.numpy as jnp
import pytest
from numpy.testing import assert_allclose

from coplay.nets.mlp import CNN, convolved


def test_a_cell_adds_up_its_surroundings_and_zeros_beyond_the_board():
    board = jnp.arange(1.0, 7.0).reshape(1, 2, 3, 1)
    kernel = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1.0).at[0, 1].set(10.0).at[1, 2].set(100.0)
    # A cell, ten times the one above it and a hundred times the one to its right: 1 + 200, 2 + 300, 3;
    # 4 + 10 + 500, 5 + 20 + 600, 6 + 30.
    assert convolved(board, kernel)[0, ..., 0].tolist() == [[201.0, 302.0, 3.0], [514.0, 625.0, 36.0]]


@pytest.mark.parametrize("planes", [(4, 4, 6), (5, 3, 2)])
def test_values_and_gradients_are_those_of_the_compilers_convolution(planes):
    board_key, kernel_key = jax.random.split(jax.random.key(0))
    board = jax.random.normal(board_key, (7, *planes))
    kernel = jax.random.normal(kernel_key, (3, 3, planes[-1], 5))

    def reference(board, kernel):
        order = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(board, kernel, (1, 1), "SAME", dimension_numbers=order)

    def slopes(function):
        return jax.grad(lambda *x: jnp.sum(jnp.sin(function(*x))), argnums=(0, 1))(board, kernel)

    assert_allclose(convolved(board, kernel), reference(board, kernel), rtol=1e-5, atol=1e-5)
    for found, expected in zip(slopes(convolved), slopes(reference), strict=True):
        assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_what_follows_the_board_in_a_row_is_read_too():
    network = CNN(jax.random.key(0), 4 * 4 * 2 + 3, (8,), 5, 1.0, planes=(4, 4, 2))
    row = jax.random.normal(jax.random.key(1), (4 * 4 * 2 + 3,))
    assert jnp.any(network(row) != network(row.at[-1].add(1.0)))
