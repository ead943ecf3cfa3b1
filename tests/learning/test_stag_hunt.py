"""Learners find the stag, alone among scripts and among themselves."""

import pytest

from coplay import runs
from coplay.experiment import read_experiment

pytestmark = [pytest.mark.learning, pytest.mark.optimised]


def trained(name, tmp_path, **changes):
    quiet = {"evaluation.every": 0, "saving.tensorboard": False, "devices": 1}
    return runs.train(read_experiment(name, quiet | changes), tmp_path / name).evaluate(2048)


def test_four_selfish_learners_find_the_stag(tmp_path):
    # all hares is 1.00, the four scripts reach 2.83, the ceiling is 3.00
    score = trained("ppo_4h1s_4x4", tmp_path, steps=900_000)
    assert score.mean_return > 2.7, score
    assert score.outcomes["stags"] > 0.9


def test_one_learner_keeps_up_with_three_scripts(tmp_path):
    score = trained("one_ppo_three_nearest_stag", tmp_path, steps=1_000_000)
    assert score.mean_return > 2.8, score
    assert score.per_seat[0] > 2.7, score  # a script in that seat earns 2.83
