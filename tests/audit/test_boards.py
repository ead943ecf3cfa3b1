"""Things that share a cell though they should not, clocks that are wrong, and boards with a favoured side."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.audit.boards import _said_of_ends, effects_in_mirrors, in_mirrors
from tests.audit.planted import replacing
from tests.audit.suite import DEFECTS, finding_of, subject_of


@pytest.mark.parametrize("name", ["ppo_4h1s_4x4", "ppo_snowdrift", "ppo_coin_game"])
def test_shipped_games_keep_things_apart_and_are_the_same_in_a_mirror(name):
    subject = subject_of(name)
    assert finding_of(subject, "rules").verdict == "pass"
    found = finding_of(subject, "mirrored")
    assert found.verdict == "pass" and found.n > 0


@pytest.mark.parametrize("name", ["ppo_4h1s_8x8_walls", "matrix_stag_hunt"])
def test_games_that_do_not_promise_it_are_not_asked(name):
    assert finding_of(subject_of(name), "mirrored").verdict == "not_run"


def test_things_on_one_cell_are_found():
    with DEFECTS[402].plant():
        found = finding_of(subject_of("ppo_snowdrift"), "rules")
    assert found.verdict == "fail" and "on one cell" in found.next


def test_a_cell_that_is_never_drawn_is_found():
    with DEFECTS[403].plant():
        found = finding_of(subject_of("ppo_coin_game"), "mirrored")
    assert found.verdict == "fail" and "row 2, column 2" in found.next


def test_a_clock_that_ends_some_games_and_others_not_is_named_with_what_it_shows():
    shown = np.array([[0.9], [1.0], [1.0], [0.8]])
    assert _said_of_ends(shown, np.array([False, True, True, False])) == []
    (said,) = _said_of_ends(shown, np.array([False, True, False, False]))
    assert "the time [1.0], the clock ends the game in 1 of 2 moments" in said


def test_a_game_that_may_end_early_shows_when():
    subject = subject_of("ppo_4h1s_4x4", {"game_options.end_after_first_hunt": 5})
    assert finding_of(subject, "rules").verdict == "pass"


def test_a_clock_that_runs_to_another_end_is_found():
    defect = DEFECTS[502]
    with defect.plant():
        found = finding_of(subject_of(defect.experiment, defect.settings), "rules")
    assert found.verdict == "fail" and "the clock ends the game" in found.next


def never_to_the_last_row(moved):
    """Whoever steps down from the last row but one stays where it is."""

    def spoiled(cell, action, size):
        then = moved(cell, action, size)
        return jnp.where((then // size == size - 1) & (cell // size < size - 1), cell, then)

    return spoiled


def test_an_edge_that_cannot_be_walked_onto_is_found():
    with replacing("coplay.envs.grid", "moved", never_to_the_last_row)():
        found = finding_of(subject_of("ppo_snowdrift"), "mirrored")
    assert found.verdict == "fail" and found.room == "envs" and "player" in found.next


def test_a_board_against_its_mirror_images_by_hand():
    # One game, 2x2, something in one corner: each corner has it a quarter of the time on average.
    apart, usual = in_mirrors(jnp.array([[[1.0, 0.0], [0.0, 0.0]]]))
    assert_allclose(usual[0], [0.25] * 4 + [0.5] * 4)
    assert_allclose(apart[0], [0.75, -0.25, -0.25, -0.25, 0.5, -0.5, 0.5, -0.5])


def test_effects_are_shares_and_empty_places_are_left_out():
    # Two games, differences 1 and 0 where things are usually 2: a quarter, error sqrt(0.25 / 2) / 2.
    sums = np.array([1.0, 0.0]), np.array([1.0, 0.0]), np.array([4.0, 0.0])
    found, kept = effects_in_mirrors(*sums, games=2)
    assert kept.tolist() == [True, False]
    assert_allclose(found.mean, [[0.25]])
    assert_allclose(found.error, [[np.sqrt(0.125) / 2]])
