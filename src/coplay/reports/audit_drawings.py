"""Pictures of what an audit found: a check's `drawing`, plain lists and numbers, becomes SVG for a page.

`draw` looks the kind up in `KINDS` (at the foot, each with the keys it reads). A missing value is None and
leaves a gap; where too little is left, a sentence stands instead of the picture. Colours are the page's own
variables, so that light and dark both work, and nothing is told by colour alone: lines also differ by dash
and mark, cells carry their number. Lengths are in pixels of the page.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coplay.reports.audit_drawings_curves import histograms, lines, scatter
from coplay.reports.audit_drawings_models import boards, matrix, table
from coplay.reports.audit_shapes import (
    LETTER,
    PLOT_HEIGHT,
    ROW,
    WIDTH,
    Axis,
    Drawing,
    Number,
    axis_over,
    colour_of,
    finite,
    grid,
    heading,
    is_number,
    left_of,
    line,
    mark,
    rectangle,
    sentence,
    shortened,
    svg,
    text,
    text_rows,
    ticks_below,
    wrapped,
)

FEWEST_IN_BOX = 4  # quartiles of fewer values are no more than the values


def draw(drawing: Drawing) -> str:
    """Markup of one drawing; nothing for a check that has none."""
    kind = drawing.get("kind")
    if kind is None:
        return ""
    if kind not in KINDS:
        return sentence(drawing, f"no picture is known for {kind!r}")
    try:
        return KINDS[kind](drawing)
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:  # one bad drawing must not cost the page
        return sentence(drawing, f"the picture broke off ({type(error).__name__}: {error})")


def several(drawing: Drawing) -> str:
    """One below the other."""
    return "\n".join(draw(one) for one in drawing.get("drawings") or [])


# --- values by group --------------------------------------------------------------------------------------


def boxes(drawing: Drawing) -> str:
    """From quartile to quartile with the median, whiskers to the furthest values, a point for each value."""
    groups = [(str(one["name"]), one.get("values") or []) for one in drawing.get("groups") or []]
    groups = [(name, values) for name, values in groups if finite(values)]
    if not groups:
        return sentence(drawing, "no values")
    parts, top = heading(drawing, drawing.get("unit", ""))
    axis = axis_over(finite(value for _, values in groups for value in values), top + PLOT_HEIGHT, top)
    left = left_of(axis)
    wide = max(46.0, (WIDTH - left) / max(len(groups), 4))
    right = left + wide * len(groups)
    parts += grid(axis, left, right)
    below = axis.begin + ROW
    for index, (name, values) in enumerate(groups):
        middle = left + wide * (index + 0.5)
        parts += _box(axis, middle, min(wide * 0.6, 60.0), index, values)
        parts += text_rows(middle, below, wrapped(name, wide), "middle")
    below += ROW * max(len(wrapped(name, wide)) for name, _ in groups)
    parts.append(text(left, below, "a point per value; the box holds the middle half", soft=True))
    told = "; ".join(f"{name} median {np.median(finite(values)):.4g}" for name, values in groups)
    return svg(drawing, told, max(right, WIDTH), below + 8, parts)


def _box(axis: Axis, middle: Number, wide: Number, index: int, values: Sequence[Any]) -> list[str]:
    there = finite(values)
    lowest, lower, median, upper, highest = (axis.at(x) for x in np.quantile(there, [0, 0.25, 0.5, 0.75, 1]))
    left, colour = middle - wide / 2, colour_of(index)
    parts = []
    if len(there) >= FEWEST_IN_BOX:
        parts += [line(middle, lowest, middle, lower, colour), line(middle, upper, middle, highest, colour)]
        parts.append(rectangle(left, upper, wide, lower - upper, colour, 0.18, edge=colour))
    parts.append(line(left, median, left + wide, median, colour, thick=2.5, name="median"))
    # A seed keeps its place from left to right, so that one can follow it from box to box.
    step = wide * 0.7 / max(len(values) - 1, 1)
    shown = [(middle + step * (i - (len(values) - 1) / 2), x) for i, x in enumerate(values) if is_number(x)]
    return parts + [mark(0, x, axis.at(value), "currentColor", 2.2) for x, value in shown]


def intervals(drawing: Drawing) -> str:
    """Effects about 0 with their intervals; the margin, within which nothing matters, is a band."""
    rows = [one for one in drawing.get("rows") or [] if is_number(one.get("value"))]
    if not rows:
        return sentence(drawing, "no effects")
    names, figures = [shortened(one["name"]) for one in rows], [_with_interval(one) for one in rows]
    left, beside = LETTER * max(map(len, names)) + 14, LETTER * 1.1 * max(map(len, figures)) + 16
    right = max(WIDTH - beside, left + 240)
    parts, top = heading(drawing, drawing.get("unit", ""))
    bottom, margin = top + BAR * len(rows), drawing.get("margin")
    axis = _axis_of_effects(rows, margin, left, right)
    parts += _margin(axis, margin, top, bottom)
    parts += [*ticks_below(axis, top, bottom), line(axis.at(0), top, axis.at(0), bottom, "currentColor")]
    for number, one in enumerate(rows):
        y, is_beyond = top + BAR * (number + 0.5), is_number(margin) and abs(one["value"]) > margin
        parts += [text(left - 10, y + 4, names[number], "end"), *_across(axis, y, one, is_beyond)]
        parts.append(text(right + 12, y + 4, figures[number], bold=is_beyond))
    told = "; ".join(f"{name} {figure}" for name, figure in zip(names, figures, strict=True))
    return svg(drawing, told, right + beside, bottom + (2 if is_number(margin) else 1) * ROW + 8, parts)


BAR = 24
_ENDS = ("value", "low", "high")


def _axis_of_effects(rows: list[Drawing], margin: Any, left: Number, right: Number) -> Axis:
    """Over all intervals, 0 and the margin either way."""
    about = [0.0, margin, -margin] if is_number(margin) else [0.0]
    return axis_over(finite([*about, *(one.get(end) for one in rows for end in _ENDS)]), left, right, most=6)


def _margin(axis: Axis, margin: Any, top: Number, bottom: Number) -> list[str]:
    if not is_number(margin):
        return []
    says = f"band: the margin, {margin:.3g} either way; a diamond and bold figures: beyond it"
    band = rectangle(axis.at(-margin), top, axis.at(margin) - axis.at(-margin), bottom - top)
    return [band, text(axis.begin, bottom + 2 * ROW, says, soft=True)]


def _across(axis: Axis, y: Number, one: Drawing, is_beyond: bool) -> list[str]:
    """An effect and its interval, from left to right."""
    parts, colour = [], colour_of(0)
    if _has_interval(one):
        low, high = axis.at(one["low"]), axis.at(one["high"])
        parts = [line(low, y, high, y, colour, thick=2)]
        parts += [line(end, y - 5, end, y + 5, colour, thick=2) for end in (low, high)]
    return [*parts, mark(3 if is_beyond else 0, axis.at(one["value"]), y, colour, 5)]


def _with_interval(one: Drawing) -> str:
    ends = f" [{one['low']:+.3g}, {one['high']:+.3g}]" if _has_interval(one) else ""
    return f"{one['value']:+.3g}{ends}"


def _has_interval(one: Drawing) -> bool:
    return is_number(one.get("low")) and is_number(one.get("high"))


# --- the ladder -------------------------------------------------------------------------------------------


def ladder(drawing: Drawing) -> str:
    """A panel per symptom, rungs from left to right; where a symptom first appears is marked."""
    rungs = drawing.get("rungs") or []
    symptoms = dict.fromkeys(name for one in rungs for name in one.get("symptoms") or {})
    symptoms = [name for name in symptoms if any(is_number(_seen(one, name).get("value")) for one in rungs)]
    if not symptoms:
        return sentence(drawing, "no rung has a figure")
    parts, top = heading(drawing, "")
    left = 64.0
    wide = max(76.0, (WIDTH - left) / len(rungs))
    right, first = left + wide * len(rungs), drawing.get("first") or {}
    for name in symptoms:
        seen = [_seen(one, name) for one in rungs]
        begins = [i for i, one in enumerate(rungs) if one["name"] == first.get(name)]
        parts.append(text(left, top + 4, shortened(name), bold=True))
        parts += _panel(seen, begins, left, wide, top + 14)
        top += 14 + PANEL + 22
    words, bottom = _rung_names(rungs, left, wide, top - 10)
    parts += [*words, text(left, bottom, "bars: intervals", soft=True)]
    told = "; ".join(f"{name} first at {first[name]}" for name in symptoms if first.get(name))
    return svg(drawing, told or "no symptom appears", max(right, WIDTH), bottom + 8, parts)


PANEL = 84


def _seen(rung: Drawing, symptom: str) -> Drawing:
    return (rung.get("symptoms") or {}).get(symptom) or {}


def _rung_names(rungs: list[Drawing], left: Number, wide: Number, top: Number) -> tuple[list[str], Number]:
    """What each is called and adds, and where the next line of words goes."""
    names = [wrapped(str(one["name"]), wide - 6) for one in rungs]
    added = [wrapped(str(one.get("adds") or ""), wide - 6) for one in rungs]
    under = top + ROW * max(map(len, names))
    parts = []
    for number in range(len(rungs)):
        middle = left + wide * (number + 0.5)
        parts += text_rows(middle, top, names[number], "middle")
        parts += text_rows(middle, under, added[number], "middle", soft=True)
    return parts, under + ROW * max(map(len, added)) + 4


def _panel(seen: list[Drawing], begins: list[int], left: Number, wide: Number, top: Number) -> list[str]:
    figures = finite(one.get(end) for one in seen for end in _ENDS)
    axis = axis_over(figures, top + PANEL, top, most=3)
    parts = []
    for number in begins:
        parts.append(rectangle(left + wide * number, top, wide, PANEL, "var(--warn)", 0.2))
    parts += grid(axis, left, left + wide * len(seen))
    for number, one in enumerate(seen):
        middle = left + wide * (number + 0.5)
        if _has_interval(one):
            low, high = axis.at(one["low"]), axis.at(one["high"])
            parts.append(line(middle, low, middle, high, colour_of(0), thick=5, opacity=0.45))
        if is_number(one.get("value")):
            parts.append(mark(3 if number in begins else 0, middle, axis.at(one["value"]), colour_of(0), 5))
    return parts + [text(left + wide * i + 4, top - 3, "first here", soft=True) for i in begins]


KINDS: dict[str, Callable[[Drawing], str]] = {
    "several": several,  # drawings
    "boxes": boxes,  # title, unit, groups: name, values
    "intervals": intervals,  # title, unit, margin, rows: name, value, low, high
    "lines": lines,  # title, x_name, y_name, lines: name, x, y, low, high
    "histograms": histograms,  # title, x_name, edges, groups: name, counts
    "scatter": scatter,  # title, x_name, y_name, groups: name, x, y
    "matrix": matrix,  # title, rows, columns, values, row_name, column_name
    "table": table,  # title, rows, columns, values
    "boards": boards,  # title, frames: name, values
    "ladder": ladder,  # title, rungs: name, adds, symptoms; first
}
