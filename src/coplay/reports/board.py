"""What a board looks like, in units of one cell: colours, little pictures of things, who stands where.

Replays as GIF and as web page are drawn from the same shapes, so they look alike.
"""

import math
import re
from typing import NamedTuple

import numpy as np

from coplay.reports.episodes import Episode

# Okabe and Ito's palette, told apart by colour-blind readers; players carry their number besides.
PLAYER_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#5B6770")
LIGHT_CELL, DARK_CELL, WALL = "#F3F4EC", "#E9EBDF", "#4A5058"
BROWN, TAN, INK, ROSE, SNOW, ICE = "#8A5A33", "#B99B7A", "#2B2622", "#E3B7AB", "#FFFFFF", "#9CC3DC"


Point = tuple[float | int, float | int]


class Ellipse(NamedTuple):
    x: float
    y: float
    radius_x: float
    radius_y: float
    fill: str


class Polygon(NamedTuple):
    points: tuple[Point, ...]
    fill: str


class Line(NamedTuple):
    points: tuple[Point, ...]
    width: float
    colour: str


class Letter(NamedTuple):
    x: float
    y: float
    height: float
    text: str
    colour: str


Shape = Ellipse | Polygon | Line | Letter


class Spot(NamedTuple):
    """Where a player is drawn: centre and radius, in cells from the upper left corner."""

    x: float
    y: float
    radius: float


class Frame(NamedTuple):
    things: dict[str, list[tuple[int, int]]]  # cells (row, column) by kind
    players: list[Spot | None]  # None for those who left


def frames(episode: Episode) -> list[Frame]:
    """Every board of the episode, laid out."""
    return [_frame(episode, board) for board in range(episode.num_moves + 1)]


def colour(player: int) -> str:
    return PLAYER_COLOURS[player % len(PLAYER_COLOURS)]


def symbol(player: int) -> str:
    """Players are shown to people as 1, 2, ... 9, A, B, ..."""
    return "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[player % 35]


def _frame(episode: Episode, board: int) -> Frame:
    things = {kind: _present(places[board]) for kind, places in episode.cells.items()}
    occupied = {cell for kind, cells in things.items() for cell in cells if kind != "wall"}
    sharing: dict[tuple[int, int], list[int]] = {}
    for player, (row, column) in enumerate(episode.players[board].tolist()):
        if row >= 0:
            sharing.setdefault((row, column), []).append(player)
    spots: list[Spot | None] = [None] * len(episode.members)
    for (row, column), players in sharing.items():
        places = _beside_a_thing(len(players)) if (row, column) in occupied else _side_by_side(len(players))
        for player, spot in zip(players, places, strict=True):
            spots[player] = Spot(column + spot.x, row + spot.y, spot.radius)
    return Frame(things, spots)


def _present(places: np.ndarray) -> list[tuple[int, int]]:
    return [(row, column) for row, column in places.tolist() if row >= 0]


def _side_by_side(count: int) -> list[Spot]:
    """One in the middle, up to three in a row, more in two rows."""
    rows = 1 if count <= 3 else 2
    columns = math.ceil(count / rows)
    radius = min(0.3, 0.46 / columns, 0.44 / rows)
    return [Spot((i % columns + 0.5) / columns, (i // columns + 0.5) / rows, radius) for i in range(count)]


def _beside_a_thing(count: int) -> list[Spot]:
    """In a row along the lower edge, one alone in the corner, so that the thing stays in sight."""
    radius = min(0.19, 0.46 / count)
    if count == 1:
        return [Spot(0.97 - radius, 0.97 - radius, radius)]
    return [Spot((i + 0.5) / count, 0.97 - radius, radius) for i in range(count)]


# --- things ------------------------------------------------------------------------------------------


def picture(kind: str) -> tuple[Shape, ...]:
    """The shapes of one thing in a cell of size 1; an unknown kind shows its first letter."""
    of = owner(kind)
    return PICTURES.get(kind) or (_tile(kind) if of is None else _coin(colour(of)))


def owner(kind: str) -> int | None:
    """Whose a "coin of player 2" is, counted from 0."""
    found = re.search(r"of player (\d+)$", kind)
    return int(found.group(1)) - 1 if found else None


def _mirrored(*shapes: Shape) -> tuple[Shape, ...]:
    """The shapes and their mirror images about the middle of the cell."""
    return (*shapes, *(_mirror(shape) for shape in shapes))


def _mirror(shape: Shape) -> Shape:
    if isinstance(shape, Polygon | Line):
        return shape._replace(points=tuple((1 - x, y) for x, y in shape.points))
    return shape._replace(x=1 - shape.x)


def _coin(fill: str) -> tuple[Shape, ...]:
    return (
        Ellipse(0.5, 0.42, 0.27, 0.27, "#FFFFFF"),
        Ellipse(0.5, 0.42, 0.25, 0.25, fill),
        Ellipse(0.5, 0.42, 0.17, 0.17, "#FFFFFF"),
        Ellipse(0.5, 0.42, 0.13, 0.13, fill),
    )


def _tile(kind: str) -> tuple[Shape, ...]:
    corners = ((0.2, 0.12), (0.8, 0.12), (0.8, 0.72), (0.2, 0.72))
    return (Polygon(corners, "#7C8794"), Letter(0.5, 0.42, 0.42, kind[:1].upper(), "#FFFFFF"))


_STAG = (
    *_mirrored(
        Line(((0.44, 0.4), (0.35, 0.27), (0.3, 0.07)), 0.045, BROWN),
        Line(((0.35, 0.27), (0.19, 0.24), (0.15, 0.13)), 0.04, BROWN),
        Ellipse(0.32, 0.44, 0.1, 0.045, TAN),
    ),
    Polygon(((0.37, 0.38), (0.63, 0.38), (0.66, 0.5), (0.57, 0.74), (0.43, 0.74), (0.34, 0.5)), BROWN),
    Ellipse(0.5, 0.73, 0.075, 0.065, INK),
    *_mirrored(Ellipse(0.425, 0.52, 0.028, 0.034, INK)),
)
_HARE = (
    *_mirrored(Ellipse(0.42, 0.24, 0.06, 0.17, TAN), Ellipse(0.42, 0.25, 0.028, 0.115, ROSE)),
    Ellipse(0.5, 0.53, 0.18, 0.17, TAN),
    *_mirrored(Ellipse(0.44, 0.5, 0.024, 0.03, INK), Ellipse(0.465, 0.61, 0.05, 0.042, "#EFE3D3")),
    Ellipse(0.5, 0.575, 0.026, 0.02, ROSE),
)
_DRIFT = (
    Polygon(((0.1, 0.76), (0.26, 0.46), (0.42, 0.36), (0.56, 0.2), (0.72, 0.42), (0.9, 0.76)), ICE),
    Polygon(((0.16, 0.73), (0.29, 0.5), (0.44, 0.41), (0.56, 0.27), (0.68, 0.45), (0.82, 0.73)), SNOW),
)
_WALL = (
    Polygon(((0, 0), (1, 0), (1, 1), (0, 1)), WALL),
    *(Line(((0.015, y), (0.985, y)), 0.03, "#5C636C") for y in (0.33, 0.66)),
    *(
        Line(((x, y), (x, y + 0.33)), 0.03, "#5C636C")
        for x, y in ((0.5, 0.015), (0.25, 0.33), (0.75, 0.33), (0.5, 0.655))
    ),
)
PICTURES: dict[str, tuple[Shape, ...]] = {"stag": _STAG, "hare": _HARE, "drift": _DRIFT, "wall": _WALL}
