"""Alarms sound where they should, and name the figure and what to change."""

import numpy as np
import pytest

from coplay.diagnostics.alarms import ALARMS, alarms
from coplay.diagnostics.metrics import METRICS


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("drift/effective_samples", 0.4, "drift/effective_samples is 0.4, below 0.5: others move so fast"),
        ("drift/effective_samples", 0.6, None),
        ("hyper/smooth_share", 1.5, "hyper/smooth_share is 1.5, above 1: smoothness weighs more"),
        ("hyper/smooth_share", 0.5, None),
        ("return", -100.0, None),
    ],
)
def test_a_figure_out_of_bounds_is_told(name, value, says):
    found = alarms({name: np.full((2, 3), value)})  # [seed, update]
    assert list(found) == ([name] if says else [])
    assert says is None or found[name].startswith(says)


def test_one_odd_update_and_seats_that_do_not_learn_sound_no_alarm():
    values = np.array([[0.9, 0.1, 0.9]])[..., None] * np.array([1.0, np.nan])
    assert alarms({"drift/effective_samples": values}) == {}
    assert alarms({"drift/effective_samples": np.full((1, 2), np.nan)}) == {}


def test_every_alarm_is_of_a_known_figure():
    assert set(ALARMS) <= set(METRICS)
