"""What pictures of an audit are put together from: axes, words and shapes, as SVG.

Colours are the page's own variables. Lengths are in pixels of the page.
"""

import math
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple, TypeGuard

Number = float | int
Drawing = dict[str, Any]

WIDTH, PLOT_HEIGHT, FONT, ROW = 680, 200, 12, 17  # ROW: from one line of words to the next
LETTER = 6.9  # about as wide as a letter is
LONGEST_NAME = 34  # letters; what is longer is cut
DASHES = ("none", "7 3", "2 3", "10 3 2 3")
COLOURS = 8  # --series-0 to --series-7, in the page's style


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


def left_of(axis: Axis) -> float:
    """Room for what is written beside an upright axis."""
    return LETTER * max(len(_tick_words(axis, tick)) for tick in axis.ticks) + 12


def grid(axis: Axis, left: Number, right: Number) -> list[str]:
    lines = [line(left, axis.at(tick), right, axis.at(tick), "var(--line)") for tick in axis.ticks]
    return lines + [
        text(left - 8, axis.at(t) + 4, _tick_words(axis, t), "end", soft=True) for t in axis.ticks
    ]


def ticks_below(axis: Axis, top: Number | None, bottom: Number) -> list[str]:
    """Ticks of a level axis; from `top` down if there is one, else short."""
    start = bottom if top is None else top
    parts = [line(axis.at(tick), start, axis.at(tick), bottom + 4, "var(--line)") for tick in axis.ticks]
    return parts + [
        text(axis.at(tick), bottom + ROW, _tick_words(axis, tick), "middle", soft=True) for tick in axis.ticks
    ]


# --- words ------------------------------------------------------------------------------------------------


def heading(drawing: Drawing, unit: str) -> tuple[list[str], float]:
    """The title, what the upright axis shows, and where the drawing itself begins."""
    title = wrapped(str(drawing.get("title", "")), WIDTH)
    parts = text_rows(0, 14, title, bold=True)
    top = 14.0 + ROW * len(title)
    if not unit:
        return parts, top + 4
    return [*parts, text(0, top, unit, soft=True)], top + 16


def room_for(drawing: Drawing) -> float:
    """How wide a picture must be for its title."""
    return LETTER * 1.1 * max(map(len, wrapped(str(drawing.get("title", "")), WIDTH)))


def legend(
    named: list[tuple[int, str]], top: Number, has_line: bool = True, has_mark: bool = True
) -> tuple[list[str], float]:
    """Names beside their marks, in as many rows as they need, and where the drawing begins below them."""
    parts, x, y = [], 0.0, float(top)
    for index, name in named:
        words = shortened(name)
        wide = 34 + LETTER * len(words) + 16
        if x > 0 and x + wide > WIDTH:
            x, y = 0.0, y + ROW
        if has_line:
            parts.append(path([(x, y), (x + 28, y)], colour_of(index), dash=DASHES[index % len(DASHES)]))
        if has_mark:
            parts.append(mark(index, x + 14, y, colour_of(index), 4))
        parts.append(text(x + 34, y + 4, words))
        x += wide
    return parts, y + 20


def sentence(drawing: Drawing, why: str) -> str:
    """Instead of a picture."""
    title = str(drawing.get("title", ""))
    return f'<p class="soft">{escape(f"{title}: {why}." if title else f"No picture: {why}.")}</p>'


def wrapped(words: str, wide: Number) -> list[str]:
    return textwrap.wrap(words, max(6, int(wide / LETTER))) or [""]


def shortened(name: Any) -> str:
    words = str(name)
    return words if len(words) <= LONGEST_NAME else words[: LONGEST_NAME - 1] + "…"


def figure_words(value: Any) -> str:
    """Whole numbers whole; others to three digits."""
    if not is_number(value):
        return ""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.3g}"


def finite(values: Iterable[Any]) -> list[Number]:
    return [value for value in values if is_number(value)]


def is_number(value: Any) -> TypeGuard[Number]:
    return isinstance(value, (int, float)) and math.isfinite(value)


# --- shapes -----------------------------------------------------------------------------------------------


def svg(drawing: Drawing, told: str, width: Number, height: Number, parts: list[str]) -> str:
    """`told` is for those who hear the page. No namespace: within a page none is needed."""
    label = escape(f"{drawing.get('title', '')}: {told}", quote=True)
    size = f'width="{math.ceil(width)}" height="{math.ceil(height)}"'
    box = f'viewBox="0 0 {math.ceil(width)} {math.ceil(height)}"'
    head = f'<svg class="{drawing["kind"]}" role="img" aria-label="{label}" {size} {box} font-size="{FONT}">'
    return "\n".join([head, *parts, "</svg>"])


def colour_of(index: int) -> str:
    return f"var(--series-{index % COLOURS})"


def text(
    x: Number, y: Number, words: str, anchor: str = "start", soft: bool = False, bold: bool = False
) -> str:
    colour = "var(--soft)" if soft else "currentColor"
    weight = ' font-weight="600"' if bold else ""
    where = f'x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}"'
    return f'<text {where} fill="{colour}"{weight}>{escape(words)}</text>' if words else ""


def text_rows(
    x: Number, y: Number, rows: list[str], anchor: str = "start", soft: bool = False, bold: bool = False
) -> list[str]:
    return [text(x, y + ROW * number, row, anchor, soft, bold) for number, row in enumerate(rows)]


def line(
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


def rectangle(
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


def path(
    places: Sequence[tuple[Number, Number]],
    colour: str,
    fill: str = "none",
    opacity: Number = 1,
    dash: str = "none",
) -> str:
    route = "M" + " L".join(f"{_px(x)} {_px(y)}" for x, y in places)
    stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}" stroke-linejoin="round"'
    return f'<path d="{route}" {stroke} fill="{fill}" fill-opacity="{opacity:g}"/>'


def mark(index: int, x: Number, y: Number, colour: str, size: Number, opacity: Number = 1) -> str:
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
