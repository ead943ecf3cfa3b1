"""Two runs that should differ and do not: which settings are others, and for how long figures are equal."""

import itertools
import tomllib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from coplay.training.run_folder import RunFolder

LONG = 3  # updates: shorter stretches are chance
BESIDE = ("description", "saving.", "evaluation.")  # settings that no learner hears of
COUNTS = ("count/", "time/")  # figures that are equal, or differ, whatever is learned


def coincidence(one: RunFolder, other: RunFolder) -> dict[str, Any]:
    """Settings that differ, as the two have them; and by metric, for how many updates on end both are equal
    to the bit in some seed, where those are three or more in which something happens."""
    return {
        "settings": other_settings(one.experiment_toml, other.experiment_toml),
        "equal_updates": equal_updates(one.read_metrics(), other.read_metrics()),
    }


def other_settings(one: str, other: str) -> dict[str, list[Any]]:
    """By name, what each has; None where one has none."""
    left, right = (dict(_flat(tomllib.loads(text))) for text in (one, other))
    names = [name for name in dict.fromkeys([*left, *right]) if not name.startswith(BESIDE)]
    return {n: [left.get(n), right.get(n)] for n in names if left.get(n) != right.get(n)}


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, value in table.items():
        found += _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(prefix + name, value)]
    return found


def equal_updates(one: pa.Table, other: pa.Table) -> dict[str, int]:
    """By metric, mean over seats, at steps that both wrote; the seed for which it is longest."""
    keys = ["metric", "seed", "step"]
    left, right = (table.group_by(keys).aggregate([("value", "mean")]) for table in (one, other))
    both = left.join(right, keys, join_type="inner", right_suffix="_other")
    both = both.sort_by([(name, "ascending") for name in keys])
    place = np.array([f"{m} {s}" for m, s in zip(*(both[k].to_pylist() for k in keys[:2]), strict=True)])
    values = np.stack([both[name].to_numpy() for name in ("value_mean", "value_mean_other")])
    starts = np.flatnonzero(place[1:] != place[:-1]) + 1
    found: dict[str, int] = {}
    for curves, where in zip(np.split(values, starts, axis=1), np.split(place, starts), strict=True):
        metric = str(where[0]).rpartition(" ")[0] if len(where) else ""
        if metric and not metric.startswith(COUNTS):
            found[metric] = max(found.get(metric, 0), lively_stretch(*curves))
    return {metric: length for metric, length in found.items() if length >= LONG}


def lively_stretch(
    one: Float[np.ndarray, "point *seat"], other: Float[np.ndarray, "point *seat"], values: int = 2
) -> int:
    """The longest stretch that is equal to the bit, for all seats at once, and passes through so many
    different values: two runs may well stand still at the same height."""
    left, right = (
        np.ascontiguousarray(x, np.float64).view(np.uint64).reshape(len(x), -1) for x in (one, other)
    )
    ends = np.flatnonzero(np.concatenate([[True], (left != right).any(axis=1), [True]]))
    stretches = [left[first : last - 1] for first, last in itertools.pairwise(ends)]
    return max((len(x) for x in stretches if len(np.unique(x, axis=0)) >= values), default=0)
