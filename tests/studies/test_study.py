"""A study says everything before it is run, and what does not fit together is refused in a sentence."""

import pytest

from coplay.errors import BadInput
from coplay.experiment import build
from coplay.studies import BUDGETS, read_study, study_names
from coplay.studies.arms import command_of, experiment_of, label_and_weights
from tests.studies.conftest import SMALL

FULL = BUDGETS["full"]


def test_the_hypernetwork_study_has_every_arm_of_the_matrix():
    arms = read_study("hyper").arms
    assert {name[:2] for name in arms} == {f"A{number}" for number in range(9)}


@pytest.mark.parametrize("name", study_names())
def test_every_arm_of_a_shipped_study_can_be_built(name):
    """Settings of every arm on every task are read, and on the first task every arm is put together."""
    study = read_study(name)
    for number, task in enumerate(study.tasks):
        for arm in study.arms_of(task):
            if not study.arms[arm].as_many_weights_as:
                found = experiment_of(study, task, arm, study.tasks[task].rates[0], FULL)
                if number == 0:
                    build(found)


def test_an_arm_is_the_task_then_its_base_then_its_own(study):
    mistaken = experiment_of(study, "four", "mistaken", 0.01, FULL).hyper_mappo
    assert (mistaken.context, mistaken.context_from, mistaken.trunk) == (
        "local_history",
        "another_game",
        (8,),
    )
    assert (mistaken.learning_rate, mistaken.generator_rate, mistaken.epochs) == (0.01, 0.01, 2)


def test_scaled_settings_are_those_of_the_base_times_so_much(study):
    slow = experiment_of(study, "four", "slow", 0.01, FULL).mappo
    assert (slow.learning_rate, slow.epochs) == (0.005, 1)


def test_a_capacity_control_has_as_many_weights_and_not_a_unit_more_than_it_needs(study):
    wide = experiment_of(study, "four", "wide", 0.01, FULL)
    _, wanted = label_and_weights(experiment_of(study, "four", "generated", 0.01, FULL))
    _, found = label_and_weights(wide)
    # A unit of the policy reads 9 numbers and 4 for who one is, has a bias and speaks to 4 actions; one of
    # the critic reads 4 x 9 and 4, has a bias and speaks to 1 value.
    of_a_unit = (9 + 4 + 1 + 4) + (4 * 9 + 4 + 1 + 1)
    assert found - of_a_unit < wanted <= found


def test_a_quick_budget_takes_a_tenth_of_the_steps(study):
    assert experiment_of(study, "four", "plain", 0.01, BUDGETS["quick"]).rollout.total_steps == 26


def test_the_command_of_an_arm_is_the_arm(study):
    command = command_of(study, "four", "slow", 0.01, FULL)
    assert command.startswith("coplay train hyper_specialisation --steps 256 --hidden '[8]'")
    assert "--epochs 1 " in command
    assert command.endswith("--algorithm mappo --learning_rate 0.005 --seeds 2")


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        ('role = "baseline"', 'role = "shown"', "exactly one arm"),
        ('base = "plain"', 'base = "plane"', "'plane' must be an arm without a base"),
        ('arms = ["plain", "slow"]', 'arms = ["plain", "slwo"]', "no arm 'slwo'; .*slow"),
        ('arms = ["plain", "slow"]', 'arms = ["slow"]', "baseline plain is not among"),
        ('rates_from = "four"', 'rates_from = "five"', "'five' is no task"),
        ('role = "control"\nbase = "generated"', 'role = "control"', "names the arm it belongs to"),
        ("tuning_seeds = 2", "tuning_seed = 2", "unknown key 'tasks.four.tuning_seed'; .*tuning_seeds"),
        ("question =", "questoin =", "line 2: unknown key 'questoin'; .*question"),
        ("level = 0.9", 'level = "high"', "should be a number"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(tmp_path, old, new, sentence):
    assert old in SMALL
    path = tmp_path / "odd.toml"
    path.write_text(SMALL.replace(old, new))
    with pytest.raises(BadInput, match=sentence):
        read_study(str(path))
