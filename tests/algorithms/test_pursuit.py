"""Carrying out orders: what Q is taught, worked by hand, and what follows from Q."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from coplay.algorithms.hop_config import HOPConfig
from coplay.algorithms.pursuit import _drawn_goals, _rows, boltzmann_logits, pursuit_of, q_values
from coplay.algorithms.sharing import PER_AGENT
from coplay.envs import make_game
from coplay.envs.contract import COMPILE_FAST
from coplay.opponents.goal_policy import wishes
from coplay.opponents.goals import tried_goals
from coplay.players.scripted import random_player, scripted
from coplay.training.rollout import collect, start_playing

SEATS, DISCOUNT = (0, 1, 2, 3), 0.8
CONFIG = HOPConfig(hidden=(8, 8))
compiled = functools.partial(jax.jit, compiler_options=COMPILE_FAST)


@functools.cache
def played():
    """Random play, a pursuit that knows nothing yet, and the rows it learns from."""
    env = make_game("4h1s_4x4", observation="entities")
    pursuit, init = pursuit_of(env, SEATS, CONFIG, PER_AGENT)
    params = init(jax.random.key(0))
    player = scripted(random_player(env), env, SEATS)
    held = player.init(jax.random.key(1))

    @compiled
    def play(key):
        actor = start_playing(env, player, key, 16)
        trajectory = collect(env, player, held, actor, key, 30, 30)[1]
        return trajectory, _rows(pursuit, DISCOUNT, params, trajectory, jax.random.key(2))

    trajectory, rows = play(jax.random.key(3))
    goal = _drawn_goals(env.goals, (30, 16), jax.random.key(2))
    return env, pursuit, params, trajectory, rows, np.asarray(goal)


def unfolded(x):
    """[seat, env, time * goal] as [time, env, seat, goal]."""
    x = np.asarray(x)
    return np.transpose(x.reshape(4, 16, 30, 2, *x.shape[3:]), (2, 1, 0, 3, *range(4, x.ndim + 1)))


def test_every_step_in_the_game_teaches_about_every_goal_that_can_be_had():
    env, _, _, trajectory, rows, goal = played()
    before = trajectory.steps.before
    possible = np.asarray(wishes(env.goals, before).possible)  # [time, env, agent, goal]
    expected = np.asarray(before.active)[..., None] & np.take_along_axis(possible, goal[:, :, None], axis=-1)
    assert_array_equal(unfolded(rows.counts), expected)
    assert set(np.unique(goal)) == {0, 1}


def test_a_goal_that_is_tried_for_is_worth_1_and_an_end_without_it_0():
    env, _, _, trajectory, rows, goal = played()
    tried = np.asarray(compiled(lambda steps: tried_goals(env, steps))(trajectory.steps))[..., None]
    target, counts = unfolded(rows.target), unfolded(rows.counts)
    reached = tried == goal[:, :, None]
    ended = np.asarray(trajectory.steps.after.terminated)[..., None] & ~reached
    assert (reached & counts).sum() > 20
    assert_array_equal(target[reached & counts], 1.0)
    assert_array_equal(target[ended & counts], 0.0)
    assert (target[counts & ~reached] <= DISCOUNT).all()


def test_elsewhere_the_best_of_the_next_moment_counts_discounted():
    env, pursuit, params, trajectory, rows, goal = played()
    after = trajectory.steps.after
    wished = wishes(env.goals, after)
    step, game, seat, place = next(
        index
        for index in zip(*np.nonzero(unfolded(rows.counts)), strict=True)
        if not after.terminated[index[:3]] and wished.possible[index[:3]][goal[index[0], index[1], index[3]]]
    )
    which = goal[step, game, place]
    row = jnp.concatenate(
        [
            after.observation[step, game, seat],
            after.legal[step, game, seat].astype(jnp.float32),
            wished.description[step, game, seat, which],
        ]
    )
    q = np.asarray(q_values(pursuit, params, jnp.broadcast_to(row, (4, *row.shape))))[seat]
    best = q[np.asarray(after.legal[step, game, seat])].max()
    assert_allclose(
        unfolded(rows.target)[step, game, seat, place], DISCOUNT * np.clip(best, 0, 1), rtol=1e-4, atol=1e-6
    )


def test_equal_ways_are_taken_alike_and_worse_ones_by_how_much_worse_they_are():
    pursuit = played()[1]
    q = jnp.array([0.8, 0.8, 0.4, 0.9])
    logits = boltzmann_logits(pursuit, q, jnp.array([True, True, True, False]))
    chance = jax.nn.softmax(logits)
    assert_allclose(chance[0], chance[1])
    assert_allclose(chance[2] / chance[0], np.exp(-0.5 / CONFIG.pursuit_temperature), rtol=1e-4)
    assert chance[3] == 0
    out_of_reach = jax.nn.softmax(boltzmann_logits(pursuit, 0 * q, jnp.ones(4, bool)))
    assert_allclose(out_of_reach, 0.25)
