"""Is there anything to explain? What a run's own curves say: seeds, levels, the order of seats, collapse.

A failure here says that something is real, not where it comes from: the other areas tell that, so that any
failure of theirs explains it.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int

from coplay.audit.finding import Check, Effect, Outcome, not_run
from coplay.audit.subject import Budget, Subject
from coplay.errors import BadInput
from coplay.evaluation.coincidence import lively_stretch
from coplay.evaluation.compare import curve
from coplay.evaluation.statistics import (
    bootstrap_interval,
    friedman,
    iqm,
    largest_seat_gap,
    pages_l,
)
from coplay.training.run_folder import RunFolder
from coplay.types import Environment, Key

LAST = 0.2  # share of training that counts as its end
EQUAL_UPDATES = 3  # two seeds alike for so long are one seed
FEWEST_SEEDS = 5
MARGIN = 0.05  # of what there is to earn beyond random play
MOST_POINTS = 120  # more than a curve on a page can show
TELLS_WHERE = "`coplay ablate` tells with which part of the learner it begins"
AFTER_A_LOSS = "look at the age of what is learned from, the critic and the search's targets"
NO_RUN = "this is an experiment and no run: name a run folder"


def seeds(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are two seeds the same run?"""
    statistic = "longest stretch of updates in which two seeds pay all seats the same and do not stand still"
    if subject.run is None:
        return not_run(statistic, NO_RUN)
    returns = by_seed_and_seat(subject.run)
    if len(returns.value) < 2:
        return not_run(statistic, "the run has one seed")
    pairs = list(itertools.combinations(range(len(returns.value)), 2))
    longest = [_equal_updates(returns.value[a], returns.value[b]) for a, b in pairs]
    figure, (a, b) = max(longest), (returns.seed[i] for i in pairs[int(np.argmax(longest))])
    is_one = figure >= EQUAL_UPDATES
    says = f"seeds {a} and {b} are equal for {figure} updates: is the seed passed on?" if is_one else ""
    verdict = "fail" if is_one else "pass"
    return Outcome(statistic, float(figure), float(EQUAL_UPDATES), verdict, says, "updates", len(pairs))


def _equal_updates(one: Float[np.ndarray, "step seat"], other: Float[np.ndarray, "step seat"]) -> int:
    """Of updates that ended somebody's episode. Two seeds at the ceiling may stumble alike once, so a stretch
    must pass through as many different returns as it takes updates to call them equal."""
    told = ~(np.isnan(one) & np.isnan(other)).all(axis=1)
    return lively_stretch(one[told], other[told], EQUAL_UPDATES)


def level(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """What every seat earned at the end; told, not judged."""
    statistic = "return in the last fifth of training, interquartile mean over seeds"
    if subject.run is None:
        return not_run(statistic, NO_RUN)
    table = at_end(subject.run)
    per_seed = table.mean(axis=1)
    low, high = bootstrap_interval(per_seed, iqm) if len(per_seed) > 1 else (np.nan, np.nan)
    return Outcome(
        statistic,
        figure=float(iqm(per_seed)),
        verdict="pass",
        unit="return",
        n=len(per_seed),
        effect=Effect(float(iqm(per_seed)), float(low), float(high)),
        by_seat=tuple(float(x) for x in table.mean(axis=0)),
        drawing={"kind": "several", "drawings": [_boxes(table), _curves(subject.run)]},
    )


def _boxes(table: Float[np.ndarray, "seed seat"]) -> dict[str, Any]:
    groups = [{"name": f"seat {seat}", "values": values.tolist()} for seat, values in enumerate(table.T)]
    return {
        "kind": "boxes",
        "title": "the last fifth of training, by seed",
        "unit": "return",
        "groups": groups,
    }


def _curves(run: RunFolder) -> dict[str, Any]:
    """By seat: the mean over seeds, and from the lowest to the highest."""
    rows = run.read_metrics().filter(pc.field("metric") == "return")
    rows = rows.filter(pa.array(np.isfinite(rows["value"].to_numpy())))
    drawn = [
        {"name": f"seat {seat}", **_curve(rows, int(seat))} for seat in np.unique(rows["seat"].to_numpy())
    ]
    title = "training: mean over seeds, band from the lowest to the highest"
    return {"kind": "lines", "title": title, "x_name": "steps", "y_name": "return", "lines": drawn}


def _curve(rows: pa.Table, seat: int) -> dict[str, list[float]]:
    """Neighbours averaged until no more than `MOST_POINTS` are left."""
    over_seeds = rows.filter(pc.field("seat") == seat).group_by("step")
    points = over_seeds.aggregate([("value", "mean"), ("value", "min"), ("value", "max")]).sort_by("step")
    columns = {"x": "step", "y": "value_mean", "low": "value_min", "high": "value_max"}
    parts = min(MOST_POINTS, points.num_rows)
    return {
        name: [float(part.mean()) for part in np.array_split(points[column].to_numpy(), parts)]
        for name, column in columns.items()
    }


def order(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do seats come out in the order of their numbers?"""
    statistic = "Page's L of seats ranked within seeds, either direction"
    return _of_seats(subject, statistic, lambda table: pages_l(table).p, _ranks)


def any_seat(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does any seat stand out?"""
    statistic = "Friedman's test of seats ranked within seeds"
    return _of_seats(subject, statistic, lambda table: friedman(table).p, _seats_apart)


def _of_seats(subject: Subject, statistic: str, p_of, drawing_of) -> Outcome:
    why = _cannot_compare_seats(subject)
    if why or subject.run is None:
        return not_run(statistic, why)
    table = at_end(subject.run)
    gap = largest_seat_gap(table)
    margin = MARGIN * _scale(subject.env, table)
    return Outcome(
        statistic,
        figure=gap.gap,
        threshold=margin,
        next=f"seat {gap.highest} earns {gap.gap:.3g} more than seat {gap.lowest}; {TELLS_WHERE}",
        unit="return",
        n=len(table),
        p=p_of(table),
        effect=Effect(gap.gap, gap.low, gap.high),
        by_seat=tuple(float(x) for x in table.mean(axis=0)),
        drawing=drawing_of(table, margin),
    )


def _ranks(table: Float[np.ndarray, "seed seat"], margin: float) -> dict[str, Any]:
    """Within each seed, 1 for the seat that earned least; equals share their middle rank."""
    below = (table[:, :, None] > table[:, None, :]).sum(axis=-1)
    equal = (table[:, :, None] == table[:, None, :]).sum(axis=-1)
    return {
        "kind": "matrix",
        "title": "ranks of seats within seeds; 1 earned least",
        "row_name": "seed",
        "column_name": "seat",
        "rows": [str(seed) for seed in range(len(table))],
        "columns": [str(seat) for seat in range(table.shape[1])],
        "values": (below + (equal + 1) / 2).tolist(),
    }


def _seats_apart(table: Float[np.ndarray, "seed seat"], margin: float) -> dict[str, Any]:
    """Each seat less the mean of the others in the same seed."""
    seats = table.shape[1]
    apart = (table - table.mean(axis=1, keepdims=True)) * (seats / (seats - 1))
    rows = []
    for seat, values in enumerate(apart.T):
        low, high = bootstrap_interval(values, np.mean)
        rows.append({"name": f"seat {seat}", "value": float(values.mean()), "low": low, "high": high})
    title = "a seat less the others, mean over seeds"
    return {"kind": "intervals", "title": title, "unit": "return", "margin": margin, "rows": rows}


def _cannot_compare_seats(subject: Subject) -> str:
    if subject.run is None:
        return NO_RUN
    if len(set(subject.env.alike)) > 1:
        return "seats are not all alike in this game"
    if len(set(subject.lineup)) > 1:
        return "seats are not all played alike"
    number = len(at_end(subject.run))
    seeds = "1 seed" if number == 1 else f"{number} seeds"
    return "" if number >= FEWEST_SEEDS else f"{seeds} cannot rank seats; train {FEWEST_SEEDS} or more"


def collapse(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Was it better before?"""
    statistic = "return of the best fifth of training less that of the last"
    if subject.run is None:
        return not_run(statistic, NO_RUN)
    returns = curve(subject.run, "return")[1]
    number = max(1, round(LAST * returns.shape[1]))
    if returns.shape[1] < 2 * number + 1:
        return not_run(statistic, "the run is too short to have a best part")
    lost = _lost(returns, number)
    if len(lost) < 2:
        return not_run(statistic, "a loss that one seed shows may be chance; train 2 or more")
    low, high = bootstrap_interval(lost, np.mean)
    margin = MARGIN * _scale(subject.env, at_end(subject.run))
    is_lost = low > margin
    return Outcome(
        statistic,
        figure=float(lost.mean()),
        threshold=margin,
        verdict="fail" if is_lost else "pass",
        next=f"it was better before, by {lost.mean():.3g}; {AFTER_A_LOSS}" if is_lost else "",
        unit="return",
        n=len(lost),
        effect=Effect(float(lost.mean()), float(low), float(high)),
    )


def _lost(returns: Float[np.ndarray, "seed step"], number: int) -> Float[np.ndarray, " told"]:
    """The best so many updates on end, over seeds, less the last; of seeds that ended episodes in both."""
    starts = range(returns.shape[1] - number + 1)
    parts = np.array([_mean(returns[:, start : start + number], axis=1) for start in starts])
    lost = parts[np.nanargmax(_mean(parts, axis=1))] - parts[-1]
    return lost[np.isfinite(lost)]


class Returns(NamedTuple):
    """What every seed logged for every seat; NaN where it ended no episode."""

    seed: Int[np.ndarray, " seed"]
    step: Int[np.ndarray, " step"]
    value: Float[np.ndarray, "seed step seat"]


def by_seed_and_seat(run: RunFolder) -> Returns:
    table = run.read_metrics()
    rows = table.filter(pc.field("metric") == "return")
    if rows.num_rows == 0:
        raise BadInput(f"{run.path} has no returns: it was exported without them, or never trained")
    names = ("seed", "step", "seat")
    (seed, step, seat), places = zip(
        *(np.unique(rows[name].to_numpy(), return_inverse=True) for name in names), strict=True
    )
    value = np.full((len(seed), len(step), len(seat)), np.nan)
    value[places] = rows["value"].to_numpy()
    return Returns(seed, step, value)


def at_end(run: RunFolder) -> Float[np.ndarray, "seed seat"]:
    """Mean return of every seed and seat over the last fifth of training."""
    returns = by_seed_and_seat(run)
    first, last = returns.step[0], returns.step[-1]
    return _mean(returns.value[:, returns.step >= first + (1.0 - LAST) * (last - first)], axis=1)


def _mean(values: Float[np.ndarray, "..."], axis: int) -> Float[np.ndarray, "..."]:
    """Of what is known; NaN where nothing is."""
    return np.ma.masked_invalid(values).mean(axis=axis).filled(np.nan)


def _scale(env: Environment, table: Float[np.ndarray, "seed seat"]) -> float:
    """What there is to earn beyond random play; the largest return seen, where the game does not say, or
    where all that one wins another loses."""
    to_earn = 0.0 if env.ceiling is None else env.ceiling - (env.random_return or 0.0)
    return to_earn if to_earn > 0 else float(np.abs(table).max())


PHENOMENON = (
    Check("seeds", "phenomenon", "Are the seeds different runs?", "exact", "cli", seeds, ("seeds_apart",)),
    Check("level", "phenomenon", "What did every seat earn?", "judgement", "", level),
    Check("order", "phenomenon", "Are seats ranked by number?", "test", "", order, ("seeds",)),
    Check("any_seat", "phenomenon", "Does a seat stand out?", "test", "", any_seat, ("seeds", "order")),
    Check("collapse", "phenomenon", "Was it better before?", "judgement", "", collapse),
)
