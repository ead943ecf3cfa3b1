"""How soon runs get to a level, and what is said of those that never do."""

import numpy as np
import pytest

from coplay.evaluation.compare import _arrivals, _ratio, steps_to

STEPS = np.arange(1, 11) * 100


def test_a_level_is_reached_when_the_mean_over_a_full_window_is_there():
    values = np.array([[0, 0, 3, 0, 2, 2, 2, 0, 0, 0], [5.0] * 10, [0.0] * 10])
    assert steps_to(STEPS, values, 2.0, 300).tolist() == [700.0, 300.0, np.inf]


def test_a_lucky_round_is_enough_only_where_a_round_is_a_window():
    values = np.array([[0, 0, 3, 0, 0, 0, 0, 0, 0, 0.0]])
    assert steps_to(STEPS, values, 2.0, 100).tolist() == [300.0]
    assert steps_to(STEPS, values, 2.0, 200).tolist() == [np.inf]


def test_rounds_in_which_nothing_ended_count_for_nothing():
    values = np.array([[np.nan, 3, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan, np.nan]])
    assert steps_to(STEPS, values, 2.0, 200).tolist() == [200.0]


def test_lost_seeds_are_counted_and_not_averaged():
    found = _arrivals("x", np.array([100.0, np.inf, 300.0]))
    assert (found["lost"], found["mean"], found["per_seed"]) == (1, 200.0, [100, None, 300])
    assert _arrivals("x", np.array([np.inf]))["mean"] is None


def test_the_ratio_is_of_mean_steps():
    pair = _ratio("a", "b", np.array([100.0, 300.0, np.inf]), np.array([400.0, 400.0]))
    assert pair["ratio"] == pytest.approx(0.5)
    assert pair["interval"][0] <= 0.5 <= pair["interval"][1]
    assert _ratio("a", "b", np.array([np.inf]), np.array([400.0]))["ratio"] is None
