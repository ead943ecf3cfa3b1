"""Going somewhere on a grid: to the nearest target by path length, every tie broken uniformly.

Path lengths come as [place, cell]: from where the player stands and from each of the four cells
around it, to every cell of the board.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.envs.grid import MOVES, STAY
from coplay.envs.walls import UNREACHABLE, WallMaps

NUM_MOVES = len(MOVES)
Lengths = Callable  # the board of walls, the player's cell -> [place, cell]


def seek(
    lengths: Int[Array, "place cell"],
    target: Bool[Array, " cell"],
    legal: Bool[Array, " action"],
    at_target: int | Int[Array, ""],
) -> Float[Array, " action"]:
    """Uniform over the nearest targets, then over legal moves that shorten the path to the one drawn.

    Who stands on it plays `at_target`. Where that is illegal, walls block every shorter path or there
    is no target at all, the player stays.
    """
    here = lengths[0]
    nearest = target & (here == jnp.min(jnp.where(target, here, UNREACHABLE)))
    shortens = (lengths[1:] < here[None, :]) & legal[:NUM_MOVES, None]
    count = jnp.sum(shortens, axis=0, dtype=jnp.int32)
    # Twelfths of a target's share, so that all sums are exact: one to four moves may share it.
    share = jnp.where(nearest, jnp.asarray(_TWELFTHS)[count], 0)
    moves = jnp.sum(jnp.where(shortens, share[None, :], 0), axis=1)
    actions = jnp.arange(legal.shape[0])
    deed = actions == at_target
    acting = 12 * jnp.sum(nearest & (here == 0)) * jnp.any(deed & legal)
    whole = jnp.maximum(12 * jnp.sum(nearest), 12)
    staying = whole - jnp.sum(moves) - acting
    padded = jnp.concatenate([moves, jnp.zeros(legal.shape[0] - NUM_MOVES, moves.dtype)])
    return (padded + acting * deed + staying * (actions == STAY)) / whole


_TWELFTHS = np.array([0, 12, 6, 4, 3], np.int32)  # by the number of moves that share a target


def cell_of(board: Bool[Array, "row column"]) -> Int[Array, ""]:
    """The number of the one marked cell, 0 if there is none."""
    cells = board.reshape(-1)
    return jnp.sum(jnp.where(cells, jnp.arange(cells.shape[0]), 0))  # an argmax would take longer


def on_open_board(size: int) -> Lengths:
    """Rows plus columns between two cells, whatever stands between them."""
    return lambda walls, cell: jnp.sum(_apart(cell, size), axis=-1)


def on_torus(size: int) -> Lengths:
    """As on an open board, but the borders meet."""

    def lengths(walls, cell):
        apart = _apart(cell, size) % size
        return jnp.sum(jnp.minimum(apart, size - apart), axis=-1)

    return lengths


def _apart(cell: Int[Array, ""], size: int) -> Int[Array, "place cell 2"]:
    """Rows and columns from the player's cell and the four around it to every cell."""
    around = np.concatenate([np.zeros((1, 2), np.int32), MOVES]).astype(np.int32)
    board = np.stack(np.divmod(np.arange(size**2), size), axis=-1).astype(np.int32)
    place = jnp.stack([cell // size, cell % size])[None, :] + around
    return jnp.abs(place[:, None, :] - board[None, :, :])


def round_walls(maps: WallMaps, size: int) -> Lengths:
    """Shortest paths, looked up: a board of walls is found in the bank by a number that sums it up."""
    boards, which = np.unique(maps.walls, axis=0, return_index=True)
    weights, sums = _fingerprints(boards)
    table = maps.path_length[which].astype(np.int16)
    steps = np.concatenate([[0], MOVES @ [size, 1]]).astype(np.int32)

    def lengths(walls: Bool[Array, "row column"], cell: Int[Array, ""]) -> Int[Array, "place cell"]:
        fingerprint = jnp.sum(jnp.where(walls.reshape(-1), weights, 0), dtype=jnp.uint32)
        number = jnp.sum(jnp.where(sums == fingerprint, jnp.arange(len(sums)), 0))
        place = jnp.clip(cell + steps, 0, size**2 - 1)  # beyond the border no move is legal
        return jnp.asarray(table)[number, place]

    return lengths


def _fingerprints(boards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights per cell, drawn until no two boards have the same sum (modulo 2**32)."""
    random = np.random.default_rng(0)
    while True:
        weights = random.integers(2**32, size=boards.shape[1], dtype=np.uint32)
        sums = (boards * weights[None]).sum(axis=1, dtype=np.uint32)
        if len(np.unique(sums)) == len(boards):
            return weights, sums
