"""Figures that say, while a run still goes on, that a setting of it should be changed."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Bounds(NamedTuple):
    """What a figure should lie between, and what to do where it does not."""

    least: float
    most: float
    says: str


ALARMS = {
    "drift/effective_samples": Bounds(
        0.5, np.inf, "others move so fast that rounds count for half; lower learning_rate, clip or epochs"
    ),
    "hyper/smooth_share": Bounds(
        0.0, 1.0, "smoothness weighs more than what is to be learned; lower smooth_weight"
    ),
}


def alarms(metrics: Mapping[str, np.ndarray]) -> dict[str, str]:
    """A sentence for every figure whose median over these updates is out of bounds, by the figure's name."""
    found = {}
    for name, (least, most, says) in ALARMS.items():
        values = np.asarray(metrics.get(name, np.nan), np.float64)
        values = values[np.isfinite(values)]
        if len(values) and not least <= (middle := float(np.median(values))) <= most:
            bound = f"below {least:g}" if middle < least else f"above {most:g}"
            found[name] = f"{name} is {middle:.2g}, {bound}: {says}"
    return found
