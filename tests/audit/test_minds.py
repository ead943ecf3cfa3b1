"""Checks of labels, beliefs and searches: silent on HOP as it is, and each planted defect found in its room.

About three minutes on two busy cores: most defects need programs of their own.
"""

import functools

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.algorithms.hop_config import HOPConfig
from coplay.audit.beliefs import BELIEFS, RULES, Watched, _followed
from coplay.audit.finding import Finding, findings
from coplay.audit.finding import Seen as CheckSeen
from coplay.audit.goal_labels import GOAL_LABELS, Seen, told_later
from coplay.audit.search_trees import DISCOUNT, SEARCH_TREES, STATES, WALKS, a_world, slow_search
from coplay.audit.small_scale import at_small_scale
from coplay.audit.subject import Budget, Subject
from coplay.audit.tree_company import TREE_COMPANY
from coplay.experiment import build, read_experiment, with_overrides
from coplay.opponents.between import BETWEEN
from coplay.opponents.goals import UNKNOWN
from coplay.planning.search import SearchConfig
from tests.audit.mutants import stag_hunt
from tests.audit.planted_planning import PLANNING

CHECKS = {check.name: check for check in (*GOAL_LABELS, *BELIEFS, *SEARCH_TREES, *TREE_COMPANY)}
OF_SEARCH = ["search", "ties", "tree_company"]


def a_subject(name: str = "hop_4h1s_4x4", **settings) -> Subject:
    experiment = with_overrides(read_experiment(name), settings)
    built = build(at_small_scale(experiment))
    return Subject(built.env, name, built.stretches[0].lineup, None, experiment)


def found(subject: Subject, name: str) -> Finding:
    outcome = CHECKS[name].call(subject, Budget(), jax.random.key(0))
    return findings([CheckSeen(CHECKS[name], outcome, 0.0)])[0]


@functools.cache
def clean() -> Subject:
    return a_subject()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CHECKS)
def test_hop_as_it_is_passes(name):
    told = found(clean(), name)
    assert told.verdict == "pass", told
    assert told.n and told.n >= 40


@pytest.mark.sampled(5)
@pytest.mark.parametrize("planted", PLANNING, ids=lambda planted: f"{planted.number} {planted.what}")
def test_a_planted_defect_is_found_where_it_is(planted):
    with planted.plant():
        told = found(a_subject(planted.experiment, **planted.settings), planted.check)
    assert told.verdict == "fail", told
    assert told.room == planted.room and told.next


@pytest.mark.parametrize("name", ["belief", *OF_SEARCH])
def test_what_nobody_does_is_not_asked_about(name):
    told = found(a_subject("ppo_4h1s_4x4"), name)
    assert told.verdict == "not_run" and told.next


@pytest.mark.parametrize("name", ["belief", *OF_SEARCH])
def test_a_game_by_itself_has_nobody_who_thinks(name):
    assert found(Subject(stag_hunt(), "a game"), name).verdict == "not_run"


def test_a_game_by_itself_still_tells_what_a_step_gave_away():
    assert found(Subject(stag_hunt(), "a game"), "labels").verdict == "pass"


def test_a_label_is_what_was_next_given_away_before_the_game_was_over_or_a_goal_gone():
    # One player: a hare (1) with step 1, an end with step 2, a goal gone with step 3, a stag (0) with step 5.
    shown = np.array([UNKNOWN, 1, UNKNOWN, UNKNOWN, UNKNOWN, 0])[:, None, None]
    over = np.array([False, False, True, False, False, False])[:, None]
    lost = np.array([False, False, False, True, False, False])[:, None, None]
    assert_array_equal(told_later(Seen(shown, over, lost))[:, 0, 0], [1, 1, UNKNOWN, UNKNOWN, 0, 0])
    kept = Seen(shown, over, np.zeros_like(lost))
    assert_array_equal(told_later(kept)[:, 0, 0], [1, 1, UNKNOWN, 0, 0, 0])


def test_a_slow_belief_is_bayes_rule_and_starts_anew_with_the_next_episode():
    # Prior 1/2 each; an action four times as likely for the first goal: 0.8 / (0.8 + 0.2). Then it is over.
    both = np.ones(2, bool)
    step = Watched(np.array([0.8, 0.2]), 0.25, both, both, True, UNKNOWN, is_over=False, is_new=False)
    watched = [step, step._replace(is_over=True), step]
    belief, whim = _followed(HOPConfig(between="none", whim=0.0), watched)
    assert_allclose(belief, [[0.5, 0.5], [0.8, 0.2], [0.5, 0.5]])
    assert_allclose(whim, 0.0)


def test_every_rule_between_episodes_has_a_slow_one():
    assert set(RULES) == set(BETWEEN)


def test_a_slow_search_of_a_chain_is_a_sum():
    # 1, 1 + 2/2, 1 + 2/2 + 4/4 and the same ever after; the root's own estimate is 0.
    config = SearchConfig(WALKS, 1.0, DISCOUNT, 3)
    root, _, depth = slow_search(a_world(jax.random.key(0)), config, STATES)
    assert_allclose(root.q[1], (1 + 2 + 3 * 22) / 24)
    assert_allclose(root.value, (0 + 1 + 2 + 3 * 22) / 25)
    assert_array_equal(root.visits, [0, 24, 0, 0])
    assert_allclose(depth, (1 + 2 + 3 * 22) / 24)
