"""Arms of the hypernetwork study that are shipped as experiments are the study's own."""

import dataclasses
import re

import pytest

from coplay.experiment import (
    EvaluationConfig,
    Experiment,
    SavingConfig,
    experiment_names,
    read_experiment,
    with_overrides,
)
from coplay.studies import BUDGETS, read_study
from coplay.studies.arms import experiment_of, label_and_weights

STUDY, TASK = read_study("hyper"), "stag_hunt"
FILES = {
    "A0": "hyper_a0_mappo",
    "A1": "hyper_a1_separate",
    "A2": "hyper_a2_identity",
    "A3": "hyper_a3_history",
    "A4": "hyper_a4_joint",
    "A5_history_of_another": "hyper_a5_history_of_another",
    "A5_joint_of_another": "hyper_a5_joint_of_another",
    "A5_no_delta": "hyper_a5_no_delta",
    "A6": "hyper_a6_happo",
    "A7_half_rate": "hyper_a7_half_rate",
    "A7_small_clip": "hyper_a7_small_clip",
    "A7_half_epochs": "hyper_a7_half_epochs",
    "A7_kl_stop": "hyper_a7_kl_stop",
    "A8_wide": "hyper_a8_wide",
}


def test_all_that_claims_rest_on_is_shipped():
    decide = STUDY.in_role("baseline", "rival", "candidate", "control")
    assert set(decide) <= set(FILES)
    assert {name for name in experiment_names() if re.match(r"hyper_a\d", name)} == set(FILES.values())


@pytest.mark.parametrize("arm", [arm for arm in FILES if arm != "A8_wide"])
def test_a_shipped_arm_is_the_studys(arm):
    """At the rate that its file, or that of the arm it is like, has chosen from the sweep."""
    first = read_experiment(FILES[STUDY.arms[arm].base or arm])
    rate = getattr(first, first.algorithm).learning_rate
    assert rate in STUDY.tasks[TASK].rates
    of_study = experiment_of(STUDY, TASK, arm, rate, BUDGETS["full"])
    assert _learned(read_experiment(FILES[arm])) == _learned(of_study)


def test_the_wide_arm_is_the_studys_and_as_wide_as_it_must_be():
    """The study looks for its width; here, a unit less is too little."""
    shipped, own = read_experiment(FILES["A8_wide"]), STUDY.arms["A8_wide"]
    width, rate = shipped.mappo.hidden[0], shipped.mappo.learning_rate
    told = dataclasses.replace(
        own, as_many_weights_as="", settings=own.settings | {"hidden": shipped.mappo.hidden}
    )
    study = dataclasses.replace(STUDY, arms=STUDY.arms | {"A8_wide": told})
    assert _learned(shipped) == _learned(experiment_of(study, TASK, "A8_wide", rate, BUDGETS["full"]))
    narrower = with_overrides(shipped, {"hidden": (width - 1, width - 1)})
    wanted = label_and_weights(read_experiment(FILES[own.as_many_weights_as]))[1]
    assert label_and_weights(narrower)[1] < wanted <= label_and_weights(shipped)[1]


def _learned(experiment: Experiment) -> Experiment:
    """Without its question, what is measured and kept beside learning, and on how many cores."""
    return dataclasses.replace(
        experiment, description="", devices=0, evaluation=EvaluationConfig(), saving=SavingConfig()
    )
