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


def seconds_of(*calls: Callable[[], Any], repeats: int = 7, warm_up: int = 2) -> list[float]:
    """The shortest of `repeats` runs of each call: what the machine does when nobody disturbs it.

    What is to be compared is measured in turn, so that a disturbance strikes all alike.
    """
    best = [float("inf")] * len(calls)
    for repeat in range(warm_up + repeats):
        for index, call in enumerate(calls):
            began = time.perf_counter()
            jax.block_until_ready(call())
            if repeat >= warm_up:
                best[index] = min(best[index], time.perf_counter() - began)
    return best
