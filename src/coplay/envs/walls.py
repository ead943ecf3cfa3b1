"""A bank of wall maps with their path lengths, drawn once in NumPy and looked up by number.

A map is redrawn unless its free cells hang together and no shortest path is longer than
`LONGEST_PATH`, so that every ceiling stays within reach of the horizon.
"""

import dataclasses
import functools

import numpy as np

LONGEST_PATH = 30
UNREACHABLE = 10_000


@dataclasses.dataclass(frozen=True)
class WallMaps:
    """`num_maps` boards of one size; cells are numbered row by row."""

    walls: np.ndarray  # bool [map, cell]
    free_cells: np.ndarray  # int [map, cell]: the free ones first, in order
    num_free: np.ndarray  # int [map]
    open_moves: np.ndarray  # bool [map, cell, 4]: up, down, left, right stay on free cells
    path_length: np.ndarray  # int [map, cell, cell]; UNREACHABLE into or out of a wall


@functools.lru_cache(maxsize=16)
def wall_maps(size: int, components: int, seed: int, num_maps: int) -> WallMaps:
    if components == 0:
        return _describe(np.zeros((1, size, size), bool))
    random = np.random.default_rng(seed)
    kept: list[np.ndarray] = []
    for _ in range(200):
        drawn = np.stack([_draw(random, size, components) for _ in range(num_maps)])
        kept.extend(drawn[_is_good(drawn)])
        if len(kept) >= num_maps:
            return _describe(np.stack(kept[:num_maps]))
    raise ValueError(
        f"wall_components={components} leaves no connected {size}x{size} board; lower it or raise size"
    )


def _draw(random: np.random.Generator, size: int, components: int) -> np.ndarray:
    """One board; a piece that overlaps an earlier one is dropped."""
    board = np.zeros((size, size), bool)
    for _ in range(components):
        piece, row, column = _place(random, size)
        window = board[row : row + piece.shape[0], column : column + piece.shape[1]]
        if not (window & piece).any():
            window |= piece
    return board


def _place(random: np.random.Generator, size: int) -> tuple[np.ndarray, int, int]:
    """A piece at a random turn and place; a straight one never lies along the border."""
    while True:
        piece = np.rot90(_PIECES[random.integers(len(_PIECES))], int(random.integers(4)))
        if max(piece.shape) > size:
            continue
        row = int(random.integers(size - piece.shape[0] + 1))
        column = int(random.integers(size - piece.shape[1] + 1))
        lies_flat = piece.shape[0] == 1 and row in (0, size - 1)
        stands_flat = piece.shape[1] == 1 and column in (0, size - 1)
        if not (lies_flat or stands_flat):
            return piece, row, column


_PIECES = [
    np.ones((1, 3), bool),
    np.ones((1, 4), bool),
    np.array([[1, 1], [1, 0]], bool),
    np.array([[1, 1, 1], [1, 0, 0]], bool),
    np.array([[1, 1, 1], [0, 0, 1]], bool),
]


def _is_good(walls: np.ndarray) -> np.ndarray:
    lengths = _path_lengths(walls)
    free = ~walls.reshape(len(walls), -1)
    between_free = free[:, :, None] & free[:, None, :]
    return np.where(between_free, lengths, 0).max((1, 2)) <= LONGEST_PATH


def _path_lengths(walls: np.ndarray) -> np.ndarray:
    """All shortest paths by spreading out from every cell at once, a step per turn."""
    num_maps, size, _ = walls.shape
    cells = size * size
    reached = np.eye(cells, dtype=bool).reshape(1, cells, size, size) & ~walls[:, None]
    lengths = np.where(reached, 0, UNREACHABLE).astype(np.int32)
    for distance in range(1, cells):
        spread = reached.copy()
        spread[..., 1:, :] |= reached[..., :-1, :]
        spread[..., :-1, :] |= reached[..., 1:, :]
        spread[..., :, 1:] |= reached[..., :, :-1]
        spread[..., :, :-1] |= reached[..., :, 1:]
        spread &= ~walls[:, None]
        fresh = spread & ~reached
        if not fresh.any():
            break
        lengths[fresh] = distance
        reached = spread
    return lengths.reshape(num_maps, cells, cells)


def _describe(boards: np.ndarray) -> WallMaps:
    num_maps, size, _ = boards.shape
    free = ~np.pad(boards, ((0, 0), (1, 1), (1, 1)), constant_values=True)
    moves = np.stack([free[:, :-2, 1:-1], free[:, 2:, 1:-1], free[:, 1:-1, :-2], free[:, 1:-1, 2:]], axis=-1)
    walls = boards.reshape(num_maps, size * size)
    return WallMaps(
        walls=walls,
        free_cells=np.argsort(walls, axis=1, kind="stable").astype(np.int32),
        num_free=(~walls).sum(1).astype(np.int32),
        open_moves=moves.reshape(num_maps, size * size, 4),
        path_length=_path_lengths(boards),
    )
