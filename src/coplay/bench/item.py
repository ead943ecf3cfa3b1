"""One measurement, and how it is taken: the best of several repeats, after a warm-up."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Item:
    name: str
    figure: float
    unit: str
    against: str  # what it is compared with, measured in the same run
    ratio: float | None  # figure / that; None where there is nothing to compare with
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


def seconds_of(call: Callable[[], Any], repeats: int = 7, warm_up: int = 2) -> float:
    """The shortest of `repeats` calls: what the machine does when nobody disturbs it."""
    for _ in range(warm_up):
        jax.block_until_ready(call())
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        best = min(best, time.perf_counter() - began)
    return best
