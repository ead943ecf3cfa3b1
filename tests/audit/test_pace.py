"""Schedules as long as the run, and games that teach for themselves."""

import jax
import jax.numpy as jnp
import optax
import pytest

from coplay.audit.pace import _later
from tests.audit.planted import replacing
from tests.audit.suite import finding_of, subject_of


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", ["ppo_4h1s_4x4", "happo_4h1s_4x4", "hyper_mappo_4h1s_4x4", "ppo_4h1s_4x4_team"]
)
def test_rates_of_clean_experiments_fall_as_the_run_is_long_and_their_games_teach_by_themselves(name):
    subject = subject_of(name)
    assert finding_of(subject, "pace").verdict == "pass"
    assert finding_of(subject, "own_game").verdict == "pass"


def shorter(schedule):
    return lambda start, end, steps: schedule(start, end, steps // 4)


def longer(schedule):
    return lambda start, end, steps: schedule(start, end, steps * 4)


@pytest.mark.parametrize("change", [shorter, longer])
def test_a_schedule_that_is_not_as_long_as_the_run_is_found(change):
    with replacing("optax", "linear_schedule", change)():
        found = finding_of(subject_of("ppo_4h1s_4x4"), "pace")
    assert found.verdict == "fail" and "as long as the run" in found.next


def test_rates_that_stay_are_not_asked():
    found = finding_of(subject_of("matrix_matching_pennies"), "pace")
    assert found.verdict == "not_run" and "do not fall" in found.next


def over_games(mixed):
    return lambda reward, share: (1 - share) * reward + share * jnp.mean(reward, axis=1, keepdims=True)


def test_a_mean_over_games_in_the_place_of_players_is_found():
    with replacing("coplay.algorithms.rewards", "mixed", over_games)():
        found = finding_of(subject_of("ppo_4h1s_4x4_team"), "own_game")
    assert found.verdict == "fail" and "changes with game 0's pay" in found.next


def test_schedules_count_on_by_updates_and_nothing_else_does():
    # Two steps an update, three updates on: 0 becomes 6. Adam's own count stays.
    state = (optax.ScaleByScheduleState(jnp.int32(0)), {"count": jnp.int32(0)})
    after = jax.tree.map(lambda x: x + 2, state)
    later = _later(state, after, 3.0)
    assert int(later[0].count) == 6 and int(later[1]["count"]) == 0
