"""What can be trained from recorded play."""

from collections.abc import Callable
from typing import NamedTuple


class Part(NamedTuple):
    """Weights are those of one member in `init` and `loss`, [member, ...] elsewhere."""

    members: int
    batch: int  # rows in a step, unless settings say otherwise
    most: int  # rows that a loss or a figure is measured on
    init: Callable  # key -> weights
    rows: Callable  # Episodes, numbers of episodes -> rows [row, ...], the episode of each
    loss: Callable  # weights, rows, key -> what each row costs
    judge: Callable  # weights, rows, key -> figures by name: numbers and tables
    pictures: Callable  # weights, rows -> matplotlib Figure by name
    headlines: tuple[str, ...]  # figures to show after every epoch
    learned_rows: Callable | None = None  # as `rows`, those to learn from; None: the same
    score: Callable | None = None  # as `loss`, what epochs are compared by; None: the same
    beside: tuple[str, ...] = ()  # weights by name that only read what the others learn
