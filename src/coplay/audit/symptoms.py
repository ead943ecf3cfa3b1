"""What may be wrong at a rung, the first where it is told, and what becomes of it once weights are shared."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

from coplay.audit.climbing import Climbed
from coplay.audit.phenomenon import FEWEST_SEEDS, MARGIN
from coplay.evaluation.statistics import bootstrap_interval, iqm, pages_l


class Measured(NamedTuple):
    """A figure with its interval (95%), and whether the symptom is there; None: too few seeds to say."""

    value: float
    low: float
    high: float
    is_there: bool | None = None
    p: float | None = None


class Symptom(NamedTuple):
    says: str
    figure: str  # per seed
    measure: Callable[[Climbed, Climbed], Measured]  # of a rung and the first one
    is_ratio: bool = False  # compared by division


def spread(values: Float[np.ndarray, " seed"]) -> Measured:
    """The mean over seeds with Student's interval, which stays honest where seeds are few."""
    mean, number = float(np.mean(values)), len(values)
    if number < 2:
        return Measured(mean, np.nan, np.nan)
    error = float(np.std(values, ddof=1)) / math.sqrt(number)
    width = float(scipy.stats.t.ppf(0.975, number - 1)) * error
    return Measured(mean, mean - width, mean + width)


def _order(rung: Climbed, first: Climbed) -> Measured:
    found, p = spread(rung.per_seed["seat_order"]), pages_l(rung.returns).p
    return found._replace(is_there=p < 0.01 and abs(found.value) > MARGIN, p=p)


def _return(rung: Climbed, first: Climbed) -> Measured:
    """Its level; the symptom is a loss against the first rung."""
    values = rung.per_seed["return"]
    lost = spread(values - first.per_seed["return"])
    is_there = lost.high < 0 and lost.value < -MARGIN * rung.to_earn
    return Measured(iqm(values), *bootstrap_interval(values, iqm), is_there)


def _value_loss(rung: Climbed, first: Climbed) -> Measured:
    """By what the first rung's is multiplied."""
    ratio = compared(rung, first, "value_loss")
    return ratio._replace(is_there=ratio.low > 1 and ratio.value > 1.5)


def _explained(rung: Climbed, first: Climbed) -> Measured:
    found = spread(rung.per_seed["value_explained_variance"])
    return found._replace(is_there=found.high < 0)


def _skill(rung: Climbed, first: Climbed) -> Measured:
    found = spread(rung.per_seed["opponent_skill"])
    return found._replace(is_there=found.high < 0.3)


SYMPTOMS = {
    "seat_order": Symptom("seats are ranked by their numbers", "seat_order", _order),
    "return": Symptom("less is earned than on the first rung", "return", _return),
    "value_loss": Symptom("the critic errs more than on the first rung", "value_loss", _value_loss, True),
    "explained_variance": Symptom(
        "the critic explains less than nothing", "value_explained_variance", _explained
    ),
    "opponent_skill": Symptom("co-players are hardly foreseen", "opponent_skill", _skill),
}


def measured(rung: Climbed, first: Climbed, symptom: str) -> Measured | None:
    """None where the rung does not tell. Few seeds give figures and no judgement."""
    figure = SYMPTOMS[symptom].figure
    if figure not in rung.per_seed or (symptom != "opponent_skill" and figure not in first.per_seed):
        return None
    found = SYMPTOMS[symptom].measure(rung, first)
    return found if rung.seeds >= FEWEST_SEEDS else found._replace(is_there=None)


def compared(rung: Climbed, other: Climbed, symptom: str) -> Measured:
    """The difference of two rungs, or their ratio, seed by seed."""
    figure, is_ratio = SYMPTOMS[symptom].figure, SYMPTOMS[symptom].is_ratio
    ours, theirs = rung.per_seed[figure], other.per_seed[figure]
    if not is_ratio:
        return spread(ours - theirs)
    found = spread(np.log(ours) - np.log(theirs))
    return Measured(math.exp(found.value), math.exp(found.low), math.exp(found.high))


class First(NamedTuple):
    """Where a symptom appears first, and how far that rung is from the one below."""

    symptom: str
    rung: str | None
    below: str | None
    difference: Measured | None
    says: str


def first_rung(climbed: list[Climbed], symptom: str) -> First:
    ladder = proper(climbed)
    found = [(place, measured(rung, ladder[0], symptom)) for place, rung in enumerate(ladder)]
    told = [(place, figure) for place, figure in found if figure is not None]
    if not told:
        return First(symptom, None, None, None, "no rung tells")
    if any(figure.is_there is None for _, figure in told):
        return First(symptom, None, None, None, _too_few(ladder[0].seeds))
    there = [place for place, figure in told if figure.is_there]
    if not there:
        return First(symptom, None, None, None, "on no rung")
    place, name = there[0], ladder[there[0]].rung.name
    if place == told[0][0]:
        why = "the first rung: no part brings it" if place == 0 else "the first rung that tells"
        return First(symptom, name, None, None, f"first at {name}, {why}")
    below = ladder[place - 1]
    if SYMPTOMS[symptom].figure not in below.per_seed:
        return First(symptom, name, None, None, f"first at {name}; {below.rung.name} does not tell")
    difference = compared(ladder[place], below, symptom)
    return First(symptom, name, below.rung.name, difference, _beside(name, below, difference, symptom))


def proper(climbed: list[Climbed]) -> list[Climbed]:
    """Without twins, unless there is nothing else."""
    return [rung for rung in climbed if not rung.rung.twin_of] or climbed


def _too_few(seeds: int) -> str:
    return f"not enough seeds: {seeds}, and it takes {FEWEST_SEEDS} to judge"


def _beside(name: str, below: Climbed, difference: Measured, symptom: str) -> str:
    what = "times" if SYMPTOMS[symptom].is_ratio else "more than"
    interval = f"{difference.value:.3g} {what} {below.rung.name}'s"
    interval += f" (95% {difference.low:.3g} to {difference.high:.3g})"
    doubt = "" if _is_told(difference, symptom) else "; these two rungs cannot be told apart"
    return f"first at {name}: {interval}{doubt}"


def _is_told(difference: Measured, symptom: str) -> bool:
    same = 1.0 if SYMPTOMS[symptom].is_ratio else 0.0
    return difference.low > same or difference.high < same


class Shared(NamedTuple):
    """An order of seats with weights of one's own against shared ones."""

    rung: str
    difference: Measured | None  # of the order: shared less independent
    says: str


def sharing(climbed: list[Climbed]) -> list[Shared]:
    """For every rung that was climbed both ways."""
    by_name = {rung.rung.name: rung for rung in climbed}
    pairs = [(by_name[twin.rung.twin_of], twin) for twin in climbed if twin.rung.twin_of in by_name]
    return [_shared(rung, twin) for rung, twin in pairs]


def _shared(rung: Climbed, twin: Climbed) -> Shared:
    independent, shared = sorted((rung, twin), key=lambda one: one.rung.parameters != "per_agent")
    name = rung.rung.name
    alone, together = (measured(one, one, "seat_order") for one in (independent, shared))
    if alone is None or together is None:
        return Shared(name, None, "seats cannot be compared")
    difference = compared(shared, independent, "seat_order")
    if alone.is_there is None or together.is_there is None:
        return Shared(name, difference, _too_few(rung.seeds))
    return Shared(name, difference, _order_says(alone, together, difference))


def _order_says(alone: Measured, together: Measured, difference: Measured) -> str:
    if together.is_there:
        stays = "stays under shared weights" if alone.is_there else "is there under shared weights only"
        return f"the order of seats {stays}: look at envs and book-keeping"
    if not alone.is_there:
        return "no order of seats, shared or not"
    if not _is_told(difference, "seat_order"):
        return "an order of seats with weights of one's own; too few seeds to say that sharing ends it"
    return "the order of seats goes with sharing: look at data and keys per seat"
