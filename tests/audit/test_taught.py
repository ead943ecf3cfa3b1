"""Labels that teach nothing are found: of the learned game, and of co-players' moves."""

import jax.numpy as jnp
import numpy as np
import pytest

from coplay.audit.taught import _otherwise
from tests.audit.suite import DEFECTS, finding_of, subject_of

AHEAD = {"ahead": 5}


@pytest.fixture(scope="module")
def sound():
    return subject_of("hop_plus_4h1s_4x4", AHEAD)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("check", ["world_taught", "moves_taught"])
def test_all_labels_of_a_sound_learner_teach(sound, check):
    found = finding_of(sound, check)
    assert found.verdict == "pass", found.next


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("number", "check", "says"),
    [
        (513, "world_taught", "labels of what vanishes cost the same whatever they say"),
        (514, "moves_taught", "ahead is the same whatever co-players did last"),
    ],
)
def test_labels_that_teach_nothing_are_found(number, check, says):
    defect = DEFECTS[number]
    with defect.plant():
        found = finding_of(subject_of(defect.experiment, defect.settings), check)
    assert found.verdict == "fail" and found.room == defect.room
    assert says in found.next


def test_who_learns_no_models_is_not_asked():
    subject = subject_of("ppo_4h1s_4x4")
    for check in ("world_taught", "moves_taught"):
        assert finding_of(subject, check).verdict == "not_run"


def test_another_legal_move_is_put_in_the_place_of_one_step_only():
    one = subject_of("ppo_4h1s_4x4").rounds()[0].trajectory
    steps = one.steps
    before, after = steps.decision.action, _otherwise(one, -1).steps.decision.action
    assert np.array_equal(before[:-1], after[:-1])
    has_choice = jnp.sum(steps.before.legal[-1], axis=-1) > 1
    assert np.array_equal(before[-1] != after[-1], has_choice)
    assert jnp.all(jnp.take_along_axis(steps.before.legal[-1], after[-1][..., None], axis=-1))
