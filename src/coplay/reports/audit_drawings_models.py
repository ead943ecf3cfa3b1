"""Pictures of what models foretell: tables of figures, confusion matrices and boards, cell by cell."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from coplay.reports.audit_shapes import (
    LETTER,
    ROW,
    Drawing,
    Number,
    colour_of,
    figure_words,
    finite,
    heading,
    is_number,
    rectangle,
    room_for,
    sentence,
    shortened,
    svg,
    text,
)

STRONGEST = 0.5  # of a shade: words on it stay readable, in light and dark
CELL = 30


def matrix(drawing: Drawing) -> str:
    """Rows are what was true, columns what was predicted, unless `row_name` and `column_name` say otherwise;
    shade is the cell's share of its row."""
    table = drawing.get("values") or []
    if not finite(value for row in table for value in row):
        return sentence(drawing, "no values")
    rows, columns = ([shortened(name) for name in drawing.get(key) or []] for key in ("rows", "columns"))
    row_name, column_name = drawing.get("row_name", "true"), drawing.get("column_name", "predicted")
    words, left, wide = _room(table, [*rows, row_name], columns)
    parts, top = heading(drawing, "")
    parts += [
        text(left, top, column_name, soft=True),
        text(left - 10, top + ROW, row_name, "end", soft=True),
    ]
    shades = [[(colour_of(0), share) for share in _shares(values)] for values in table]
    parts += _named_cells(rows, columns, words, shades, left, top + ROW, wide)
    bottom = top + ROW + 8 + CELL * max(len(table), len(rows)) + ROW
    parts.append(text(left, bottom, "shade: share of the row", soft=True))
    told = _read_out(rows, words)
    right = left + wide * max(map(len, [columns, *table])) + 4
    return svg(drawing, told, max(right, room_for(drawing)), bottom + 8, parts)


def table(drawing: Drawing) -> str:
    """Figures in rows and columns, each under the name of its column and beside that of its row."""
    values = drawing.get("values") or []
    if not finite(value for row in values for value in row):
        return sentence(drawing, "no figures")
    rows, columns = ([shortened(name) for name in drawing.get(key) or []] for key in ("rows", "columns"))
    words, left, wide = _room(values, rows, columns)
    parts, top = heading(drawing, "")
    shades = [[(colour_of(0), 0.0)] * len(row) for row in values]
    parts += _named_cells(rows, columns, words, shades, left, top, wide)
    bottom = top + 8 + CELL * max(len(values), len(rows))
    right = left + wide * max(map(len, [columns, *values])) + 4
    return svg(drawing, _read_out(rows, words), max(right, room_for(drawing)), bottom + 8, parts)


def _room(
    values: Sequence[Sequence[Any]], rows: Sequence[str], columns: Sequence[str]
) -> tuple[list[list[str]], float, float]:
    """What is written in cells, where they begin, and how wide they are."""
    words = [[figure_words(value) for value in row] for row in values]
    wide = max(46.0, LETTER * max(map(len, [*columns, *itertools.chain(*words)])) + 14)
    return words, LETTER * max(map(len, rows)) + 14, wide


def _named_cells(
    rows: Sequence[str],
    columns: Sequence[str],
    words: Sequence[Sequence[str]],
    shades: Sequence[Sequence[tuple[str, Number]]],
    left: Number,
    top: Number,
    wide: Number,
) -> list[str]:
    """Names of columns, names of rows, and the cells."""
    parts = [text(left + wide * (i + 0.5), top, name, "middle") for i, name in enumerate(columns)]
    top += 8
    parts += [text(left - 10, top + CELL * (i + 0.5) + 4, name, "end") for i, name in enumerate(rows)]
    for number, (row, shade) in enumerate(zip(words, shades, strict=True)):
        parts += _cells(left, top + CELL * number, wide, row, shade)
    return parts


def _read_out(rows: Sequence[str], words: Sequence[Sequence[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(row)}" for name, row in zip(rows, words, strict=False))


def _shares(values: Sequence[Any]) -> list[Number]:
    total = sum(value for value in finite(values) if value > 0)
    return [max(value, 0.0) / total if is_number(value) and total else 0.0 for value in values]


def _cells(
    left: Number, top: Number, wide: Number, words: Sequence[str], shades: Sequence[tuple[str, Number]]
) -> list[str]:
    """A row of them; a shade is a colour and how much of it, from 0 to 1."""
    parts = []
    for number, (word, (colour, share)) in enumerate(zip(words, shades, strict=True)):
        x = left + wide * number
        parts.append(rectangle(x, top, wide, CELL, colour, STRONGEST * share, edge="var(--line)"))
        parts.append(text(x + wide / 2, top + CELL / 2 + 4, word, "middle"))
    return parts


def boards(drawing: Drawing) -> str:
    """Boards side by side, every cell with its value; all share one scale, differences one about 0."""
    frames = [one for one in drawing.get("frames") or [] if _values_of(one)]
    if not frames:
        return sentence(drawing, "no boards")
    scale = _scale_of(frames)
    parts, top = heading(drawing, "")
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
    parts.append(text(1, bottom + 4, says, soft=True))
    told = ", ".join(
        f"{one['name']} from {min(v):.3g} to {max(v):.3g}" for one in frames if (v := _values_of(one))
    )
    return svg(drawing, told, max(right + 4, LETTER * len(says), room_for(drawing)), bottom + 12, parts)


WIDEST = 1040  # boards beyond it go below


class Scale(NamedTuple):
    low: Number
    high: Number
    furthest: Number  # from 0, of differences


def _board(
    frame: Drawing, words: list[list[str]], scale: Scale, left: Number, top: Number, cell: Number
) -> list[str]:
    parts = [text(left, top + 4, shortened(frame["name"]), bold=True)]
    for number, (values, row) in enumerate(zip(frame["values"], words, strict=True)):
        shades = [_shade(value, _is_difference(frame), scale) for value in values]
        parts += _cells(left, top + 12 + CELL * number, cell, row, shades)
    return parts


def _is_difference(frame: Drawing) -> bool:
    return frame["name"] == "difference"


def _values_of(frame: Drawing) -> list[Number]:
    return finite(value for row in frame.get("values") or [] for value in row)


def _scale_of(frames: list[Drawing]) -> Scale:
    values = [value for one in frames if not _is_difference(one) for value in _values_of(one)]
    apart = [abs(value) for one in frames if _is_difference(one) for value in _values_of(one)]
    return Scale(min([0.0, *values]), max([0.0, *values]), max([0.0, *apart]))


def _cell_words(value: Any, is_difference: bool) -> str:
    if not is_number(value):
        return ""
    words = f"{value:+.2f}" if is_difference else f"{value:.2f}"
    return "0.00" if float(words) == 0 else words


def _shade(value: Any, is_difference: bool, scale: Scale) -> tuple[str, Number]:
    """Blue for more; a difference is orange above 0 and blue below."""
    if not is_number(value):
        return colour_of(0), 0.0
    if is_difference:
        return colour_of(1 if value > 0 else 0), abs(value) / (scale.furthest or 1.0)
    return colour_of(0), (value - scale.low) / ((scale.high - scale.low) or 1.0)
