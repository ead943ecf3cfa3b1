"""Seats against each other, worked by hand and on drawn figures."""

import dataclasses

import numpy as np
from numpy.testing import assert_allclose

from coplay.audit.seat_effects import effects_of, groups, worst
from tests.audit.mutants import stag_hunt


def test_a_seat_is_held_against_the_mean_of_the_others_in_deviations():
    # means 0, 0, 0, 4; the deviation of all eight figures is 2: each pair of rows is its mean +- 1
    values = np.array([[1.0, 1.0, 1.0, 5.0], [-1.0, -1.0, -1.0, 3.0]])
    (found,) = effects_of(stag_hunt(), values)
    deviation = values.std()
    assert_allclose(found.mean[:, 0], np.array([-4 / 3, -4 / 3, -4 / 3, 4.0]) / deviation, rtol=1e-5)


def test_the_worst_is_the_least_likely_and_pays_for_looking():
    generator = np.random.default_rng(0)
    values = generator.standard_normal((4000, 4))
    fair = worst(effects_of(stag_hunt(), values))
    assert fair.p > 0.01
    biased = worst(effects_of(stag_hunt(), values + 0.2 * (np.arange(4) == 1)))
    assert biased.seat == 1 and biased.p < 1e-6
    assert biased.effect.low < 0.2 < biased.effect.high


def test_roles_are_not_held_against_each_other():
    env = dataclasses.replace(stag_hunt(), alike=(0, 1, 0, 1))
    assert groups(env) == [[0, 2], [1, 3]]
    values = np.random.default_rng(0).standard_normal((500, 4)) + 5.0 * (np.arange(4) % 2)
    assert worst(effects_of(env, values)).p > 0.01


def test_figures_that_never_vary_say_nothing():
    found = worst(effects_of(stag_hunt(), np.full((10, 4), 3.0)))
    assert (found.p, found.effect.value) == (1.0, 0.0)
