"""Nulls worked by hand, against SciPy where it has them, and coverage where there is no closed form."""

import itertools

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from coplay.evaluation import statistics


def ordered(seeds: int, seats: int) -> np.ndarray:
    return np.tile(np.arange(float(seats)), (seeds, 1))


def brute_force(table: np.ndarray, statistic) -> np.ndarray:
    """The statistic of every table that permutes each seed's own ranks."""
    ranks = scipy.stats.rankdata(table, axis=1)
    orders = [list(itertools.permutations(row)) for row in ranks]
    return np.array([statistic(np.array(rows)) for rows in itertools.product(*orders)])


def page_statistic(ranks: np.ndarray) -> float:
    return float((ranks.sum(axis=0) * np.arange(1, ranks.shape[1] + 1)).sum())


def friedman_statistic(ranks: np.ndarray) -> float:
    return float((ranks.sum(axis=0) ** 2).sum())


# --- Page ------------------------------------------------------------------------------------------


def test_five_seeds_in_perfect_order_give_the_smallest_p_there_is():
    # one order out of 4! for each of 5 seeds: 24**-5 = 1.2559e-7; L = 5 * (1 + 4 + 9 + 16) = 150
    result = statistics.pages_l(ordered(5, 4))
    assert result.statistic == 150 and result.exact
    assert_allclose(result.p_increasing, 24.0**-5)
    assert_allclose(result.p, 2 * 24.0**-5)
    assert_allclose(result.p_decreasing, 1.0)


def test_reversing_the_seats_swaps_the_directions():
    table = np.random.default_rng(3).normal(size=(6, 4))
    forward, backward = statistics.pages_l(table), statistics.pages_l(table[:, ::-1])
    assert_allclose(forward.p_increasing, backward.p_decreasing)
    assert_allclose(forward.p, backward.p)


@pytest.mark.parametrize(("seeds", "seats"), [(2, 3), (5, 4), (8, 4), (4, 8)])
def test_page_agrees_with_scipy_where_there_are_no_ties(seeds, seats):
    table = np.random.default_rng(seeds).normal(size=(seeds, seats))
    expected = scipy.stats.page_trend_test(table, method="exact")
    result = statistics.pages_l(table)
    assert result.statistic == expected.statistic
    assert_allclose(result.p_increasing, expected.pvalue)


def test_page_counts_ties_by_every_order_of_their_middle_ranks():
    table = np.array([[1.0, 1.0, 2.0], [0.0, 3.0, 3.0], [5.0, 4.0, 6.0]])
    null = brute_force(table, page_statistic)
    observed = page_statistic(scipy.stats.rankdata(table, axis=1))
    result = statistics.pages_l(table)
    assert result.statistic == observed
    assert_allclose(result.p_increasing, (null >= observed).mean())
    assert_allclose(result.p_decreasing, (null <= observed).mean())


def test_seats_that_always_tie_prove_nothing():
    assert statistics.pages_l(np.ones((5, 4))).p == 1.0
    assert statistics.friedman(np.ones((5, 4))) == (0.0, 1.0, True)


def test_page_draws_orders_when_there_are_too_many_seats_to_enumerate():
    table = np.random.default_rng(0).normal(size=(5, 12)) + 0.1 * np.arange(12.0)[None, :]
    result = statistics.pages_l(table, draws=20_000)
    assert not result.exact
    assert_allclose(result.p_increasing, scipy.stats.page_trend_test(table).pvalue, atol=0.01)
    assert statistics.pages_l(ordered(5, 12), draws=999).p_increasing == 1 / 1000


def test_page_finds_a_shift_of_one_deviation_per_seat_in_eight_seeds():
    # AUDIT.md: power .93 at .001 (two-sided)
    rng = np.random.default_rng(1)
    tables = rng.normal(size=(300, 8, 4)) + np.arange(4.0)[None, None, :]
    power = np.mean([statistics.pages_l(table).p < 0.001 for table in tables])
    assert_allclose(power, 0.93, atol=0.05)


# --- Friedman --------------------------------------------------------------------------------------


def test_friedman_reaches_three_in_a_million_with_five_seeds_and_four_seats():
    # any of 24 orders may be the common one: 24 / 24**5 = 3.014e-6, where chi-square stops at .0018
    result = statistics.friedman(ordered(5, 4)[:, [2, 0, 3, 1]])
    assert result.exact
    assert_allclose(result.p, 24.0**-4)
    assert_allclose(result.statistic, 15.0)
    assert_allclose(scipy.stats.friedmanchisquare(*ordered(5, 4).T).pvalue, 0.0018, atol=1e-4)


@pytest.mark.parametrize("tied", [False, True])
def test_friedman_is_the_share_of_all_orders_that_are_as_extreme(tied):
    rng = np.random.default_rng(5)
    table = rng.integers(0, 3, size=(4, 3)).astype(float) if tied else rng.normal(size=(4, 3))
    null = brute_force(table, friedman_statistic)
    observed = friedman_statistic(scipy.stats.rankdata(table, axis=1))
    result = statistics.friedman(table)
    assert_allclose(result.p, (null >= observed - 1e-9).mean())
    assert_allclose(result.statistic, scipy.stats.friedmanchisquare(*table.T).statistic)


def test_friedman_draws_orders_when_there_are_too_many_to_enumerate():
    table = np.random.default_rng(2).normal(size=(10, 8))
    result = statistics.friedman(table, draws=20_000)
    assert not result.exact
    assert_allclose(result.p, scipy.stats.friedmanchisquare(*table.T).pvalue, atol=0.05)
    assert statistics.friedman(table, draws=20_000) == result, "the same seed gives the same p"


def test_equal_seats_are_called_different_no_more_often_than_the_level():
    tables = np.random.default_rng(0).normal(size=(1000, 5, 4))
    for p in ([statistics.friedman(t).p for t in tables], [statistics.pages_l(t).p for t in tables]):
        assert np.mean(np.array(p) < 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1000)


@pytest.mark.parametrize("test", [statistics.pages_l, statistics.friedman])
def test_tables_that_are_none_are_refused(test):
    with pytest.raises(ValueError, match="at least two seats"):
        test(np.ones((5, 1)))
    with pytest.raises(ValueError, match="NaN"):
        test(np.array([[1.0, np.nan], [0.0, 1.0]]))


# --- intervals and comparisons ---------------------------------------------------------------------


def test_the_interquartile_mean_drops_a_quarter_from_each_end():
    assert iqm_of(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0) == 3.5
    assert iqm_of(-100.0, 1.0, 2.0, 3.0, 100.0) == 2.0
    assert statistics.iqm(np.array([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 100.0]])) == 3.5


def iqm_of(*values: float) -> float:
    return statistics.iqm(np.array(values))


def test_a_bootstrap_interval_of_a_mean_is_about_two_standard_errors_wide():
    values = np.random.default_rng(0).normal(size=400)
    low, high = statistics.bootstrap_interval(values)
    error = values.std() / 20
    assert_allclose(
        [low, high], [values.mean() - 1.96 * error, values.mean() + 1.96 * error], atol=0.2 * error
    )
    assert statistics.bootstrap_interval(values) == (low, high)


def test_a_lower_level_gives_a_narrower_interval_and_equal_values_none():
    values = np.arange(20.0)
    wide, narrow = (statistics.bootstrap_interval(values, level=level) for level in (0.95, 0.5))
    assert wide.low < narrow.low < 9.5 < narrow.high < wide.high
    assert statistics.bootstrap_interval(np.full(5, 3.0)) == (3.0, 3.0)


def test_one_seed_says_nothing_about_spread():
    assert np.isnan(statistics.bootstrap_interval(np.array([2.0]))).all()
    assert np.isnan(statistics.probability_of_improvement(np.ones(1), np.ones(3)).low)


def test_the_interval_resamples_whole_rows_for_any_statistic():
    table = np.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0]])
    interval = statistics.bootstrap_interval(table, lambda rows: rows[:, 1].mean() - rows[:, 0].mean())
    assert interval == (10.0, 10.0)


def test_probability_of_improvement_counts_pairs_and_half_of_ties():
    # a beats b in (3 > 1), (3 > 2), (2 > 1); ties once (2 = 2): (3 + 0.5) / 4
    result = statistics.probability_of_improvement(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    assert result.probability == 0.875
    assert 0.5 <= result.low <= result.probability <= result.high == 1.0
    better = statistics.probability_of_improvement(np.arange(10.0) + 100, np.arange(10.0))
    assert_allclose(better, (1.0, 1.0, 1.0))


def test_probability_of_improvement_has_an_interval_as_wide_as_theory_says():
    # equal distributions, n = m: var = (2n + 1) / (12 n^2) for n = 50: standard error 0.058
    rng = np.random.default_rng(4)
    result = statistics.probability_of_improvement(rng.normal(size=50), rng.normal(size=50))
    assert_allclose((result.high - result.low) / (2 * 1.96), 0.058, rtol=0.15)


def test_the_largest_gap_names_its_seats_and_covers_a_true_one():
    rng = np.random.default_rng(7)
    table = rng.normal(size=(40, 4)) + np.array([0.0, 3.0, 1.0, -2.0])[None, :]
    gap = statistics.largest_seat_gap(table)
    assert (gap.highest, gap.lowest) == (1, 3)
    assert_allclose(gap.gap, table[:, 1].mean() - table[:, 3].mean())
    assert gap.low < 5.0 < gap.high


def test_the_gap_interval_is_of_paired_differences():
    table = np.array([[0.0, 1.0], [100.0, 101.0], [50.0, 51.0]])
    assert_allclose(statistics.largest_seat_gap(table), (1.0, 1.0, 1.0, 1, 0))


def test_coinciding_curves_are_found_by_their_bits():
    a = np.array([1.0, 2.0, np.nan, 4.0, 5.0, 6.0])
    assert statistics.coincide(a, a) == 6
    assert statistics.coincide(a, np.array([1.0, 2.0, np.nan, 4.1, 5.0])) == 3
    assert statistics.coincide(a, np.nextafter(a, np.inf)) == 1  # only NaN stays what it was
    assert statistics.coincide(np.array([0.0]), np.array([-0.0])) == 0
    assert statistics.coincide(np.array([]), a) == 0


def test_three_against_three_cannot_be_below_a_tenth():
    assert_allclose(statistics.permutation_test(np.array([4.0, 5, 6]), np.array([1.0, 2, 3])), 2 / 20)
    assert_allclose(statistics.permutation_test(np.arange(5.0) + 10, np.arange(5.0)), 2 / 252)
    assert statistics.permutation_test(np.ones(4), np.ones(4)) == 1.0


def test_drawn_splits_agree_with_all_of_them(monkeypatch):
    a, b = np.array([1.0, 2.5, 3.0, 4.0, 2.0]), np.array([1.5, 0.5, 2.2, 1.0, 0.1])
    exact = statistics.permutation_test(a, b)
    monkeypatch.setattr(statistics, "MOST_SPLITS", 10)
    assert_allclose(statistics.permutation_test(a, b), exact, atol=0.01)


def test_holm_steps_down_and_never_up():
    # sorted .01 x 3, .02 x 2, .03 x 1, each at least the one before
    assert_allclose(statistics.holm([0.02, 0.01, 0.03]), [0.04, 0.03, 0.04])
    assert_allclose(statistics.holm([0.6, 0.9]), [1.0, 1.0])
