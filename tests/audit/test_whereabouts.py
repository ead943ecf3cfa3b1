"""Where a failing check points to, and the scale that it is made at."""

import dataclasses

import pytest

from coplay.audit import CHECKS
from coplay.audit.finding import Outcome, exact, not_run
from coplay.audit.subject import Subject
from coplay.audit.whereabouts import FILES, SCALES, SOURCES, file_of, scale_of
from coplay.envs import ENVIRONMENTS, make_game
from tests.audit.suite import subject_of

OWN_GAMES = [name for name in ENVIRONMENTS if ":" not in name and name != "smax"]


def broken(room: str = "") -> Outcome:
    return exact("x", 1, 2, "something", room=room)


def test_every_named_file_is_there_and_belongs_to_a_check():
    assert set(FILES) <= set(CHECKS) and set(SCALES) <= set(CHECKS)
    assert all((SOURCES / file).is_file() for files in FILES.values() for file in files)


def test_every_check_has_a_file_in_its_own_room_or_none():
    game = make_game("snowdrift")
    for check in CHECKS.values():
        file = file_of(check, broken(), game)
        assert not file or file.startswith(f"{check.room}/"), check.name


def test_a_file_is_named_only_in_the_room_that_is_named():
    game, check = make_game("snowdrift"), CHECKS["scores"]
    rooms = {room: file_of(check, broken(room), game) for room in ("evaluation", "training", "nets")}
    assert rooms == {"evaluation": "evaluation/self_play.py", "training": "training/loop.py", "nets": ""}


@pytest.mark.parametrize("name", OWN_GAMES)
def test_a_failure_of_a_game_names_the_game(name):
    file = file_of(CHECKS["renaming"], broken(), make_game(name))
    assert (SOURCES / file).is_file() and name in file


def test_a_game_in_parts_has_rules_and_views():
    game = make_game("4h1s_4x4")
    files = [file_of(CHECKS[name], broken(), game) for name in ("rules", "views")]
    assert files == ["envs/stag_hunt/rules.py", "envs/stag_hunt/views.py"]


def test_a_game_from_outside_is_named_as_it_lies():
    game = make_game("snowdrift")
    own = dataclasses.replace(game, step=lambda state, action, key: game.step(state, action, key))
    assert file_of(CHECKS["rules"], broken(), own) == __file__
    assert file_of(CHECKS["rules"], broken(), dataclasses.replace(game, step=print)) == ""


def test_scales_are_told_by_what_was_asked():
    subject = subject_of("ppo_4h1s_4x4")
    scales = {name: scale_of(CHECKS[name], broken(), subject) for name in CHECKS}
    expected = {"turns": "small", "permuted_ids": "small", "ladder": "small", "world_names": "small"}
    expected |= {"order": "run", "opponent_skill": "run", "world_pay": "run", "told_apart": "run"}
    expected |= {"rules": "", "search": "", "code": ""}
    assert {name: scales[name] for name in expected} == expected
    assert scale_of(CHECKS["turns"], not_run("x", "no time"), subject) == ""


def test_a_game_alone_has_no_scale():
    game = Subject(make_game("snowdrift"), "snowdrift")
    assert scale_of(CHECKS["permuted_ids"], broken(), game) == ""
