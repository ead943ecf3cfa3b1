"""What is read for a context: which numbers are taken for a board, and that every row is read by itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.nets.context import Context, ContextShape, Told
from coplay.nets.mlp import CNN, MLP

COLUMNS, TIME, SEATS, WIDTH = 2, 3, 2, 8
BOARD, REST = (2, 3, 2), 2
SIGHT = 2 * 3 * 2 + REST
TOLD = Told(observation=SIGHT, action=3, reward=1, active=1, seen=SIGHT)


def read_by(reads, planes=BOARD):
    """A context that is nothing but what its encoder says, with biases as if something had been learned."""
    shape = ContextShape(told=TOLD, reads=reads, encoder=WIDTH, planes=planes, identity="none")
    context = Context(jax.random.key(0), shape)
    if not isinstance(context.encoder, CNN):
        return context
    keys = jax.random.split(jax.random.key(1), 2)
    biases = tuple(0.5 * jax.random.normal(key, (16,)) for key in keys)
    return eqx.tree_at(lambda c: c.encoder.biases, context, biases)


def rows():
    return jax.random.normal(jax.random.key(2), (COLUMNS, TIME, SEATS, sum(TOLD)))


def said(context, row):
    first = jnp.zeros(row.shape[:2], bool).at[:, 0].set(True)
    return context.read({}, row, first, lambda x: x, lambda x: x)[1]


def convolved(board, kernel, bias):
    """Every cell with its eight neighbours, beyond the edge nothing; negative sums are zero."""
    height, width, _ = board.shape
    padded = np.pad(board, ((1, 1), (1, 1), (0, 0)))
    sums = [
        [np.sum(padded[y : y + 3, x : x + 3, :, None] * kernel, axis=(0, 1, 2)) for x in range(width)]
        for y in range(height)
    ]
    return np.maximum(np.array(sums) + bias, 0.0)


def by_hand(encoder, sight, others):
    """One row's context, in NumPy: the board by convolutions, the rest of what is seen, then the others."""
    board = sight[:-REST].reshape(BOARD)
    for kernel, bias in zip(encoder.kernels, encoder.biases, strict=True):
        board = convolved(board, np.asarray(kernel), np.asarray(bias))
    layer = encoder.head.layers[0]
    joined = np.concatenate([board.reshape(-1), sight[-REST:], *others])
    answer = np.tanh(joined @ np.asarray(layer.weight) + np.asarray(layer.bias))
    return answer / np.linalg.norm(answer)


@pytest.mark.parametrize(
    ("reads", "sight", "others"),
    [
        (("observation", "action", "reward"), "observation", ("action", "reward")),
        (("reward", "observation"), "observation", ("reward",)),
        (("action", "seen", "reward"), "seen", ("action", "reward")),
        (("seen",), "seen", ()),
    ],
    ids=str,
)
def test_a_board_is_read_in_every_row_as_in_a_loop_over_rows(reads, sight, others):
    context, row = read_by(reads), rows()
    found, parts = said(context, row), {name: np.asarray(x) for name, x in TOLD.split(row).items()}
    assert found.shape == (COLUMNS, TIME, SEATS, WIDTH)
    for place in np.ndindex(COLUMNS, TIME, SEATS):
        expected = by_hand(context.encoder, parts[sight][place], [parts[name][place] for name in others])
        assert_allclose(found[place], expected, atol=1e-5)


def test_without_a_board_parts_are_read_in_the_order_they_are_named():
    context, row = read_by(("reward", "observation"), planes=None), rows()
    assert isinstance(context.encoder, MLP)
    parts = TOLD.split(row)
    joined = jnp.concatenate([parts["reward"], parts["observation"]], axis=-1)
    answer = jnp.tanh(context.encoder(joined))
    assert_allclose(said(context, row), answer / jnp.linalg.norm(answer, axis=-1, keepdims=True), atol=1e-6)


def test_a_neighbouring_cell_is_felt_and_what_is_not_read_is_not():
    context, row = read_by(("seen",)), rows()
    place = sum(TOLD[: TOLD._fields.index("seen")])
    changed = said(context, row.at[0, 1, 1, place].add(1.0))
    assert not np.allclose(changed[0, 1, 1], said(context, row)[0, 1, 1])
    assert_array_equal(said(context, row.at[..., :place].add(1.0)), said(context, row))
