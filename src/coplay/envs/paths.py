"""How far it is on a grid: path lengths, and how near the nearest target is.

Path lengths come as [place, target]: from where a player stands and from each of the four cells around it, to
some cells of the board, or to all of them.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.envs.grid import MOVES, rows_and_columns
from coplay.envs.walls import UNREACHABLE, WallMaps

Lengths = Callable  # the board of walls, the player's cell, cells to go to (None: all) -> [place, target]
Targets = Int[Array, " target"] | None
FEATURES = 1 + len(MOVES)  # of `nearness`
PLACES = np.concatenate([np.zeros((1, 2)), MOVES]).astype(np.int32)  # rows and columns from the player


def to_nearest(
    lengths: Int[Array, "place target"], targets: Bool[Array, "kind target"]
) -> Int[Array, "kind place"]:
    """The way to the nearest of each kind; UNREACHABLE where there is none."""
    return jnp.min(jnp.where(targets[:, None, :], lengths[None], UNREACHABLE), axis=-1)


def nearness(away: Int[Array, "kind place"], size: int) -> Float[Array, "kind feature"]:
    """How far each kind is, in boards, and what each move makes of it: -1 nearer, 1 farther."""
    here = away[:, :1]
    change = jnp.clip(away[:, 1:] - here, -1, 1)
    return jnp.concatenate([jnp.minimum(here / size, 4.0), change], axis=1).astype(jnp.float32)


def straight(offset: Int[Array, "kind 2"]) -> Int[Array, "kind place"]:
    """Rows plus columns to what lies at these offsets from the player, whatever stands between."""
    return jnp.sum(jnp.abs(offset[:, None, :] - PLACES[None]), axis=-1)


def cell_of(board: Bool[Array, "row column"]) -> Int[Array, ""]:
    """The number of the one marked cell, 0 if there is none."""
    cells = board.reshape(-1)
    return jnp.sum(jnp.where(cells, jnp.arange(cells.shape[0]), 0))  # an argmax would take longer


def on_open_board(size: int) -> Lengths:
    """Rows plus columns between two cells, whatever stands between them."""
    return lambda walls, cell, to=None: jnp.sum(_apart(cell, to, size), axis=-1)


def on_torus(size: int) -> Lengths:
    """As on an open board, but the borders meet."""

    def lengths(walls, cell, to: Targets = None):
        apart = _apart(cell, to, size) % size
        return jnp.sum(jnp.minimum(apart, size - apart), axis=-1)

    return lengths


def _apart(cell: Int[Array, ""], to: Targets, size: int) -> Int[Array, "place target 2"]:
    """Rows and columns from the player's cell and the four around it."""
    targets = rows_and_columns(jnp.arange(size**2) if to is None else to, size)
    place = rows_and_columns(cell, size)[None, :] + PLACES
    return jnp.abs(place[:, None, :] - targets[None, :, :])


def round_walls(maps: WallMaps, size: int) -> Lengths:
    """Shortest paths, looked up: a board of walls is found in the bank by a number that sums it up."""
    boards, which = np.unique(maps.walls, axis=0, return_index=True)
    weights, register = _fingerprints(boards)
    table = maps.path_length[which].astype(np.int16)
    steps = (PLACES @ [size, 1]).astype(np.int32)

    def lengths(
        walls: Bool[Array, "row column"], cell: Int[Array, ""], to: Targets = None
    ) -> Int[Array, "place target"]:
        fingerprint = jnp.sum(jnp.where(walls.reshape(-1), weights, 0), dtype=jnp.uint32)
        number = jnp.asarray(register)[fingerprint % len(register)]
        place = jnp.clip(cell + steps, 0, size**2 - 1)  # beyond the border no move is legal
        if to is None:
            return jnp.asarray(table)[number, place]
        return jnp.asarray(table)[number, place[:, None], to[None, :]]

    return lengths


def _fingerprints(boards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights per cell, drawn until no two boards have the same sum modulo the register's length; and the
    register, in which a board's number stands at that place."""
    random = np.random.default_rng(0)
    places = 2 ** (2 * len(boards).bit_length())  # a draw then does with an even chance or better
    while True:
        weights = random.integers(2**32, size=boards.shape[1], dtype=np.uint32)
        sums = (boards * weights[None]).sum(axis=1, dtype=np.uint32) % places
        if len(np.unique(sums)) == len(boards):
            register = np.zeros(places, np.int32)
            register[sums] = np.arange(len(boards))
            return weights, register
