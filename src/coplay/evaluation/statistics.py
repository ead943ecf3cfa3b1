"""What may be claimed from a handful of seeds: intervals, comparisons of groups, the order of seats.

A table is [seed, seat]: one score per seat and training seed. Seeds are the independent draws, so every
interval resamples seeds. Null distributions are enumerated where that is feasible and drawn where not.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float, Int

MOST_ENUMERATED_SEATS = 10  # Page: 2**seats sets of ranks, each with every reachable sum
MOST_ENUMERATED_STATES = 2_000_000  # Friedman: reachable rank sums times orders of a row


class Interval(NamedTuple):
    low: float
    high: float


class Improvement(NamedTuple):
    """The probability that a run of `a` beats a run of `b`; ties count half."""

    probability: float
    low: float
    high: float


class Gap(NamedTuple):
    """How far the best seat is above the worst, both chosen on all seeds, and the interval of that pair."""

    gap: float
    low: float
    high: float
    highest: int
    lowest: int


class PagesL(NamedTuple):
    statistic: float
    p_increasing: float  # later seats score higher
    p_decreasing: float  # earlier seats score higher
    p: float  # the smaller one, doubled
    exact: bool


class Friedman(NamedTuple):
    statistic: float  # chi-square form, corrected for ties
    p: float
    exact: bool


# --- levels and comparisons --------------------------------------------------------------------------


def bootstrap_interval(
    values: np.ndarray,
    statistic: Callable[[np.ndarray], float] = np.mean,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile interval of `statistic` when the rows of `values` are drawn again with replacement.

    One row says nothing about spread: the interval is then (nan, nan). Below about ten rows it is
    somewhat too narrow, as percentile intervals are.
    """
    values = np.asarray(values, float)
    if len(values) < 2:
        return Interval(np.nan, np.nan)
    random = np.random.default_rng(seed)
    # One resample at a time: all at once would need draws x rows of memory.
    drawn = [float(statistic(values[random.integers(len(values), size=len(values))])) for _ in range(draws)]
    return _percentiles(drawn, level)


def bootstrap_difference(
    a: np.ndarray,
    b: np.ndarray,
    statistic: Callable[..., float | np.ndarray] = np.mean,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """The interval of statistic(a) - statistic(b), both resampled; (nan, nan) where one has a single row."""
    if min(len(a), len(b)) < 2:
        return Interval(np.nan, np.nan)
    random = np.random.default_rng(seed)
    of_a = [statistic(random.choice(a, len(a))) for _ in range(draws)]
    of_b = [statistic(random.choice(b, len(b))) for _ in range(draws)]
    return _percentiles(np.array(of_a) - np.array(of_b), level)


def iqm(values: np.ndarray) -> float:
    """Interquartile mean: what is left after a quarter of the values is cut from each end.

    The cut is rounded down to whole values, as rliable does: of 5 values the middle 3 remain.
    """
    ordered = np.sort(np.asarray(values, float), axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def probability_of_improvement(
    a: np.ndarray, b: np.ndarray, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> Improvement:
    """Mann-Whitney's P(a > b) + P(a = b) / 2, with an interval over runs of both."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    wins = (a[:, None] > b[None, :]) + 0.5 * (a[:, None] == b[None, :])
    rng = np.random.default_rng(seed)
    times_a, times_b = (rng.multinomial(n, np.full(n, 1 / n), size=draws) for n in wins.shape)
    drawn = ((times_a / len(a)) @ wins * (times_b / len(b))).sum(axis=1)
    enough = len(a) > 1 and len(b) > 1
    interval = _percentiles(drawn, level) if enough else Interval(np.nan, np.nan)
    return Improvement(float(wins.mean()), *interval)


def _percentiles(drawn, level: float) -> Interval:
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def coincide(curve_a: np.ndarray, curve_b: np.ndarray) -> int:
    """The longest stretch of points at which two curves are equal to the bit, index by index.

    NaN equals the same NaN; 0.0 does not equal -0.0. The longer curve's tail is not compared.
    """
    length = min(len(curve_a), len(curve_b))
    bits = [np.asarray(curve[:length], np.float64).view(np.uint64) for curve in (curve_a, curve_b)]
    longest = run = 0
    for equal in bits[0] == bits[1]:
        run = run + 1 if equal else 0
        longest = max(longest, run)
    return longest


# --- seats -------------------------------------------------------------------------------------------


def largest_seat_gap(table: np.ndarray, level: float = 0.95, draws: int = 2000, seed: int = 0) -> Gap:
    """The seat with the highest mean minus the one with the lowest.

    The two seats are chosen once, on all seeds, and the interval resamples seeds for that pair. Having
    been chosen as extremes, their gap is above zero even among equals: judge it beside `friedman`.
    """
    table = np.asarray(table, float)
    means = table.mean(axis=0)
    highest, lowest = int(means.argmax()), int(means.argmin())
    difference = table[:, highest] - table[:, lowest]
    interval = bootstrap_interval(difference, np.mean, level, draws, seed)
    return Gap(float(difference.mean()), *interval, highest, lowest)


def pages_l(table: np.ndarray, draws: int = 100_000, seed: int = 0) -> PagesL:
    """Page's test for an order of the seats: L = sum over seats of (seat number) x (sum of its ranks).

    Ranks are taken within each seed, ties share their middle rank, and the null permutes every seed's
    own ranks, so ties are exact too.
    """
    ranks = _doubled_ranks(table)
    weights = np.arange(1, ranks.shape[1] + 1)
    observed = int((ranks * weights[None, :]).sum())
    exact = ranks.shape[1] <= MOST_ENUMERATED_SEATS
    if exact:
        lowest, chance = _exact_null_of_l(ranks)
        increasing = float(chance[observed - lowest :].sum())
        decreasing = float(chance[: observed - lowest + 1].sum())
    else:
        drawn = (_permuted_rows(ranks, draws, seed) * weights[None, None, :]).sum(axis=(1, 2))
        increasing, decreasing = _drawn_p(drawn >= observed), _drawn_p(drawn <= observed)
    increasing, decreasing = min(1.0, increasing), min(1.0, decreasing)
    return PagesL(observed / 2, increasing, decreasing, min(1.0, 2 * min(increasing, decreasing)), exact)


def friedman(table: np.ndarray, draws: int = 100_000, seed: int = 0) -> Friedman:
    """Friedman's test that no seat stands out, against every order of every seed's own ranks."""
    ranks = _doubled_ranks(table)
    observed = _squared_sums(ranks.sum(axis=0))
    null = _exact_null_of_friedman(ranks)
    if null is None:
        drawn = _squared_sums(_permuted_rows(ranks, draws, seed).sum(axis=1))
        p = _drawn_p(np.asarray(drawn >= observed))
    else:
        sums, chance = null
        p = min(1.0, float(chance[_squared_sums(sums) >= observed].sum()))
    return Friedman(_chi_square_form(ranks), p, null is not None)


def _doubled_ranks(table: np.ndarray) -> Int[np.ndarray, "seed seat"]:
    """Middle ranks within each seed, times two so that they are whole numbers."""
    table = np.asarray(table, float)
    if table.ndim != 2 or table.shape[0] < 1 or table.shape[1] < 2:
        raise ValueError(f"a table needs a row per seed and at least two seats, not shape {table.shape}")
    if np.isnan(table).any():
        raise ValueError("the table holds NaN: a score is missing")
    return np.rint(2 * scipy.stats.rankdata(table, axis=1)).astype(np.int64)


def _exact_null_of_l(ranks: Int[np.ndarray, "seed seat"]) -> tuple[int, Float[np.ndarray, " value"]]:
    """The lowest possible (doubled) L and the probability of it and every whole number above."""
    lowest, chance = 0, np.ones(1)
    rows, counts = np.unique(np.sort(ranks, axis=1), axis=0, return_counts=True)
    for row, count in zip(rows, counts, strict=True):
        row_lowest, row_chance = _null_of_one_row(row)
        for _ in range(count):
            lowest, chance = lowest + row_lowest, np.convolve(chance, row_chance)
    return lowest, chance


def _null_of_one_row(row: Int[np.ndarray, " seat"]) -> tuple[int, Float[np.ndarray, " value"]]:
    """Distribution of sum(seat number x rank) over all orders, by dynamic programming over sets of ranks.

    After j seats every set of j ranks is equally likely; `ways[set]` is the distribution of the sum so far.
    """
    seats = len(row)
    top = int((np.sort(row) * np.arange(1, seats + 1)).sum())
    ways = {0: np.eye(1, top + 1)[0]}
    for number in range(1, seats + 1):
        following: dict[int, np.ndarray] = {}
        for taken, sums in ways.items():
            for index in range(seats):
                if not taken >> index & 1:
                    moved = following.setdefault(taken | 1 << index, np.zeros(top + 1))
                    shift = number * int(row[index])
                    moved[shift:] += sums[: top + 1 - shift] / (seats + 1 - number)
        ways = following
    (chance,) = ways.values()
    lowest = int(np.flatnonzero(chance)[0])
    return lowest, chance[lowest:]


def _exact_null_of_friedman(ranks: Int[np.ndarray, "seed seat"]):
    """Every reachable set of rank sums [state, seat] and its probability; None where there are too many.

    Seats are alike under the null and the statistic ignores their order, so sums are kept sorted.
    """
    seats = ranks.shape[1]
    if seats > 6:
        return None
    sums, chance = np.zeros((1, seats), np.int64), np.ones(1)
    for row in ranks:
        orders = np.unique(np.array(list(itertools.permutations(row))), axis=0)
        if len(sums) * len(orders) > MOST_ENUMERATED_STATES:
            return None
        reached = np.sort((sums[:, None, :] + orders[None, :, :]).reshape(-1, seats), axis=1)
        weight = np.repeat(chance / len(orders), len(orders))
        sums, chance = _add_up_equal(reached, weight)
    return sums, chance


def _add_up_equal(reached: Int[np.ndarray, "state seat"], weight: Float[np.ndarray, " state"]):
    base = int(reached.max()) + 1
    code = reached @ base ** np.arange(reached.shape[1])
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return reached[first], np.bincount(inverse, weights=weight)


def _squared_sums(sums: Int[np.ndarray, "*draw seat"]) -> np.ndarray | np.integer:
    """Friedman's statistic up to constants of the null."""
    return (sums**2).sum(axis=-1)


def _chi_square_form(ranks: Int[np.ndarray, "seed seat"]) -> float:
    """Seats' rank sums about their mean, over what chance gives; 0 where every seed is one tie."""
    seats = ranks.shape[1]
    spread = ((ranks - (seats + 1)) ** 2).sum() / (seats - 1)
    between = ((ranks - (seats + 1)).sum(axis=0) ** 2).sum()
    return float(between / spread) if spread else 0.0


def _permuted_rows(ranks: Int[np.ndarray, "seed seat"], draws: int, seed: int):
    rng = np.random.default_rng(seed)
    return rng.permuted(np.broadcast_to(ranks, (draws, *ranks.shape)), axis=2)


def _drawn_p(as_extreme: np.ndarray) -> float:
    """The observed table counts as one of the draws, so that no p is 0."""
    return float((1 + as_extreme.sum()) / (1 + len(as_extreme)))


# --- two groups ------------------------------------------------------------------------------------

MOST_SPLITS = 200_000  # ten runs against ten have 184,756


def permutation_test(a: np.ndarray, b: np.ndarray, draws: int = 100_000, seed: int = 0) -> float:
    """Two-sided p of a difference of means under every way of dealing the values to the two groups; where
    there are too many ways, of drawn ones. Three against three cannot be below 0.1."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    together = np.concatenate([a, b])
    observed = abs(a.mean() - b.mean()) - 1e-12  # equal up to rounding counts as equal
    if math.comb(len(together), len(a)) <= MOST_SPLITS:
        chosen = np.array(list(itertools.combinations(range(len(together)), len(a))))
        return float((_differences(together, chosen) >= observed).mean())
    rng = np.random.default_rng(seed)
    order = np.argsort(rng.random((draws, len(together))), axis=1)[:, : len(a)]
    return _drawn_p(_differences(together, order) >= observed)


def _differences(together: np.ndarray, chosen: Int[np.ndarray, "split member"]) -> np.ndarray:
    """Between the mean of the chosen and the mean of the others, without sign."""
    size, total = chosen.shape[1], together.sum()
    added = together[chosen].sum(axis=1)
    return np.abs(added / size - (total - added) / (len(together) - size))


def holm(p_values: Sequence[float]) -> list[float]:
    """p values as they may be quoted when so many questions were asked (Holm's step-down)."""
    order = np.argsort(p_values, kind="stable")
    adjusted, highest = np.empty(len(order)), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted.tolist()
