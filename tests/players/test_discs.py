"""Scripted discs of MPE: along the longer axis, ties fair, and better than chance at what they are for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.envs import make_game
from coplay.players.catalogue import make_player
from coplay.players.mpe import push
from coplay.players.scripted import scripted
from tests.players.play import play

COAST, LEFT, RIGHT, DOWN, UP = range(5)
ALL = jnp.ones(5, bool)


@pytest.mark.parametrize(
    ("offsets", "counts", "sign", "chances"),
    [
        ([(3, 1), (0, 9)], (True, True), 1.0, {RIGHT: 1}),
        ([(3, 1), (0, 9)], (True, True), -1.0, {LEFT: 1}),
        ([(3, 1), (0, -9)], (False, True), 1.0, {DOWN: 1}),
        ([(-2, 2), (7, 7)], (True, True), 1.0, {LEFT: 1 / 2, UP: 1 / 2}),  # both axes are as long
        ([(2, 0), (0, 2)], (True, True), 1.0, {RIGHT: 1 / 2, UP: 1 / 2}),  # both things are as near
        ([(0, 0), (5, 0)], (True, True), 1.0, {COAST: 1}),
        ([(1, 0), (5, 0)], (False, False), 1.0, {COAST: 1}),
    ],
)
def test_a_disc_pushes_along_the_longer_axis_of_the_nearest(offsets, counts, sign, chances):
    found = push(jnp.array(offsets, jnp.float32), jnp.array(counts), ALL, sign)
    assert_allclose(found, [chances.get(action, 0) for action in range(5)], atol=1e-6)


def test_true_goals_are_the_nearest_of_the_other_role_by_seat():
    env = make_game("mpe:simple_tag")
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    places = [(-0.5, 0.0), (0.0, 0.6), (0.9, -0.8), (0.1, 0.5), (0.5, 0.5), (0.5, -0.5)]
    rows, _ = env.view(state.replace(p_pos=jnp.array(places)))
    goals = {name: [int(make_player(name, env).goal(0, row)) for row in rows] for name in ("chaser", "fleer")}
    assert goals == {"chaser": [3, 3, 3, -1], "fleer": [-1, -1, -1, 1]}


def returns(game, lineup):
    """Mean return by seat of 256 whole episodes."""
    env = make_game(game)
    seated = {seats: scripted(make_player(name, env), env, seats) for seats, name in lineup.items()}
    rewards = play(env, seated, 256, 25, jax.random.key(1), lambda step, *_: step.after.reward)
    return np.asarray(rewards).sum(axis=0).mean(axis=0)


def test_three_who_seek_landmarks_do_better_than_three_at_random():
    at_random = returns("mpe:simple_spread", {(0, 1, 2): "random"})
    seeking = returns("mpe:simple_spread", {(0, 1, 2): "nearest_landmark"})
    assert seeking.mean() > at_random.mean() + 5


def test_chasers_catch_more_of_who_does_not_flee():
    careless = returns("mpe:simple_tag", {(0, 1, 2): "chaser", (3,): "random"})
    fleeing = returns("mpe:simple_tag", {(0, 1, 2): "chaser", (3,): "fleer"})
    assert careless[0] > 30  # 3 at random
    assert fleeing[0] < careless[0] / 2
