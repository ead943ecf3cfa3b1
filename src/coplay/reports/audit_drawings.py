"""Pictures of what an audit found: a check's `drawing`, plain lists and numbers, becomes SVG for a page.

`draw` looks the kind up in `KINDS` (at the foot, each with the keys it reads). A missing value is None and
leaves a gap; where too little is left, a sentence stands instead of the picture. Colours are the page's own
variables, so that light and dark both work, and nothing is told by colour alone: lines also differ by dash
and mark, cells carry their number. Lengths are in pixels of the page.
"""

import itertools
import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, NamedTuple, TypeGuard

import numpy as np

Number = float | int
Drawing = dict[str, Any]

WIDTH, PLOT_HEIGHT, FONT, ROW = 680, 200, 12, 17  # ROW: from one line of words to the next
LETTER = 6.9  # about as wide as a letter is
LONGEST_NAME = 34  # letters; what is longer is cut
STRONGEST = 0.5  # of a shade: words on it stay readable, in light and dark
FEWEST_IN_BOX = 4  # quartiles of fewer values are no more than the values
DASHES = ("none", "7 3", "2 3", "10 3 2 3")
COLOURS = 8  # --series-0 to --series-7, in the page's style


def draw(drawing: Drawing) -> str:
    """Markup of one drawing; nothing for a check that has none."""
    kind = drawing.get("kind")
    if kind is None:
        return ""
    if kind not in KINDS:
        return _sentence(drawing, f"no picture is known for {kind!r}")
    try:
        return KINDS[kind](drawing)
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:  # one bad drawing must not cost the page
        return _sentence(drawing, f"the picture broke off ({type(error).__name__}: {error})")


def several(drawing: Drawing) -> str:
    """One below the other."""
    return "\n".join(draw(one) for one in drawing.get("drawings") or [])


# --- values by group --------------------------------------------------------------------------------------


def boxes(drawing: Drawing) -> str:
    """From quartile to quartile with the median, whiskers to the furthest values, a point for each value."""
    groups = [(str(one["name"]), one.get("values") or []) for one in drawing.get("groups") or []]
    groups = [(name, values) for name, values in groups if _finite(values)]
    if not groups:
        return _sentence(drawing, "no values")
    parts, top = _heading(drawing, drawing.get("unit", ""))
    axis = axis_over(_finite(value for _, values in groups for value in values), top + PLOT_HEIGHT, top)
    left = _left_of(axis)
    wide = max(46.0, (WIDTH - left) / max(len(groups), 4))
    right = left + wide * len(groups)
    parts += _grid(axis, left, right)
    below = axis.begin + ROW
    for index, (name, values) in enumerate(groups):
        middle = left + wide * (index + 0.5)
        parts += _box(axis, middle, min(wide * 0.6, 60.0), index, values)
        parts += _words(middle, below, _wrapped(name, wide), "middle")
    below += ROW * max(len(_wrapped(name, wide)) for name, _ in groups)
    parts.append(_text(left, below, "a point per value; the box holds the middle half", soft=True))
    told = "; ".join(f"{name} median {np.median(_finite(values)):.4g}" for name, values in groups)
    return _svg(drawing, told, max(right, WIDTH), below + 8, parts)


def _box(axis: "Axis", middle: Number, wide: Number, index: int, values: Sequence[Any]) -> list[str]:
    there = _finite(values)
    lowest, lower, median, upper, highest = (axis.at(x) for x in np.quantile(there, [0, 0.25, 0.5, 0.75, 1]))
    left, colour = middle - wide / 2, _colour(index)
    parts = []
    if len(there) >= FEWEST_IN_BOX:
        parts += [_line(middle, lowest, middle, lower, colour), _line(middle, upper, middle, highest, colour)]
        parts.append(_rectangle(left, upper, wide, lower - upper, colour, 0.18, edge=colour))
    parts.append(_line(left, median, left + wide, median, colour, thick=2.5, name="median"))
    # A seed keeps its place from left to right, so that one can follow it from box to box.
    step = wide * 0.7 / max(len(values) - 1, 1)
    shown = [(middle + step * (i - (len(values) - 1) / 2), x) for i, x in enumerate(values) if _is_number(x)]
    return parts + [_mark(0, x, axis.at(value), "currentColor", 2.2) for x, value in shown]


def intervals(drawing: Drawing) -> str:
    """Effects about 0 with their intervals; the margin, within which nothing matters, is a band."""
    rows = [one for one in drawing.get("rows") or [] if _is_number(one.get("value"))]
    if not rows:
        return _sentence(drawing, "no effects")
    names, figures = [_short(one["name"]) for one in rows], [_with_interval(one) for one in rows]
    left, beside = LETTER * max(map(len, names)) + 14, LETTER * 1.1 * max(map(len, figures)) + 16
    right = max(WIDTH - beside, left + 240)
    parts, top = _heading(drawing, drawing.get("unit", ""))
    bottom, margin = top + BAR * len(rows), drawing.get("margin")
    axis = _axis_of_effects(rows, margin, left, right)
    parts += _margin(axis, margin, top, bottom)
    parts += [*_ticks_below(axis, top, bottom), _line(axis.at(0), top, axis.at(0), bottom, "currentColor")]
    for number, one in enumerate(rows):
        y, is_beyond = top + BAR * (number + 0.5), _is_number(margin) and abs(one["value"]) > margin
        parts += [_text(left - 10, y + 4, names[number], "end"), *_across(axis, y, one, is_beyond)]
        parts.append(_text(right + 12, y + 4, figures[number], bold=is_beyond))
    told = "; ".join(f"{name} {figure}" for name, figure in zip(names, figures, strict=True))
    return _svg(drawing, told, right + beside, bottom + (2 if _is_number(margin) else 1) * ROW + 8, parts)


BAR = 24
_ENDS = ("value", "low", "high")


def _axis_of_effects(rows: list[Drawing], margin: Any, left: Number, right: Number) -> "Axis":
    """Over all intervals, 0 and the margin either way."""
    about = [0.0, margin, -margin] if _is_number(margin) else [0.0]
    return axis_over(_finite([*about, *(one.get(end) for one in rows for end in _ENDS)]), left, right, most=6)


def _margin(axis: "Axis", margin: Any, top: Number, bottom: Number) -> list[str]:
    if not _is_number(margin):
        return []
    says = f"band: the margin, {margin:.3g} either way; a diamond and bold figures: beyond it"
    band = _rectangle(axis.at(-margin), top, axis.at(margin) - axis.at(-margin), bottom - top)
    return [band, _text(axis.begin, bottom + 2 * ROW, says, soft=True)]


def _across(axis: "Axis", y: Number, one: Drawing, is_beyond: bool) -> list[str]:
    """An effect and its interval, from left to right."""
    parts, colour = [], _colour(0)
    if _has_interval(one):
        low, high = axis.at(one["low"]), axis.at(one["high"])
        parts = [_line(low, y, high, y, colour, thick=2)]
        parts += [_line(end, y - 5, end, y + 5, colour, thick=2) for end in (low, high)]
    return [*parts, _mark(3 if is_beyond else 0, axis.at(one["value"]), y, colour, 5)]


def _with_interval(one: Drawing) -> str:
    ends = f" [{one['low']:+.3g}, {one['high']:+.3g}]" if _has_interval(one) else ""
    return f"{one['value']:+.3g}{ends}"


def _has_interval(one: Drawing) -> bool:
    return _is_number(one.get("low")) and _is_number(one.get("high"))


# --- curves, histograms, maps -----------------------------------------------------------------------------


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
        return _sentence(drawing, "no points")
    points = [point for one in found for point in one.points]
    heights = _down_to_zero(_finite(y for point in points for y in point[1:]))
    parts, top = _heading(drawing, drawing.get("y_name", ""))
    is_direct = _ends_apart(found, axis_over(heights, PLOT_HEIGHT, 0, is_snug=True))
    if not is_direct:
        entries, top = _legend([(one.index, one.name) for one in found], top)
        parts += entries
    y_axis = axis_over(heights, top + PLOT_HEIGHT, top, is_snug=True)
    bottom = y_axis.begin + 6
    room = LETTER * max(len(_short(one.name)) for one in found) + 18 if is_direct else 14
    x_axis = axis_over([p.x for p in points], _left_of(y_axis), WIDTH - room, most=6, is_snug=True)
    parts += _grid(y_axis, x_axis.begin, x_axis.end) + _ticks_below(x_axis, None, bottom)
    parts += [mark for one in found for mark in _band(one, x_axis, y_axis)]
    parts += [mark for one in found for mark in _curve(one, x_axis, y_axis, is_direct)]
    parts.append(_text(x_axis.end, bottom + 2 * ROW, drawing.get("x_name", ""), "end", soft=True))
    told = "; ".join(f"{one.name} ends at {one.points[-1].y:.4g}" for one in found)
    return _svg(drawing, told, WIDTH, bottom + 2 * ROW + 8, parts)


def _series(index: int, one: Drawing) -> Series:
    xs, ys = one.get("x") or [], one.get("y") or []
    blank = [None] * len(ys)
    rows = zip(xs, ys, one.get("low") or blank, one.get("high") or blank, strict=False)
    runs: list[list[Point]] = [[]]
    for x, y, low, high in rows:
        if _is_number(x) and _is_number(y):
            is_whole = _is_number(low) and _is_number(high)
            runs[-1].append(Point(x, y, low if is_whole else None, high if is_whole else None))
        elif runs[-1]:
            runs.append([])
    return Series(index, str(one["name"]), [run for run in runs if run])


def _down_to_zero(heights: list[Number]) -> list[Number]:
    """With 0, where it is near: a curve that starts at the foot of a picture looks as if it started at 0."""
    return [0.0, *heights] if 0 <= min(heights) < max(heights) / 4 else heights


def _ends_apart(found: list[Series], axis: "Axis") -> bool:
    """All lines reach the right edge, at heights that leave room for a name each."""
    furthest = max(point.x for one in found for point in one.points)
    ends = sorted(axis.at(one.points[-1].y) for one in found)
    is_clear = all(b - a >= FONT + 2 for a, b in itertools.pairwise(ends))
    return is_clear and all(one.points[-1].x == furthest for one in found)


def _band(one: Series, x_axis: "Axis", y_axis: "Axis") -> list[str]:
    drawn = []
    for run in one.runs:
        held = [point for point in run if point.low is not None and point.high is not None]
        upper = [(x_axis.at(p.x), y_axis.at(p.high)) for p in held if p.high is not None]
        lower = [(x_axis.at(p.x), y_axis.at(p.low)) for p in held if p.low is not None]
        if len(held) > 1:
            drawn.append(_path([*upper, *lower[::-1]], "none", fill=_colour(one.index), opacity=0.15))
    return drawn


def _curve(one: Series, x_axis: "Axis", y_axis: "Axis", is_direct: bool) -> list[str]:
    parts, colour = [], _colour(one.index)
    for run in one.runs:
        places = [(x_axis.at(point.x), y_axis.at(point.y)) for point in run]
        if len(places) == 1:
            parts.append(_mark(one.index, *places[0], colour, 3.5))
        else:
            parts.append(_path(places, colour, dash=DASHES[one.index % len(DASHES)]))
    x, y = x_axis.at(one.points[-1].x), y_axis.at(one.points[-1].y)
    parts.append(_mark(one.index, x, y, colour, 4))
    return [*parts, _text(x + 9, y + 4, _short(one.name))] if is_direct else parts


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
        return _sentence(drawing, "no counts that fit their edges")
    parts, top = _heading(drawing, "share")
    entries, top = _legend([(one.index, one.name) for one in found], top, has_mark=False)
    y_axis = axis_over([0.0, *(share for one in found for share in one.shares)], top + PLOT_HEIGHT, top)
    x_axis = axis_over(edges, _left_of(y_axis), WIDTH - 14, most=8, is_snug=True)
    parts += entries + _grid(y_axis, x_axis.begin, x_axis.end) + _ticks_below(x_axis, None, y_axis.begin)
    for one in found:
        places = [(x_axis.at(x), y_axis.at(y)) for x, y in _steps(edges, one.shares)]
        colour, dash = _colour(one.index), DASHES[one.index % len(DASHES)]
        parts.append(_path(places, colour, fill=colour, opacity=0.12, dash=dash))
    parts.append(_text(x_axis.end, y_axis.begin + 2 * ROW, drawing.get("x_name", ""), "end", soft=True))
    told = "; ".join(f"{one.name} most often {_fullest(edges, one.shares)}" for one in found)
    return _svg(drawing, told, WIDTH, y_axis.begin + 2 * ROW + 8, parts)


def _fits(counts: Sequence[Any], edges: Sequence[Any]) -> bool:
    """A count for every bin, edges that rise, and something counted."""
    are_numbers = all(_is_number(x) for x in (*counts, *edges))
    return len(counts) == len(edges) - 1 and are_numbers and edges == sorted(set(edges)) and sum(counts) > 0


def _histogram(index: int, one: Drawing) -> Histogram:
    total = sum(one["counts"])
    return Histogram(index, f"{one['name']} (n = {_figure(total)})", [x / total for x in one["counts"]])


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
        return _sentence(drawing, "no points")
    points = [point for one in found for point in one.points]
    parts, top = _heading(drawing, drawing.get("y_name", ""))
    counted = [f"{one.name} (n = {_figure(len(one.points))})" for one in found]
    entries, top = _legend(
        [(one.index, name) for one, name in zip(found, counted, strict=True)], top, has_line=False
    )
    y_axis = axis_over([point.y for point in points], top + 1.5 * PLOT_HEIGHT, top)
    left = _left_of(y_axis)
    x_axis = axis_over([point.x for point in points], left, left + 2 * PLOT_HEIGHT)
    parts += entries + _grid(y_axis, x_axis.begin, x_axis.end) + _ticks_below(x_axis, top, y_axis.begin)
    for one in found:
        places = [(x_axis.at(point.x), y_axis.at(point.y)) for point in one.points]
        parts += [_mark(one.index, x, y, _colour(one.index), 3.5, opacity=0.8) for x, y in places]
    parts.append(_text(x_axis.end, y_axis.begin + 2 * ROW, drawing.get("x_name", ""), "end", soft=True))
    return _svg(drawing, "; ".join(counted), WIDTH, y_axis.begin + 2 * ROW + 8, parts)


# --- cells with numbers in them ---------------------------------------------------------------------------


def matrix(drawing: Drawing) -> str:
    """Rows are what was true, columns what was predicted, unless `row_name` and `column_name` say otherwise;
    shade is the cell's share of its row."""
    table = drawing.get("values") or []
    if not _finite(value for row in table for value in row):
        return _sentence(drawing, "no values")
    rows, columns = ([_short(name) for name in drawing.get(key) or []] for key in ("rows", "columns"))
    row_name, column_name = drawing.get("row_name", "true"), drawing.get("column_name", "predicted")
    words = [[_figure(value) for value in row] for row in table]
    wide = max(46.0, LETTER * max(map(len, [*columns, *itertools.chain(*words)])) + 14)
    left = LETTER * max(map(len, [*rows, row_name])) + 14
    parts, top = _heading(drawing, "")
    parts += [
        _text(left, top, column_name, soft=True),
        _text(left - 10, top + ROW, row_name, "end", soft=True),
    ]
    parts += [_text(left + wide * (i + 0.5), top + ROW, name, "middle") for i, name in enumerate(columns)]
    top += ROW + 8
    parts += [_text(left - 10, top + CELL * (i + 0.5) + 4, name, "end") for i, name in enumerate(rows)]
    for number, values in enumerate(table):
        shades = [(_colour(0), share) for share in _shares(values)]
        parts += _cells(left, top + CELL * number, wide, words[number], shades)
    bottom = top + CELL * max(len(table), len(rows)) + ROW
    parts.append(_text(left, bottom, "shade: share of the row", soft=True))
    told = "; ".join(f"{name}: {', '.join(row)}" for name, row in zip(rows, words, strict=False))
    right = left + wide * max(map(len, [columns, *table])) + 4
    return _svg(drawing, told, max(right, _room_for(drawing)), bottom + 8, parts)


CELL = 30


def _shares(values: Sequence[Any]) -> list[Number]:
    total = sum(value for value in _finite(values) if value > 0)
    return [max(value, 0.0) / total if _is_number(value) and total else 0.0 for value in values]


def _cells(
    left: Number, top: Number, wide: Number, words: Sequence[str], shades: Sequence[tuple[str, Number]]
) -> list[str]:
    """A row of them; a shade is a colour and how much of it, from 0 to 1."""
    parts = []
    for number, (word, (colour, share)) in enumerate(zip(words, shades, strict=True)):
        x = left + wide * number
        parts.append(_rectangle(x, top, wide, CELL, colour, STRONGEST * share, edge="var(--line)"))
        parts.append(_text(x + wide / 2, top + CELL / 2 + 4, word, "middle"))
    return parts


def boards(drawing: Drawing) -> str:
    """Boards side by side, every cell with its value; all share one scale, differences one about 0."""
    frames = [one for one in drawing.get("frames") or [] if _values_of(one)]
    if not frames:
        return _sentence(drawing, "no boards")
    scale = _scale_of(frames)
    parts, top = _heading(drawing, "")
    left, right, bottom = 1.0, 0.0, top
    for one in frames:
        words = [[_cell_words(value, _is_difference(one)) for value in row] for row in one["values"]]
        cell = max(40.0, LETTER * max(len(word) for row in words for word in row) + 8)
        wide = cell * max(map(len, words))
        if left > 1.0 and left + wide > WIDEST:
            left, top = 1.0, bottom + ROW
        parts += _board(one, words, scale, left, top, cell)
        bottom, right = max(bottom, top + 12 + CELL * len(words) + ROW), max(right, left + wide)
        left += wide + 24
    says = f"shade: from {scale.low:.3g} (none) to {scale.high:.3g}"
    says += f"; of a difference: by its size, up to {scale.furthest:.3g}" if scale.furthest else ""
    parts.append(_text(1, bottom + 4, says, soft=True))
    told = ", ".join(
        f"{one['name']} from {min(v):.3g} to {max(v):.3g}" for one in frames if (v := _values_of(one))
    )
    return _svg(drawing, told, max(right + 4, LETTER * len(says), _room_for(drawing)), bottom + 12, parts)


WIDEST = 1040  # boards beyond it go below


class Scale(NamedTuple):
    low: Number
    high: Number
    furthest: Number  # from 0, of differences


def _board(
    frame: Drawing, words: list[list[str]], scale: Scale, left: Number, top: Number, cell: Number
) -> list[str]:
    parts = [_text(left, top + 4, _short(frame["name"]), bold=True)]
    for number, (values, row) in enumerate(zip(frame["values"], words, strict=True)):
        shades = [_shade(value, _is_difference(frame), scale) for value in values]
        parts += _cells(left, top + 12 + CELL * number, cell, row, shades)
    return parts


def _is_difference(frame: Drawing) -> bool:
    return frame["name"] == "difference"


def _values_of(frame: Drawing) -> list[Number]:
    return _finite(value for row in frame.get("values") or [] for value in row)


def _scale_of(frames: list[Drawing]) -> Scale:
    values = [value for one in frames if not _is_difference(one) for value in _values_of(one)]
    apart = [abs(value) for one in frames if _is_difference(one) for value in _values_of(one)]
    return Scale(min([0.0, *values]), max([0.0, *values]), max([0.0, *apart]))


def _cell_words(value: Any, is_difference: bool) -> str:
    if not _is_number(value):
        return ""
    words = f"{value:+.2f}" if is_difference else f"{value:.2f}"
    return "0.00" if float(words) == 0 else words


def _shade(value: Any, is_difference: bool, scale: Scale) -> tuple[str, Number]:
    """Blue for more; a difference is orange above 0 and blue below."""
    if not _is_number(value):
        return _colour(0), 0.0
    if is_difference:
        return _colour(1 if value > 0 else 0), abs(value) / (scale.furthest or 1.0)
    return _colour(0), (value - scale.low) / ((scale.high - scale.low) or 1.0)


# --- the ladder -------------------------------------------------------------------------------------------


def ladder(drawing: Drawing) -> str:
    """A panel per symptom, rungs from left to right; where a symptom first appears is marked."""
    rungs = drawing.get("rungs") or []
    symptoms = dict.fromkeys(name for one in rungs for name in one.get("symptoms") or {})
    symptoms = [name for name in symptoms if any(_is_number(_seen(one, name).get("value")) for one in rungs)]
    if not symptoms:
        return _sentence(drawing, "no rung has a figure")
    parts, top = _heading(drawing, "")
    left = 64.0
    wide = max(76.0, (WIDTH - left) / len(rungs))
    right, first = left + wide * len(rungs), drawing.get("first") or {}
    for name in symptoms:
        seen = [_seen(one, name) for one in rungs]
        begins = [i for i, one in enumerate(rungs) if one["name"] == first.get(name)]
        parts.append(_text(left, top + 4, _short(name), bold=True))
        parts += _panel(seen, begins, left, wide, top + 14)
        top += 14 + PANEL + 22
    words, bottom = _rung_names(rungs, left, wide, top - 10)
    parts += [*words, _text(left, bottom, "bars: intervals", soft=True)]
    told = "; ".join(f"{name} first at {first[name]}" for name in symptoms if first.get(name))
    return _svg(drawing, told or "no symptom appears", max(right, WIDTH), bottom + 8, parts)


PANEL = 84


def _seen(rung: Drawing, symptom: str) -> Drawing:
    return (rung.get("symptoms") or {}).get(symptom) or {}


def _rung_names(rungs: list[Drawing], left: Number, wide: Number, top: Number) -> tuple[list[str], Number]:
    """What each is called and adds, and where the next line of words goes."""
    names = [_wrapped(str(one["name"]), wide - 6) for one in rungs]
    added = [_wrapped(str(one.get("adds") or ""), wide - 6) for one in rungs]
    under = top + ROW * max(map(len, names))
    parts = []
    for number in range(len(rungs)):
        middle = left + wide * (number + 0.5)
        parts += _words(middle, top, names[number], "middle")
        parts += _words(middle, under, added[number], "middle", soft=True)
    return parts, under + ROW * max(map(len, added)) + 4


def _panel(seen: list[Drawing], begins: list[int], left: Number, wide: Number, top: Number) -> list[str]:
    figures = _finite(one.get(end) for one in seen for end in _ENDS)
    axis = axis_over(figures, top + PANEL, top, most=3)
    parts = []
    for number in begins:
        parts.append(_rectangle(left + wide * number, top, wide, PANEL, "var(--warn)", 0.2))
    parts += _grid(axis, left, left + wide * len(seen))
    for number, one in enumerate(seen):
        middle = left + wide * (number + 0.5)
        if _has_interval(one):
            low, high = axis.at(one["low"]), axis.at(one["high"])
            parts.append(_line(middle, low, middle, high, _colour(0), thick=5, opacity=0.45))
        if _is_number(one.get("value")):
            parts.append(_mark(3 if number in begins else 0, middle, axis.at(one["value"]), _colour(0), 5))
    return parts + [_text(left + wide * i + 4, top - 3, "first here", soft=True) for i in begins]


# --- axes -------------------------------------------------------------------------------------------------


class Axis(NamedTuple):
    """From numbers to pixels: `low` lies at `begin`, `high` at `end`."""

    low: Number
    high: Number
    begin: Number
    end: Number
    step: Number  # from tick to tick

    def at(self, value: Number) -> Number:
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)

    @property
    def ticks(self) -> list[Number]:
        first, last = math.ceil(round(self.low / self.step, 6)), math.floor(round(self.high / self.step, 6))
        return [number * self.step for number in range(first, last + 1)]


def axis_over(
    values: Sequence[Number], begin: Number, end: Number, most: int = 5, is_snug: bool = False
) -> Axis:
    """Over all these values, out to whole ticks unless it shall be snug; about `most` ticks."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        about = 0.1 * abs(low) or 1.0
        low, high = low - about, high + about
    step = _round_step((high - low) / most)
    if not is_snug:
        low, high = math.floor(round(low / step, 6)) * step, math.ceil(round(high / step, 6)) * step
    return Axis(low, high, begin, end, step)


def _round_step(rough: Number) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(
        float(f"{factor * power:.1g}") for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999999
    )


SHORT_FORMS = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"), (0.0, 1.0, ""))  # from, by, letter


def _tick_words(axis: Axis, value: Number) -> str:
    """As many decimals as tell two ticks apart; thousands and millions short."""
    largest = max(abs(axis.low), abs(axis.high))
    divisor, letter = next((by, letter) for least, by, letter in SHORT_FORMS if largest >= least)
    if largest < 1e-4:
        return f"{value:.3g}" if value else "0"
    decimals = max(0, -math.floor(math.log10(axis.step / divisor) + 1e-9))
    return f"{value / divisor:.{decimals}f}{letter}" if value else "0"


def _left_of(axis: Axis) -> float:
    """Room for what is written beside an upright axis."""
    return LETTER * max(len(_tick_words(axis, tick)) for tick in axis.ticks) + 12


def _grid(axis: Axis, left: Number, right: Number) -> list[str]:
    lines = [_line(left, axis.at(tick), right, axis.at(tick), "var(--line)") for tick in axis.ticks]
    return lines + [
        _text(left - 8, axis.at(t) + 4, _tick_words(axis, t), "end", soft=True) for t in axis.ticks
    ]


def _ticks_below(axis: Axis, top: Number | None, bottom: Number) -> list[str]:
    """Ticks of a level axis; from `top` down if there is one, else short."""
    start = bottom if top is None else top
    parts = [_line(axis.at(tick), start, axis.at(tick), bottom + 4, "var(--line)") for tick in axis.ticks]
    return parts + [
        _text(axis.at(tick), bottom + ROW, _tick_words(axis, tick), "middle", soft=True)
        for tick in axis.ticks
    ]


# --- words ------------------------------------------------------------------------------------------------


def _heading(drawing: Drawing, unit: str) -> tuple[list[str], float]:
    """The title, what the upright axis shows, and where the drawing itself begins."""
    title = _wrapped(str(drawing.get("title", "")), WIDTH)
    parts = _words(0, 14, title, bold=True)
    top = 14.0 + ROW * len(title)
    if not unit:
        return parts, top + 4
    return [*parts, _text(0, top, unit, soft=True)], top + 16


def _room_for(drawing: Drawing) -> float:
    """How wide a picture must be for its title."""
    return LETTER * 1.1 * max(map(len, _wrapped(str(drawing.get("title", "")), WIDTH)))


def _legend(
    named: list[tuple[int, str]], top: Number, has_line: bool = True, has_mark: bool = True
) -> tuple[list[str], float]:
    """Names beside their marks, in as many rows as they need, and where the drawing begins below them."""
    parts, x, y = [], 0.0, float(top)
    for index, name in named:
        words = _short(name)
        wide = 34 + LETTER * len(words) + 16
        if x > 0 and x + wide > WIDTH:
            x, y = 0.0, y + ROW
        if has_line:
            parts.append(_path([(x, y), (x + 28, y)], _colour(index), dash=DASHES[index % len(DASHES)]))
        if has_mark:
            parts.append(_mark(index, x + 14, y, _colour(index), 4))
        parts.append(_text(x + 34, y + 4, words))
        x += wide
    return parts, y + 20


def _sentence(drawing: Drawing, why: str) -> str:
    """Instead of a picture."""
    title = str(drawing.get("title", ""))
    return f'<p class="soft">{escape(f"{title}: {why}." if title else f"No picture: {why}.")}</p>'


def _wrapped(words: str, wide: Number) -> list[str]:
    return textwrap.wrap(words, max(6, int(wide / LETTER))) or [""]


def _short(name: Any) -> str:
    words = str(name)
    return words if len(words) <= LONGEST_NAME else words[: LONGEST_NAME - 1] + "…"


def _figure(value: Any) -> str:
    """Whole numbers whole; others to three digits."""
    if not _is_number(value):
        return ""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.3g}"


def _finite(values: Iterable[Any]) -> list[Number]:
    return [value for value in values if _is_number(value)]


def _is_number(value: Any) -> TypeGuard[Number]:
    return isinstance(value, (int, float)) and math.isfinite(value)


# --- shapes -----------------------------------------------------------------------------------------------


def _svg(drawing: Drawing, told: str, width: Number, height: Number, parts: list[str]) -> str:
    """`told` is for those who hear the page. No namespace: within a page none is needed."""
    label = escape(f"{drawing.get('title', '')}: {told}", quote=True)
    size = f'width="{math.ceil(width)}" height="{math.ceil(height)}"'
    box = f'viewBox="0 0 {math.ceil(width)} {math.ceil(height)}"'
    head = f'<svg class="{drawing["kind"]}" role="img" aria-label="{label}" {size} {box} font-size="{FONT}">'
    return "\n".join([head, *parts, "</svg>"])


def _colour(index: int) -> str:
    return f"var(--series-{index % COLOURS})"


def _text(
    x: Number, y: Number, words: str, anchor: str = "start", soft: bool = False, bold: bool = False
) -> str:
    colour = "var(--soft)" if soft else "currentColor"
    weight = ' font-weight="600"' if bold else ""
    where = f'x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}"'
    return f'<text {where} fill="{colour}"{weight}>{escape(words)}</text>' if words else ""


def _words(
    x: Number, y: Number, rows: list[str], anchor: str = "start", soft: bool = False, bold: bool = False
) -> list[str]:
    return [_text(x, y + ROW * number, row, anchor, soft, bold) for number, row in enumerate(rows)]


def _line(
    x1: Number,
    y1: Number,
    x2: Number,
    y2: Number,
    colour: str,
    thick: Number = 1,
    opacity: Number = 1,
    name: str = "",
) -> str:
    where = f'x1="{_px(x1)}" y1="{_px(y1)}" x2="{_px(x2)}" y2="{_px(y2)}"'
    known = f' class="{name}"' if name else ""
    faint = f' stroke-opacity="{opacity:g}"' if opacity < 1 else ""
    return f'<line {where} stroke="{colour}" stroke-width="{thick:g}"{faint}{known}/>'


def _rectangle(
    x: Number,
    y: Number,
    width: Number,
    height: Number,
    fill: str = "var(--line)",
    opacity: Number = 0.55,
    edge: str = "none",
) -> str:
    where = f'x="{_px(x)}" y="{_px(y)}" width="{_px(width)}" height="{_px(height)}"'
    return f'<rect {where} fill="{fill}" fill-opacity="{opacity:.3g}" stroke="{edge}"/>'


def _path(
    places: Sequence[tuple[Number, Number]],
    colour: str,
    fill: str = "none",
    opacity: Number = 1,
    dash: str = "none",
) -> str:
    route = "M" + " L".join(f"{_px(x)} {_px(y)}" for x, y in places)
    stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}" stroke-linejoin="round"'
    return f'<path d="{route}" {stroke} fill="{fill}" fill-opacity="{opacity:g}"/>'


def _mark(index: int, x: Number, y: Number, colour: str, size: Number, opacity: Number = 1) -> str:
    """A disc, a square, a triangle or a diamond."""
    filled = f'fill="{colour}"' + (f' fill-opacity="{opacity:g}"' if opacity < 1 else "")
    if index % 4 == 0:
        return f'<circle cx="{_px(x)}" cy="{_px(y)}" r="{size:g}" {filled}/>'
    corners = _CORNERS[index % 4]
    places = " ".join(f"{_px(x + size * across)},{_px(y + size * down)}" for across, down in corners)
    return f'<polygon points="{places}" {filled}/>'


_CORNERS: dict[int, tuple[tuple[Number, Number], ...]] = {
    1: ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    2: ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
    3: ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
}


def _px(length: Number) -> str:
    return f"{round(float(length), 2) + 0.0:g}"


KINDS: dict[str, Callable[[Drawing], str]] = {
    "several": several,  # drawings
    "boxes": boxes,  # title, unit, groups: name, values
    "intervals": intervals,  # title, unit, margin, rows: name, value, low, high
    "lines": lines,  # title, x_name, y_name, lines: name, x, y, low, high
    "histograms": histograms,  # title, x_name, edges, groups: name, counts
    "scatter": scatter,  # title, x_name, y_name, groups: name, x, y
    "matrix": matrix,  # title, rows, columns, values, row_name, column_name
    "boards": boards,  # title, frames: name, values
    "ladder": ladder,  # title, rungs: name, adds, symptoms; first
}
