"""Return against drift, worked by hand."""

import numpy as np
from numpy.testing import assert_allclose

from coplay.evaluation.drift_curves import (
    DriftCurve,
    common_drift,
    drift_curve,
    drift_to,
    mean_return,
    return_at,
)
from coplay.training.records import metric_rows
from coplay.training.run_folder import RunFolder
from tests.small import small_job

# one seed that earns as much as it has moved, one that moves twice as far for it
TWO = DriftCurve(np.array([[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]]), np.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]))


def test_return_is_read_at_equal_drift():
    assert_allclose(return_at(TWO, 1.0), [1.0, 0.5])
    assert_allclose(return_at(TWO, 3.0), [2.0, 1.5])  # the first never moved so far: its last


def test_drift_is_read_at_equal_return():
    assert_allclose(drift_to(TWO, 1.0), [1.0, 2.0])
    assert_allclose(drift_to(TWO, 2.5), [np.inf, np.inf])


def test_the_area_is_a_mean_over_drift():
    # the first: a triangle to 2 and then flat at 2, (2 + 4) / 4; the second: a triangle, 4 / 4
    assert_allclose(mean_return(TWO, 4.0), [1.5, 1.0], rtol=1e-3)


def test_what_all_have_moved_is_what_the_stillest_has():
    assert common_drift([TWO, DriftCurve(TWO.moved / 2, TWO.earned)]) == 1.5


def test_one_seed_that_runs_away_does_not_stretch_what_all_have_moved():
    runaway = DriftCurve(np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 900.0]]), np.zeros((3, 2)))
    assert common_drift([runaway]) == 2.0


def test_a_run_is_read_with_drift_added_up_and_return_smoothed(tmp_path):
    work = small_job(seeds=2)
    figures = {
        "drift/joint_kl": np.full((2, 4), 0.5, np.float32),
        "return": np.array([[np.nan, 1.0, 3.0, 5.0], [2.0, 2.0, 4.0, np.nan]], np.float32),
    }
    folder = RunFolder.create(tmp_path / "run", "", {})
    folder.write_metrics(0, 4 * work.steps_per_update, metric_rows(work, figures, 0, 4))
    found = drift_curve(folder, smoothed_over=2)
    assert_allclose(found.moved, [[0.5, 1.0, 1.5, 2.0]] * 2)
    assert_allclose(found.earned, [[1.0, 1.0, 2.0, 4.0], [2.0, 2.0, 3.0, 4.0]])
