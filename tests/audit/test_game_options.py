"""Options of a game that change nothing are found."""

import pytest

from tests.audit.planted import replacing
from tests.audit.suite import DEFECTS, finding_of, subject_of

CLEAN = {
    "stag hunt": ("ppo_4h1s_4x4", {}),
    "walls": ("ppo_4h1s_8x8_walls", {}),
    "snowdrift": ("ppo_snowdrift", {}),
    "coin game": ("ppo_coin_game", {}),
    "matrix": ("matrix_stag_hunt", {}),
    "specialisation": ("hyper_specialisation", {}),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CLEAN)
def test_every_option_of_our_games_changes_something(name):
    found = finding_of(subject_of(*CLEAN[name]), "options")
    assert found.verdict == "pass" and found.n, found.next


def test_maps_that_are_never_drawn_are_found():
    with DEFECTS[302].plant():
        found = finding_of(subject_of("ppo_4h1s_8x8_walls", {"game_options.num_maps": 8}), "options")
    assert found.verdict == "fail" and found.next.startswith("num_maps")


def test_an_option_that_nobody_reads_is_found():
    def unread(make):
        return lambda **options: make(**options | {"hare_reward": 1.0})

    with replacing("coplay.envs", "ENVIRONMENTS.stag_hunt", unread)():
        found = finding_of(subject_of("ppo_4h1s_4x4"), "options")
    assert found.verdict == "fail" and found.room == "envs"


def test_a_game_that_does_not_say_what_can_be_set_is_not_asked():
    assert finding_of(subject_of("mappo_simple_spread"), "options").verdict == "not_run"
