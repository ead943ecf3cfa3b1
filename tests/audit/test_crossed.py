"""Learners, names and positions taken apart: worked by hand, on drawn figures, and in a game."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.audit.crossed import Crossed, crossed, judged_effects, three_effects
from coplay.audit.finding import judged
from coplay.audit.subject import Subject
from coplay.types import Environment
from tests.audit.mutants import stag_hunt
from tests.audit.suite import finding_of


def drawn_play(games: int, learner=(0, 0, 0), name=(0, 0, 0), position=(0, 0, 0)):
    """Three players who earn what they are, what they are called and where they are, and chance."""

    def play(learners, key):
        names, chance = np.arange(3), np.asarray(jax.random.normal(key, (games, 3)))
        places = (names[None] + np.arange(games)[:, None]) % 3
        return chance + np.array(learner)[np.asarray(learners)] + np.array(name) + np.array(position)[places]

    return play


def test_every_learner_has_every_name_in_every_position_equally_often():
    played = crossed(drawn_play(6), 3, jax.random.key(0))
    cells = [played.learner[:, name] * 3 + played.position[:, name] for name in range(3)]
    assert [np.bincount(each, minlength=9).tolist() for each in cells] == [[2] * 9] * 3


def test_effects_by_hand():
    # Two players, four episodes: learner 1 earns 4 more, position 1 earns 2 more; half the gap each way.
    learner = np.array([[0, 1], [0, 1], [1, 0], [1, 0]])
    position = np.array([[0, 1], [1, 0], [0, 1], [1, 0]])
    returns = 4.0 * learner + 2.0 * position
    levels = three_effects(Crossed(returns, learner, position))
    found = {(level.factor, level.number): level.value * returns.std() for level in levels}
    assert_allclose([found["learner", 1], found["position", 1], found["name", 1]], [4.0, 2.0, 0.0], atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_learners_may_differ(seed):
    played = crossed(drawn_play(900, learner=(0, 3, -1)), 3, jax.random.key(seed))
    outcome = judged_effects(played, "learners", "")
    assert judged("test", outcome, outcome.p) == "pass"
    assert max(level.value for level in three_effects(played) if level.factor == "learner") > 1


@pytest.mark.parametrize(("factor", "room"), [("name", "training"), ("position", "envs")])
def test_a_name_or_a_position_that_pays_is_told_from_the_others(factor, room):
    play = drawn_play(900, learner=(0, 3, -1), **{factor: (0, 0, 1)})
    outcome = judged_effects(crossed(play, 3, jax.random.key(0)), "learners", "")
    assert judged("test", outcome, outcome.p) == "fail"
    assert outcome.room == room and outcome.next.startswith(f"{factor} 2 earns")


def test_nothing_is_said_where_all_earn_the_same():
    played = Crossed(np.ones((4, 2)), *2 * [np.tile([0, 1], (4, 1))])
    assert judged_effects(played, "", "").verdict == "not_run"


# --- in a game -----------------------------------------------------------------------------------


def short(env: Environment) -> Environment:
    return dataclasses.replace(env, horizon=8)


def paid_by_place(env: Environment) -> Environment:
    """Whoever starts as the third body is given a unit at once, under whatever name."""

    def reset(key):
        state, timestep = env.reset(key)
        return (state, jnp.arange(env.num_agents) == 2), timestep

    def step(state, action, key):
        inner, timestep = env.step(state[0], action, key)
        return (inner, state[1]), dataclasses.replace(timestep, reward=timestep.reward + state[1])

    return dataclasses.replace(
        env,
        reset=reset,
        step=step,
        rename=lambda state, order: (env.rename(state[0], order), state[1][order]),
        view=lambda state: env.view(state[0]),
    )


def test_a_fair_game_passes():
    found = finding_of(Subject(short(stag_hunt()), "a game"), "permuted_ids")
    assert found.verdict == "pass" and found.n == 16_384


def test_a_body_that_is_paid_more_points_to_the_game():
    found = finding_of(Subject(paid_by_place(short(stag_hunt())), "a game"), "permuted_ids")
    assert found.verdict == "fail" and found.room == "envs" and found.next.startswith("position 2")


def test_a_player_by_itself_and_parts_of_ones_own_are_not_asked():
    roles = dataclasses.replace(stag_hunt(), alike=(0, 1, 1, 1))
    assert finding_of(Subject(roles, "roles"), "permuted_ids").verdict == "not_run"
