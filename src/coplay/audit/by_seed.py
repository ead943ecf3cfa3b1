"""What a run's seeds show together: one bad seed is no verdict, a failure is what every seed shows."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from jaxtyping import Bool, Float

from coplay.audit.finding import DOUBTFUL, Effect, Outcome
from coplay.audit.phenomenon import LAST
from coplay.audit.subject import Subject
from coplay.audit.trained import UNTRAINED
from coplay.errors import BadInput


def judged(
    statistic: str,
    by_seed: Float[np.ndarray, " seed"],
    bad: float,
    doubtful: float,
    look: str,
    least: bool = True,
    **more: Any,
) -> Outcome:
    """A figure that is to be at least `bad` (at most, if not `least`), and better than `doubtful`."""
    sign = 1.0 if least else -1.0
    is_bad, is_doubtful = (sign * by_seed < sign * mark for mark in (bad, doubtful))
    return by_every_seed(statistic, by_seed, is_bad, is_doubtful, bad, look, **more)


def by_every_seed(
    statistic: str,
    by_seed: Float[np.ndarray, " seed"],
    is_bad: Bool[np.ndarray, " seed"],
    is_doubtful: Bool[np.ndarray, " seed"],
    threshold: float,
    look: str,
    **more: Any,
) -> Outcome:
    """Fails where every seed is bad, warns where most are not clear of doubt."""
    middle = float(np.median(by_seed))
    verdict = "fail" if is_bad.all() else "warn" if is_doubtful.mean() > 0.5 else "pass"
    made = {
        "figure": middle,
        "threshold": threshold,
        "verdict": verdict,
        "next": f"{middle:.3g} over {len(by_seed)} seeds; look at {look}",
        "n": len(by_seed),
        "drawing": by_seed_drawing(statistic, by_seed),
    }
    return Outcome(statistic, **(made | more))


def by_seed_drawing(title: str, by_seed: Float[np.ndarray, " seed"]) -> dict[str, Any]:
    groups = [{"name": "seeds", "values": [float(x) for x in by_seed]}]
    return {"kind": "boxes", "title": title, "unit": "", "groups": groups}


class Shown(NamedTuple):
    """What one seed shows of something that should not be."""

    size: float
    error: float  # standard
    p: float  # that chance alone shows as much


def weighed(statistic: str, seeds: list[Shown], bad: float, doubtful: float, look: str, **more) -> Outcome:
    """By the seed that shows it least; beyond `bad` it is for p to say, beyond `doubtful` it may warn."""
    least = min(seeds, key=lambda seed: seed.size)
    is_seen = least.size > doubtful and least.p < DOUBTFUL
    verdict = None if least.size > bad else "warn" if is_seen else "pass"
    wide = 3.8 * least.error
    return Outcome(
        statistic,
        figure=least.size,
        threshold=bad,
        verdict=verdict,
        next=f"{least.size:.3g} at least in each of {len(seeds)} seeds; look at {look}",
        p=least.p,
        effect=Effect(least.size, least.size - wide, least.size + wide),
        **more,
    )


# --- what a run told of itself -------------------------------------------------------------------


def at_end(subject: Subject, name: str) -> Float[np.ndarray, "seed seat"] | None:
    """A logged figure over the last fifth of training; None where it was not logged."""
    logged = _logged(subject, name)
    return None if logged is None else _last(*logged)


def by_third(subject: Subject, name: str) -> Float[np.ndarray, "seed third"] | None:
    """A logged figure over each third of training, over seats; None where a seed did not log it in each."""
    logged = _logged(subject, name)
    return None if logged is None else _thirds(*logged)


def _logged(subject: Subject, name: str) -> list[np.ndarray] | None:
    """Steps, seeds, seats and values."""
    if subject.run is None:
        raise BadInput(UNTRAINED)
    table = subject.run.read_metrics()
    rows = table.filter(pc.field("metric") == name) if table.num_rows else table
    if not rows.num_rows:
        return None
    return [rows[column].to_numpy() for column in ("step", "seed", "seat", "value")]


def _thirds(step: np.ndarray, seed: np.ndarray, seat: np.ndarray, value: np.ndarray) -> np.ndarray | None:
    share = (step - step.min()) / max(step.max() - step.min(), 1)
    third = np.minimum((3 * share).astype(int), 2)
    known = np.isfinite(value)
    groups = [[value[known & (seed == a) & (third == b)] for b in range(3)] for a in np.unique(seed)]
    if not all(len(group) for row in groups for group in row):
        return None
    return np.array([[group.mean() for group in row] for row in groups])


def _last(step: np.ndarray, seed: np.ndarray, seat: np.ndarray, value: np.ndarray) -> np.ndarray:
    late = step >= step.min() + (1.0 - LAST) * (step.max() - step.min())
    seed, seat, value = seed[late], seat[late], value[late]
    seeds, seats = np.unique(seed), np.unique(seat)
    return np.array([[np.nanmean(value[(seed == a) & (seat == b)]) for b in seats] for a in seeds])
