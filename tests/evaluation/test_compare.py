"""How runs are read side by side, how soon they get to a level, and what is said of those that never do."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coplay.errors import BadInput
from coplay.evaluation.compare import _arrivals, _ratio, compare_runs, compare_speed, curve, steps_to
from coplay.training.run_folder import RunFolder
from tests.small import written_run

NAN = np.nan
STEPS = np.arange(1, 11) * 100


def test_a_level_is_reached_when_the_mean_over_a_full_window_is_there():
    values = np.array([[0, 0, 3, 0, 2, 2, 2, 0, 0, 0], [5.0] * 10, [0.0] * 10])
    assert steps_to(STEPS, values, 2.0, 300).tolist() == [700.0, 300.0, np.inf]


def test_a_lucky_round_is_enough_only_where_a_round_is_a_window():
    values = np.array([[0, 0, 3, 0, 0, 0, 0, 0, 0, 0.0]])
    assert steps_to(STEPS, values, 2.0, 100).tolist() == [300.0]
    assert steps_to(STEPS, values, 2.0, 200).tolist() == [np.inf]


def test_a_round_in_which_a_seed_ended_nothing_is_a_gap_of_that_seed_alone(tmp_path):
    run = RunFolder.open(written_run(tmp_path / "run", [[0, 0, NAN, 3, 3, 3], [0, 1, 2, 3, 4, 5]]))
    assert ("return", 320, 0) not in rows_of(run), "the loop leaves out what is not finite"
    steps, values = curve(run, "return")
    assert_array_equal(steps, np.arange(6) * 160)
    assert_array_equal(values, [[0, 0, NAN, 3, 3, 3], [0, 1, 2, 3, 4, 5]])


def rows_of(run):
    table = run.read_metrics()
    return set(zip(*(table[name].to_pylist() for name in ("metric", "step", "seed")), strict=True))


def test_rounds_in_which_nothing_ended_count_for_nothing(tmp_path):
    returns = [[NAN, NAN, 3, NAN, 0, 0], [0, 0, 0, 0, 3, 3], [0, 0, 0, NAN, NAN, 2]]
    found = compare_speed([written_run(tmp_path / "run", returns)], "return", 2.0, 320)
    # windows of two rounds: (160, 320), (320, 480), (480, 640), (640, 800)
    assert found["runs"][0]["per_seed"] == [320, 800, 800]


def test_a_seed_that_ended_no_episode_at_all_is_lost_and_not_forgotten(tmp_path):
    run = written_run(tmp_path / "run", [[3, 3, 3], [NAN, NAN, NAN]])
    found = compare_speed([run], "return", 2.0, 160)["runs"][0]
    assert (found["seeds"], found["lost"], found["per_seed"]) == (2, 1, [160, None])


def test_the_last_share_of_training_is_the_same_steps_for_every_seed(tmp_path):
    run = written_run(tmp_path / "run", [[9, 9, 4, NAN], [9, 9, 1, 3]])
    assert compare_runs([run], "return", 0.5)["runs"][0]["iqm"] == pytest.approx(3.0)  # of 4 and 2
    with pytest.raises(BadInput, match="1 of 2 seeds wrote no 'return' in the last"):
        compare_runs([run], "return", 0.25)


def test_a_window_longer_than_the_run_is_refused(tmp_path):
    run = written_run(tmp_path / "run", [[3, 3, 3]])
    assert compare_speed([run], "return", 2.0, 320)["runs"][0]["per_seed"] == [320]
    with pytest.raises(BadInput, match="up to step 320, which --window 321 is longer than"):
        compare_speed([run], "return", 2.0, 321)


def test_lost_seeds_are_counted_and_not_averaged():
    found = _arrivals("x", np.array([100.0, np.inf, 300.0]))
    assert (found["lost"], found["mean"], found["per_seed"]) == (1, 200.0, [100, None, 300])
    assert _arrivals("x", np.array([np.inf]))["mean"] is None


def test_the_ratio_is_of_mean_steps():
    pair = _ratio("a", "b", np.array([100.0, 300.0, np.inf]), np.array([400.0, 400.0]))
    assert pair["ratio"] == pytest.approx(0.5)
    assert pair["interval"][0] <= 0.5 <= pair["interval"][1]
    assert _ratio("a", "b", np.array([np.inf]), np.array([400.0]))["ratio"] is None
