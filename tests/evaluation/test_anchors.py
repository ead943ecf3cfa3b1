"""Anchors are found again for the same rules and company, and for no other."""

import pytest

from coplay.envs import make_game
from coplay.evaluation import anchors
from coplay.evaluation.adaptation import Protocol
from coplay.evaluation.anchors import Anchors
from coplay.meetings.anchoring import better_of, script_scores
from coplay.meetings.tables import sit_down
from coplay.players.catalogue import plain_players, settled, split_names

MEASURED = Anchors(random=0.4, best=0.99, best_from="a test")
COMPANY = ["mine.py:player 0123", "random", "random"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COPLAY_CACHE", str(tmp_path))
    return tmp_path / "anchors.json"


def situation(company=COMPANY, **options):
    return anchors.situation(make_game("4h1s_4x4", **options), list(company), 1)


def test_what_was_measured_is_found_however_the_board_is_shown(cache):
    assert anchors.find(situation()) is None
    anchors.keep(situation(), MEASURED)
    assert anchors.find(situation(observation="entities")) == MEASURED
    assert anchors.find(situation(hares=3)) is None
    assert anchors.find(situation(COMPANY[::-1])) is None


def test_a_newer_measurement_replaces_an_older_one(cache):
    anchors.keep(situation(), MEASURED)
    better = Anchors(0.4, 1.0, "a longer test")
    anchors.keep(situation(), better)
    assert anchors.find(situation()) == better


def test_a_damaged_table_is_measured_again(cache):
    cache.write_text("[{")
    assert anchors.find(situation()) is None
    anchors.keep(situation(), MEASURED)
    assert anchors.find(situation()) == MEASURED


def test_scores_are_put_to_scale_only_where_there_is_one():
    assert anchors.normalised(0.99, MEASURED) == pytest.approx(1.0)
    assert anchors.normalised(0.4, MEASURED) == pytest.approx(0.0)
    assert not anchors.are_close(MEASURED, 3.0)
    assert anchors.are_close(Anchors(2.9, 3.0, ""), 3.0)


def test_names_between_commas_keep_their_brackets():
    assert split_names("waiter(k=3), random") == ["waiter(k=3)", "random"]
    text = "changing('nearest_hare','nearest_stag',30),nearest_hare"
    assert split_names(text) == ["changing('nearest_hare','nearest_stag',30)", "nearest_hare"]


def test_a_company_is_measured_as_what_it_becomes():
    assert settled("changing('nearest_hare', 'nearest_stag', 12)") == ("nearest_stag", 12)
    assert settled("changing('nearest_hare', then='nearest_stag')") == ("nearest_stag", 30)
    assert settled("waiter(k=3)") == ("waiter(k=3)", 0)


def test_a_script_that_earns_more_than_what_was_learned_is_the_best_response():
    env = make_game("prisoners_dilemma", rounds=5)
    table = sit_down(env, ["always_cooperate"], 0)
    scores = script_scores(table, Protocol(steps=20, games=16, kept=1.0))
    assert set(scores) == set(plain_players(env))
    # Always 0 for defecting on one that cooperates, -1 for cooperating.
    assert scores["always_defect"] == pytest.approx(0.0)
    assert scores["tit_for_tat"] == pytest.approx(-5.0)
    assert better_of(Anchors(-2.5, -1.0, "PPO"), scores) == Anchors(-2.5, 0.0, "the script always_defect")
    assert better_of(Anchors(-2.5, 0.5, "PPO"), scores).best_from == "PPO"


def test_plain_players_need_no_settings():
    names = plain_players(make_game("4h1s_4x4"))
    assert {"nearest_stag", "waiter", "random"} <= set(names)
    assert not {"changing", "one_of"} & set(names)
