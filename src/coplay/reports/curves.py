"""A run's metrics as curves: per seat, the mean over seeds with a band from the lowest to the highest."""

import io
import re
import warnings
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from coplay.reports import board

MOST_POINTS = 240  # more than a curve on a page can show
INK, FAINT = "#010203", "#040506"  # stand-ins for the page's own colours, which change with its theme
WHOLE_GAME = -1


class Curve(NamedTuple):
    """One metric of one seat (-1: of the whole game)."""

    seat: int
    steps: Int[np.ndarray, " point"]
    values: Float[np.ndarray, "seed point"]


def curves_of(metrics: pa.Table, metric: str) -> list[Curve]:
    """The metric's curves by seat; empty where it was not recorded or never had a value."""
    rows = metrics.filter(pc.field("metric") == metric)
    step, seed, seat, value = (rows[name].to_numpy() for name in ("step", "seed", "seat", "value"))
    seeds, row = np.unique(seed, return_inverse=True)
    curves = []
    for one in np.unique(seat):
        mine = seat == one
        steps, point = np.unique(step[mine], return_inverse=True)
        values = np.full((len(seeds), len(steps)), np.nan)
        values[row[mine], point] = np.where(np.isfinite(value[mine]), value[mine], np.nan)
        curves.append(Curve(int(one), steps, values))
    return [curve for curve in curves if np.isfinite(curve.values).any()]


def at_the_end(curve: Curve, share: float = 0.2) -> Float[np.ndarray, " seed"]:
    """Each seed's mean over the last fifth of the steps."""
    first = curve.steps[-1] - share * (curve.steps[-1] - curve.steps[0])
    return mean(curve.values[:, curve.steps >= first], axis=1)


def thinned(curve: Curve, most: int = MOST_POINTS) -> Curve:
    """The same curve with neighbouring points averaged until at most `most` are left."""
    group = -(-len(curve.steps) // most)
    starts = np.arange(0, len(curve.steps), group)
    parts = [slice(start, start + group) for start in starts]
    steps = np.array([curve.steps[part][-1] for part in parts])
    return Curve(curve.seat, steps, np.stack([mean(curve.values[:, part], axis=1) for part in parts], axis=1))


def mean(values: np.ndarray, axis: int) -> np.ndarray:
    """Over what is there; NaN where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(values, axis=axis))


def draw(curves: list[Curve], name: str) -> str:
    """An SVG element to put into a page; `name` keeps its ids apart from other drawings'."""
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 9,
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "axes.labelcolor": INK,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(5.4, 2.9), layout="constrained", facecolor="none")
        _draw_axes(figure.add_subplot(facecolor="none"), curves)
        file = io.StringIO()
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    return _for_a_page(file.getvalue(), name)


def _draw_axes(axes, curves: list[Curve]) -> None:
    for curve in map(thinned, curves):
        colour = board.PLAYER_COLOURS[-1] if curve.seat == WHOLE_GAME else board.colour(curve.seat)
        middle, low, high = mean(curve.values, axis=0), *_lowest_and_highest(curve.values)
        if len(curve.values) > 1:
            axes.fill_between(curve.steps, low, high, color=colour, alpha=0.18, linewidth=0)
        mark = "o" if np.isfinite(middle).sum() == 1 else ""
        axes.plot(curve.steps, middle, marker=mark, color=colour, linewidth=1.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=FAINT, alpha=0.18, linewidth=0.8)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("steps")


def _lowest_and_highest(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)


def _for_a_page(svg: str, name: str) -> str:
    """Without XML header, fixed size and foreign addresses, in the page's colours and font."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d{2})\d+", r"\1", path.group()), svg)
    svg = svg.replace(INK, "currentColor").replace(FAINT, "currentColor")
    return re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", svg)
