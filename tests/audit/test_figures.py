"""Figures that do not say what their names promise are found."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.audit.figures import slow_drift, weights_of_rows
from coplay.training.stages import Descent
from tests.audit.planted import replacing
from tests.audit.suite import DEFECTS, finding_of, subject_of


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    [
        "ppo_4h1s_4x4",
        "mappo_4h1s_4x4",
        "happo_4h1s_4x4",
        "hyper_mappo_4h1s_4x4",
        "ppo_gru_4h1s_4x4",
        "hop_4h1s_4x4",
        "hop_plus_4h1s_4x4",
        "hyper_specialisation",
        "one_ppo_three_nearest_stag",
    ],
)
def test_figures_of_clean_experiments_say_what_they_should(name):
    subject = subject_of(name)
    assert finding_of(subject, "figures").verdict == "pass"
    assert finding_of(subject, "fit").verdict == "pass"


def first_estimator(loss):
    """kl as the mean of minus the log ratio, which may be negative and is more than three times as loud."""

    def spoiled(logits, rows, clip, floor=None):
        policy, entropy, figures = loss(logits, rows, clip, floor)
        return policy, entropy, figures | {"policy/kl": 3 * figures["policy/kl"]}

    return spoiled


def half_a_clip(loss):
    return lambda logits, rows, clip, floor=None: (
        *loss(logits, rows, clip, floor)[:2],
        loss(logits, rows, clip / 2, floor)[2],
    )


def from_new_to_old(moved):
    return lambda old, new, active: moved(new, old, active)


def of_everyone(add):
    """Steps of those who have left count among what is done."""

    def spoiled(tally, ended, transition):
        before = transition.before
        everyone = before.__class__(**{**vars(before), "active": jnp.ones_like(before.active)})
        return add(tally, ended, transition.__class__(**{**vars(transition), "before": everyone}))

    return spoiled


@pytest.mark.parametrize(
    "where, name, change, says, room",
    [
        ("coplay.algorithms.ppo", "clipped_policy_loss", first_estimator, "policy/kl", "algorithms"),
        ("coplay.algorithms.ppo", "clipped_policy_loss", half_a_clip, "policy/clip_share", "algorithms"),
        ("coplay.diagnostics.drift", "moved", from_new_to_old, "drift/", "algorithms"),
        ("coplay.training.rollout", "_add", of_everyone, "action/", "training"),
    ],
)
def test_figures_that_say_something_else_are_found(where, name, change, says, room):
    with replacing(where, name, change)():
        found = finding_of(subject_of("ppo_4h1s_4x4"), "figures")
    assert found.verdict == "fail" and found.room == room and says in found.next


def test_a_weight_that_lets_go_when_play_runs_off_is_found():
    with DEFECTS[409].plant():
        found = finding_of(subject_of("hyper_mappo_4h1s_4x4"), "figures")
    assert found.verdict == "fail" and "align weighs" in found.next


def above_itself(fit):
    return lambda value, returns, counts: (
        fit(value, returns, counts) | {"value/bias": -fit(value, returns, counts)["value/bias"]}
    )


def test_a_bias_the_other_way_round_is_found():
    with replacing("coplay.algorithms.targets", "value_fit", above_itself)():
        found = finding_of(subject_of("ppo_4h1s_4x4"), "fit")
    assert found.verdict == "fail" and "value/bias" in found.next


def test_drift_by_hand():
    # One state, two players: the first goes from even to 3/4, 1/4; the second is out.
    old = np.array([[[[0.5, 0.5], [0.5, 0.5]]]])
    new = np.array([[[[0.75, 0.25], [0.9, 0.1]]]])
    kl = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    found = slow_drift(old, new, np.array([[[True, False]]]))
    assert_allclose(found["drift/kl"], [kl, 0.0])
    assert_allclose(found["drift/joint_kl"], [kl, kl])
    assert_allclose(found["drift/others_kl"], [0.0, kl])


def test_rows_of_short_columns_may_weigh_more():
    # Two minibatches of one column, with 3 and 1 rows in the game: a row weighs 1/6 or 1/2, fairly 1/4.
    counts = np.array([[True, True], [True, False], [True, False]])[:, :, None]
    least, most = weights_of_rows(counts, Descent(1, 2, 100, 2, 3), is_own=True)
    assert_allclose(least, [4 / 6])
    assert_allclose(most, [2.0])
