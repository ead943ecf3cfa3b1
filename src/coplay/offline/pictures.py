"""Pictures of how a part was trained and what it foretells."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def loss_curves(table: Sequence[dict[str, float | int]]) -> Figure:
    """Loss on what was learned from and on held-out episodes, by epoch."""
    figure = Figure(figsize=(5.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    epochs = [row["epoch"] for row in table]
    for name, label in (("loss/train", "learned from"), ("loss/held_out", "held out")):
        axes.plot(epochs, [row[name] for row in table], marker="o", label=label)
    losses = [row[name] for row in table for name in ("loss/train", "loss/held_out")]
    is_wide = min(losses) > 0 and max(losses) > 3 * min(losses)
    axes.set(xlabel="epoch", ylabel="mean loss of a row", yscale="log" if is_wide else "linear")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def confusion(counts: Int[np.ndarray, "true told"], names: Sequence[str], title: str) -> Figure:
    """Rows add up to one; counts are written where there are any."""
    figure = Figure(figsize=(5.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(share, vmin=0, vmax=1, cmap="Blues")
    for true, told in np.argwhere(counts > 0):
        colour = "white" if share[true, told] > 0.5 else "black"
        axes.text(told, true, f"{counts[true, told]:,}", ha="center", va="center", color=colour, fontsize=7)
    places = range(len(names))
    axes.set(xlabel="foretold", ylabel="true", title=title)
    axes.set_xticks(places, names, rotation=45)
    axes.set_yticks(places, names)
    return figure


def shares(counts: Int[np.ndarray, " value"], names: Sequence[str], title: str) -> Figure:
    """How often each class occurs, on a logarithmic axis."""
    figure = Figure(figsize=(5.4, 2.8), layout="constrained")
    axes = figure.add_subplot()
    bars = axes.bar(range(len(names)), counts / max(counts.sum(), 1), color="#3b6ea5")
    axes.bar_label(bars, [f"{count:,}" for count in counts], fontsize=7)
    axes.set_xticks(range(len(names)), names)
    axes.set(yscale="log", ylabel="share", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def by_class(values: Float[np.ndarray, " value"], names: Sequence[str], title: str) -> Figure:
    """One share for every class."""
    figure = Figure(figsize=(5.4, 2.8), layout="constrained")
    axes = figure.add_subplot()
    axes.bar_label(axes.bar(range(len(names)), values, color="#3b6ea5"), fmt="%.2f", fontsize=7)
    axes.set_xticks(range(len(names)), names)
    axes.set(ylim=(0, 1.1), title=title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def frames(
    true: Float[np.ndarray, "example channel row column"],
    told: Float[np.ndarray, "example channel row column"],
    channels: Sequence[str],
) -> Figure:
    """For some moves: what came, what was foretold (unrounded), and the difference, channel by channel."""
    rows, columns = len(true) * 3, len(channels)
    figure = Figure(figsize=(1.1 * columns + 1, 1.1 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for example in range(len(true)):
        kinds = {
            "true": true[example],
            "foretold": told[example],
            "difference": told[example] - true[example],
        }
        for place, (kind, boards) in enumerate(kinds.items()):
            for channel, board in enumerate(boards):
                axes = grid[3 * example + place, channel]
                low = -1 if kind == "difference" else 0
                axes.imshow(board, vmin=low, vmax=1, cmap="RdBu_r" if low else "Blues")
                axes.set(xticks=[], yticks=[])
                if channel == 0:
                    axes.set_ylabel(kind, fontsize=7)
                if place == 0 and example == 0:
                    axes.set_title(channels[channel], fontsize=8)
    return figure
