"""Rungs are climbed slowly, in order, and fallen from at once."""

import jax.numpy as jnp

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
