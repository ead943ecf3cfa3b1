"""What reaches those who learn: what is imagined of the others, and learners that imagine nothing of them."""

import dataclasses

import jax
import jax.numpy as jnp

from tests.audit.planted import replacing
from tests.audit.suite import finding_of, subject_of
from tests.audit.test_value import IMAGINES, imagining


def test_readings_of_everyone_who_is_there_pass():
    found = finding_of(imagining(), "imagined_rows")
    assert found.verdict == "pass" and found.n, found.next


def test_subgoals_that_are_zero_from_the_second_imagined_step_on_are_found():
    def nothing_read(read_on):
        def spoiled(*given):
            hidden, reading = read_on(*given)
            return hidden, jax.tree.map(jnp.zeros_like, reading)

        return spoiled

    with replacing("coplay.algorithms.hop_plus_imagining", "read_on", nothing_read)():
        found = finding_of(subject_of("hop_plus_4h1s_4x4", IMAGINES), "imagined_rows")
    assert found.verdict == "fail" and found.room == "algorithms"
    assert "readings of co-players in the game that say nothing" in found.next


def test_readings_are_asked_for_of_one_co_player_at_a_time():
    subject = imagining()
    rounds = list(subject.rounds())
    rows = rounds[1].taps["rows"]
    own, size = subject.env.observation_size, subject.config("hop_plus").subgoal_size
    # Of the first co-player alone, at the last step.
    seen = rows.imagined.policy_input.at[..., -1, own : own + size].set(0.0)
    imagined = dataclasses.replace(rows.imagined, policy_input=seen)
    taps = rounds[1].taps | {"rows": dataclasses.replace(rows, imagined=imagined)}
    rounds[1] = rounds[1]._replace(taps=taps)
    found = finding_of(dataclasses.replace(subject, kept=subject.kept | {"rounds": rounds}), "imagined_rows")
    assert found.verdict == "fail" and "say nothing" in found.next
