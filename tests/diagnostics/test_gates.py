"""Rungs are climbed slowly, in order, and fallen from at once."""

import jax
import jax.numpy as jnp
import pytest

from coplay.diagnostics import gates

GOOD, NONE = (1, 1, 1), (0, 0, 0)
SOUND, BLIND = (1, 0, 0), (0, 1, 1)  # the critic alone is sound; all but the critic


def walked(*rounds):
    """The rung after each round; a round says which tests held."""
    gate, rungs = gates.at(0), []
    for holds in rounds:
        gate = gates.climbed(gate, jnp.array(holds, bool))
        rungs.append(int(gate.rung))
    return rungs


def test_a_rung_is_climbed_when_its_test_has_held_three_times_in_a_row():
    assert walked(SOUND, SOUND, SOUND, SOUND) == [0, 0, 1, 1]
    assert walked(SOUND, SOUND, NONE, SOUND, SOUND, SOUND) == [0, 0, 0, 0, 0, 1]


def test_a_learner_that_gets_good_passes_each_rung_once():
    assert walked(*[GOOD] * 12) == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3]


def test_no_rung_is_stood_on_without_those_below():
    assert walked(*[BLIND] * 6) == [0] * 6


def test_it_falls_at_once_to_the_highest_rung_that_still_holds_and_waits():
    rungs = walked(*[GOOD] * 9, SOUND, *[GOOD] * 9)
    assert rungs[8] == 3
    assert rungs[9] == 1
    # Five rounds of waiting, then three that hold.
    assert rungs[10:] == [1] * 7 + [2] * 2


def test_a_critic_that_spoils_takes_everything_down():
    assert walked(*[GOOD] * 9, BLIND)[-1] == 0


def test_models_that_fail_now_are_not_asked_whatever_they_did_before():
    for stood, holds, counts in [
        (3, (1, 1), 3),
        (3, (1, 0), 2),
        (3, (0, 1), 1),
        (1, (1, 1), 1),
        (0, (0, 0), 0),
    ]:
        assert int(gates.in_force(gates.at(stood), jnp.array(holds, bool))) == counts


def judged(*rounds, said=lambda index: 5.0):
    """Of two seats; a round says each one's bias and explained variance, in returns with a deviation of 2."""
    known = jax.tree.map(lambda x: jnp.zeros(2), gates.not_yet())
    for index, (bias, explained) in enumerate(rounds):
        known = gates.judged(
            known,
            {
                "value/bias": jnp.array(bias),
                "value/explained_variance": jnp.array(explained),
                "value/return_std": jnp.full(2, 2.0),
                "value/prediction_mean": jnp.full(2, said(index)),
            },
        )
    return lambda barely: bool(gates.is_sound(known, barely))


def test_a_critic_is_judged_over_rounds_so_that_chance_does_not_spoil_it():
    noisy = [((0.15 * (-1) ** i, 0.0), (0.4, 0.4)) for i in range(20)]
    assert judged(*noisy)(barely=0.1)


def test_a_bias_that_stays_is_found_in_any_seat():
    assert not judged(*[((0.0, -0.15), (0.4, 0.4))] * 5)(barely=0.1)
    assert not judged(*[((0.15, 0.0), (0.4, 0.4))] * 5)(barely=0.1)


@pytest.mark.parametrize("way", [1, -1])
def test_a_critic_may_lag_behind_players_who_learn_but_not_run_ahead_of_them(way):
    rounds = [((-0.2 * way, -0.2 * way), (0.4, 0.4))] * 30
    assert judged(*rounds, said=lambda index: 5.0 + 0.05 * way * index)(barely=0.1)
    assert not judged(*rounds, said=lambda index: 5.0 - 0.05 * way * index)(barely=0.1)


def test_a_lag_is_no_excuse_once_play_is_steady():
    rounds = [((-0.2, -0.2), (0.4, 0.4))] * 150
    assert not judged(*rounds, said=lambda index: min(5.0 + 0.05 * index, 6.5))(barely=0.1)


def test_a_critic_explains_something_unless_there_is_hardly_anything_to_explain():
    worse_than_nothing = judged(*[((0.0, 0.0), (-0.05, 0.4))] * 3)
    assert not worse_than_nothing(barely=0.1)
    assert worse_than_nothing(barely=3.0)
    assert judged(*[((0.0, 0.0), (0.05, 0.4))] * 3)(barely=0.1)
