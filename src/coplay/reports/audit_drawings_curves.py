"""Pictures over two axes: curves with their bands, histograms, and maps of points.

Lines and groups differ by colour, dash and mark; a missing value leaves a gap.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from coplay.reports.audit_shapes import (
    DASHES,
    FONT,
    LETTER,
    PLOT_HEIGHT,
    ROW,
    WIDTH,
    Axis,
    Drawing,
    Number,
    axis_over,
    colour_of,
    figure_words,
    finite,
    grid,
    heading,
    is_number,
    left_of,
    legend,
    mark,
    path,
    sentence,
    shortened,
    svg,
    text,
    ticks_below,
)


class Point(NamedTuple):
    x: Number
    y: Number
    low: Number | None
    high: Number | None


class Series(NamedTuple):
    """A line by its unbroken runs."""

    index: int  # its colour, dash and mark
    name: str
    runs: list[list[Point]]

    @property
    def points(self) -> list[Point]:
        return [point for run in self.runs for point in run]


def lines(drawing: Drawing) -> str:
    """Curves with their bands; named at their ends if there is room, else in a legend."""
    found = [_series(i, one) for i, one in enumerate(drawing.get("lines") or [])]
    found = [one for one in found if one.runs]
    if not found:
        return sentence(drawing, "no points")
    points = [point for one in found for point in one.points]
    heights = _down_to_zero(finite(y for point in points for y in point[1:]))
    parts, top = heading(drawing, drawing.get("y_name", ""))
    is_direct = _ends_apart(found, axis_over(heights, PLOT_HEIGHT, 0, is_snug=True))
    if not is_direct:
        entries, top = legend([(one.index, one.name) for one in found], top)
        parts += entries
    y_axis = axis_over(heights, top + PLOT_HEIGHT, top, is_snug=True)
    bottom = y_axis.begin + 6
    room = LETTER * max(len(shortened(one.name)) for one in found) + 18 if is_direct else 14
    x_axis = axis_over([p.x for p in points], left_of(y_axis), WIDTH - room, most=6, is_snug=True)
    parts += grid(y_axis, x_axis.begin, x_axis.end) + ticks_below(x_axis, None, bottom)
    parts += [mark for one in found for mark in _band(one, x_axis, y_axis)]
    parts += [mark for one in found for mark in _curve(one, x_axis, y_axis, is_direct)]
    parts.append(text(x_axis.end, bottom + 2 * ROW, drawing.get("x_name", ""), "end", soft=True))
    told = "; ".join(f"{one.name} ends at {one.points[-1].y:.4g}" for one in found)
    return svg(drawing, told, WIDTH, bottom + 2 * ROW + 8, parts)


def _series(index: int, one: Drawing) -> Series:
    xs, ys = one.get("x") or [], one.get("y") or []
    blank = [None] * len(ys)
    rows = zip(xs, ys, one.get("low") or blank, one.get("high") or blank, strict=False)
    runs: list[list[Point]] = [[]]
    for x, y, low, high in rows:
        if is_number(x) and is_number(y):
            is_whole = is_number(low) and is_number(high)
            runs[-1].append(Point(x, y, low if is_whole else None, high if is_whole else None))
        elif runs[-1]:
            runs.append([])
    return Series(index, str(one["name"]), [run for run in runs if run])


def _down_to_zero(heights: list[Number]) -> list[Number]:
    """With 0, where it is near: a curve that starts at the foot of a picture looks as if it started at 0."""
    return [0.0, *heights] if 0 <= min(heights) < max(heights) / 4 else heights


def _ends_apart(found: list[Series], axis: Axis) -> bool:
    """All lines reach the right edge, at heights that leave room for a name each."""
    furthest = max(point.x for one in found for point in one.points)
    ends = sorted(axis.at(one.points[-1].y) for one in found)
    is_clear = all(b - a >= FONT + 2 for a, b in itertools.pairwise(ends))
    return is_clear and all(one.points[-1].x == furthest for one in found)


def _band(one: Series, x_axis: Axis, y_axis: Axis) -> list[str]:
    drawn = []
    for run in one.runs:
        held = [point for point in run if point.low is not None and point.high is not None]
        upper = [(x_axis.at(p.x), y_axis.at(p.high)) for p in held if p.high is not None]
        lower = [(x_axis.at(p.x), y_axis.at(p.low)) for p in held if p.low is not None]
        if len(held) > 1:
            drawn.append(path([*upper, *lower[::-1]], "none", fill=colour_of(one.index), opacity=0.15))
    return drawn


def _curve(one: Series, x_axis: Axis, y_axis: Axis, is_direct: bool) -> list[str]:
    parts, colour = [], colour_of(one.index)
    for run in one.runs:
        places = [(x_axis.at(point.x), y_axis.at(point.y)) for point in run]
        if len(places) == 1:
            parts.append(mark(one.index, *places[0], colour, 3.5))
        else:
            parts.append(path(places, colour, dash=DASHES[one.index % len(DASHES)]))
    x, y = x_axis.at(one.points[-1].x), y_axis.at(one.points[-1].y)
    parts.append(mark(one.index, x, y, colour, 4))
    return [*parts, text(x + 9, y + 4, shortened(one.name))] if is_direct else parts


class Histogram(NamedTuple):
    index: int
    name: str
    shares: list[float]  # by bin


def histograms(drawing: Drawing) -> str:
    """Steps over each other, each as shares of its own total."""
    edges = drawing.get("edges") or []
    groups = enumerate(drawing.get("groups") or [])
    found = [_histogram(i, one) for i, one in groups if _fits(one.get("counts") or [], edges)]
    if not found:
        return sentence(drawing, "no counts that fit their edges")
    parts, top = heading(drawing, "share")
    entries, top = legend([(one.index, one.name) for one in found], top, has_mark=False)
    y_axis = axis_over([0.0, *(share for one in found for share in one.shares)], top + PLOT_HEIGHT, top)
    x_axis = axis_over(edges, left_of(y_axis), WIDTH - 14, most=8, is_snug=True)
    parts += entries + grid(y_axis, x_axis.begin, x_axis.end) + ticks_below(x_axis, None, y_axis.begin)
    for one in found:
        places = [(x_axis.at(x), y_axis.at(y)) for x, y in _steps(edges, one.shares)]
        colour, dash = colour_of(one.index), DASHES[one.index % len(DASHES)]
        parts.append(path(places, colour, fill=colour, opacity=0.12, dash=dash))
    parts.append(text(x_axis.end, y_axis.begin + 2 * ROW, drawing.get("x_name", ""), "end", soft=True))
    told = "; ".join(f"{one.name} most often {_fullest(edges, one.shares)}" for one in found)
    return svg(drawing, told, WIDTH, y_axis.begin + 2 * ROW + 8, parts)


def _fits(counts: Sequence[Any], edges: Sequence[Any]) -> bool:
    """A count for every bin, edges that rise, and something counted."""
    are_numbers = all(is_number(x) for x in (*counts, *edges))
    return len(counts) == len(edges) - 1 and are_numbers and edges == sorted(set(edges)) and sum(counts) > 0


def _histogram(index: int, one: Drawing) -> Histogram:
    total = sum(one["counts"])
    return Histogram(index, f"{one['name']} (n = {figure_words(total)})", [x / total for x in one["counts"]])


def _steps(edges: Sequence[Number], shares: Sequence[Number]) -> list[tuple[Number, Number]]:
    """Up, along and down again: two corners for every bin, between two at the ground."""
    corners = [
        corner for i, share in enumerate(shares) for corner in ((edges[i], share), (edges[i + 1], share))
    ]
    return [(edges[0], 0.0), *corners, (edges[-1], 0.0)]


def _fullest(edges: Sequence[Number], shares: Sequence[Number]) -> str:
    fullest = int(np.argmax(shares))
    return f"from {edges[fullest]:g} to {edges[fullest + 1]:g}"


def scatter(drawing: Drawing) -> str:
    """A map of points, a mark for each group."""
    found = [_series(i, one) for i, one in enumerate(drawing.get("groups") or [])]
    found = [one for one in found if one.runs]
    if not found:
        return sentence(drawing, "no points")
    points = [point for one in found for point in one.points]
    parts, top = heading(drawing, drawing.get("y_name", ""))
    counted = [f"{one.name} (n = {figure_words(len(one.points))})" for one in found]
    entries, top = legend(
        [(one.index, name) for one, name in zip(found, counted, strict=True)], top, has_line=False
    )
    y_axis = axis_over([point.y for point in points], top + 1.5 * PLOT_HEIGHT, top)
    left = left_of(y_axis)
    x_axis = axis_over([point.x for point in points], left, left + 2 * PLOT_HEIGHT)
    parts += entries + grid(y_axis, x_axis.begin, x_axis.end) + ticks_below(x_axis, top, y_axis.begin)
    for one in found:
        places = [(x_axis.at(point.x), y_axis.at(point.y)) for point in one.points]
        parts += [mark(one.index, x, y, colour_of(one.index), 3.5, opacity=0.8) for x, y in places]
    parts.append(text(x_axis.end, y_axis.begin + 2 * ROW, drawing.get("x_name", ""), "end", soft=True))
    return svg(drawing, "; ".join(counted), WIDTH, y_axis.begin + 2 * ROW + 8, parts)
