"""Checks of the game itself: silent on fair games, and every planted defect found by the check for it."""

import dataclasses

import jax
import numpy as np
import pytest

from coplay.audit import CHECKS
from coplay.audit.finding import Seen, findings
from coplay.audit.renamed_game import orders_of
from coplay.audit.subject import Budget, Subject
from coplay.envs import make_game
from tests.audit.mutants import ENVIRONMENT, paid, stag_hunt


def verdict(env, name: str, budget: Budget | None = None):
    outcome = CHECKS[name].call(Subject(env, "a game"), budget or Budget(), jax.random.key(3))
    return findings([Seen(CHECKS[name], outcome, 0.0)])[0]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("mutant", ENVIRONMENT, ids=lambda m: f"{m.number}: {m.what}")
def test_a_planted_defect_is_found_where_it_is(mutant):
    found = verdict(mutant.spoil(stag_hunt()), mutant.check)
    assert found.verdict == "fail", found
    assert found.room == mutant.room and found.next


CLEAN = ["4h1s_4x4", "snowdrift", "coin_game", "matching_pennies", "specialisation"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("game", CLEAN)
@pytest.mark.parametrize("name", [name for name, check in CHECKS.items() if check.area == "environment"])
def test_a_fair_game_passes(game, name):
    found = verdict(make_game(game), name)
    assert found.verdict in ("pass", "not_run"), found


def test_roles_are_renamed_among_themselves_only():
    env = dataclasses.replace(stag_hunt(), alike=(0, 0, 1, 1))
    orders = orders_of(env)
    assert len(orders) == 3  # either pair turned, or both
    assert all(set(order[:2]) == {0, 1} for order in orders)


def test_nobody_alike_is_not_run_and_never_passed():
    env = dataclasses.replace(stag_hunt(), alike=(0, 1, 2, 3))
    assert verdict(env, "renaming").verdict == "not_run"
    assert verdict(env, "random_play").verdict == "not_run"


@pytest.mark.parametrize(("gift", "expected"), [(0.0, "pass"), (0.1, "fail")])
def test_random_play_finds_a_seat_that_is_given_a_little(gift, expected):
    """A tenth of a reward an episode, on a deviation of about 0.6."""

    def given(env, before, reward, after, key):
        is_last = after.time >= after.end
        return reward + np.float32(gift) * is_last * (np.arange(4) == 2)

    found = verdict(paid(given)(stag_hunt()), "random_play")
    assert found.verdict == expected
    assert found.effect is not None and found.effect.low < found.effect.value < found.effect.high


def test_the_same_key_gives_the_same_finding():
    first, second = (verdict(stag_hunt(), "resets") for _ in range(2))
    assert (first.figure, first.p) == (second.figure, second.p)
