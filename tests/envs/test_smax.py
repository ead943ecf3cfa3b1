"""SMAX behind our contract: the dead leave, a wiped-out side ends it, the clock cuts it, who wins counts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.envs import make_game

STOP, ATTACK = 4, 5
NUM_GAMES, STEPS = 16, 60


@functools.cache
def game():
    env = make_game("smax:3m")
    return env, jax.jit(env.reset), jax.jit(env.step)


def units(state, **changes):
    return state.replace(state=state.state.replace(**changes))


def faced_off(health=(45, 45, 45, 45, 45, 45), step=10):
    """Three marines and three enemies in range of each other, so healthy; who has no health is dead."""
    _, reset, _ = game()
    state, _ = reset(jax.random.key(0))
    places = [(14, 14), (14, 16), (14, 18), (17, 14), (17, 16), (17, 18)]
    return units(
        state,
        unit_positions=jnp.array(places, jnp.float32),
        unit_health=jnp.array(health, jnp.float32),
        unit_alive=jnp.array(health) > 0,
        step=jnp.int32(step),
    )


def after_one(state, *action):
    env, _, step = game()
    after, timestep = step(state, jnp.array(action), jax.random.key(1))
    return after, timestep, {name: int(count) for name, count in env.outcomes(state, after).items()}


def test_the_last_enemy_falls_and_the_battle_is_won():
    # the one enemy left loses its last point of 45: 1/45 of a third, and 1 for the battle
    _, timestep, counts = after_one(faced_off((45, 45, 45, 0, 1, 0)), STOP, ATTACK + 1, STOP)
    assert counts == {"won": 1, "enemies_killed": 1, "units_lost": 0}
    assert_allclose(timestep.reward, [1 + 1 / 135] * 3, atol=1e-5)
    assert timestep.terminated.all() and not timestep.active.any() and not timestep.truncated


def test_a_unit_that_falls_leaves_while_the_battle_goes_on():
    after, timestep, counts = after_one(faced_off((1, 45, 45, 45, 45, 45)), STOP, STOP, STOP)
    assert counts["units_lost"] == 1 and counts["won"] == 0
    assert timestep.terminated.tolist() == [True, False, False]
    assert timestep.active.tolist() == [False, True, True]
    assert timestep.legal[0].tolist() == [action == STOP for action in range(8)]
    assert not timestep.observation[0].any()
    _, timestep, _ = after_one(after, STOP, ATTACK + 1, STOP)
    assert timestep.reward[0] == 0 < timestep.reward[1]  # the dead are paid no more


def test_a_lost_battle_is_terminated_and_not_won():
    _, timestep, counts = after_one(faced_off((1, 0, 0, 45, 45, 45)), STOP, STOP, STOP)
    assert counts == {"won": 0, "enemies_killed": 0, "units_lost": 1}
    assert timestep.terminated.all() and not timestep.truncated


def test_the_clock_cuts_a_battle_and_who_falls_in_that_step_has_still_fallen():
    _, timestep, counts = after_one(faced_off((1, 45, 45, 45, 45, 45), step=99), STOP, STOP, STOP)
    assert timestep.truncated and counts["won"] == 0
    assert timestep.terminated.tolist() == [True, False, False]
    _, timestep, _ = after_one(faced_off(step=98), STOP, STOP, STOP)
    assert not timestep.truncated


def test_a_battle_decided_in_the_last_step_is_not_cut():
    _, timestep, counts = after_one(faced_off((45, 45, 45, 0, 1, 0), step=99), STOP, ATTACK + 1, STOP)
    assert counts["won"] == 1 and timestep.terminated.all() and not timestep.truncated


@pytest.mark.parametrize(
    ("action", "way"), [(0, (0, 1)), (1, (1, 0)), (2, (0, -1)), (3, (-1, 0)), (STOP, (0, 0))]
)
def test_units_go_where_the_action_says(action, way):
    # marines make 3.15 a second, a step is half of one
    env, reset, step = game()
    assert env.action_names[:5] == ("up", "right", "down", "left", "stop")
    state, _ = reset(jax.random.key(0))
    state = units(
        state, unit_positions=jnp.array([(8, 8), (8, 16), (8, 24), (30, 4), (30, 16), (30, 28)], float)
    )
    after, _ = step(state, jnp.array([action, STOP, STOP]), jax.random.key(1))
    moved = after.state.unit_positions[0] - state.state.unit_positions[0]
    assert_allclose(moved, 3.15 / 2 * np.array(way), atol=1e-5)


@functools.cache
def battles():
    """Rows [time, game, ...] of battles in which all wait and attack the first in range, and outcomes."""
    env = game()[0]

    def one_step(carry, key):
        state, before = carry
        attacks = before.legal[..., ATTACK:]
        action = jnp.where(attacks.any(axis=-1), ATTACK + jnp.argmax(attacks, axis=-1), STOP)
        after = jax.vmap(env.step)(state, action, jax.random.split(key, NUM_GAMES))
        return after, (before, after[1], jax.vmap(env.outcomes)(state, after[0]))

    def play(key):
        start = jax.vmap(env.reset)(jax.random.split(key, NUM_GAMES))
        return jax.lax.scan(one_step, start, jax.random.split(key, STEPS))[1]

    run = jax.jit(play)
    first, again = run(jax.random.key(2)), run(jax.random.key(2))
    assert all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True)
    )
    return first


def test_some_battles_are_won_some_lost_and_each_only_once():
    before, after, counts = battles()
    over = np.asarray(after.terminated.all(axis=-1))
    playing = np.cumsum(over, axis=0) - over == 0
    won = (np.asarray(counts["won"]) * playing).sum(axis=0)
    ended = over.any(axis=0)
    assert set(won) == {0, 1} and ended.sum() > won.sum() > 0
    assert (won <= ended).all()
    returns = (np.asarray(after.reward) * playing[..., None]).sum(axis=0)
    assert (returns <= 2 + 1e-5).all()
    # whoever lives through a won battle has earned all there is: the enemies' health, and 1
    lives = np.asarray(before.active) & playing[..., None]
    to_the_end = lives.sum(axis=0) == playing.sum(axis=0)[:, None]
    assert_allclose(returns[to_the_end & (won == 1)[:, None]], 2.0, atol=1e-5)


def test_the_departed_stay_away_unpaid_and_may_only_stop():
    before, after, _ = battles()
    gone = ~np.asarray(before.active)
    assert gone.any()
    assert not (gone & np.asarray(after.active)).any()
    over = np.asarray(before.terminated.all(axis=-1))
    gone &= ~over[..., None]
    assert (np.asarray(after.reward)[gone] == 0).all()
    assert (np.asarray(before.legal)[gone] == (np.arange(8) == STOP)).all()


def test_renaming_units_changes_names_alone():
    """Chance is drawn by seat, so places are compared where no enemy has to choose whom to follow."""
    env, _, step = game()
    order = jnp.array([2, 0, 1])
    state = faced_off((45, 30, 15, 45, 45, 45))
    state, _ = step(state, jnp.array([ATTACK, ATTACK, ATTACK + 2]), jax.random.key(0))
    named = env.rename(state, order)
    action = jnp.array([ATTACK, 0, ATTACK + 2])
    for number in range(2):
        state, timestep = step(state, action, jax.random.key(number))
        named, renamed = step(named, action[order], jax.random.key(number))
        expected = env.rename(state, order)
        assert_allclose(named.state.unit_health, expected.state.unit_health, atol=1e-4)
        assert_allclose(named.state.unit_positions, expected.state.unit_positions, atol=1e-4)
        assert (named.state.prev_attack_actions == expected.state.prev_attack_actions).all()
        assert_allclose(renamed.reward, timestep.reward[order], atol=1e-5)
        assert (renamed.active == timestep.active[order]).all()
    own = timestep.observation[order][:, -10:-7]  # health and place; waits of weapons are drawn
    assert_allclose(renamed.observation[:, -10:-7], own, atol=1e-5)


def test_goals_are_enemies_in_sight_and_attacks_try_for_them():
    env = game()[0]
    rows, legal = env.view(faced_off((45, 45, 45, 45, 0, 45)))
    possible, seen = env.goals.look(rows[0])
    assert possible.tolist() == [True, False, True]
    assert_allclose(seen[0, :3], [1.0, 3 / 9, 0.0], atol=1e-6)  # health, and place in units of sight
    tried = [int(env.goals.tried(jnp.int32(action))) for action in (0, STOP, ATTACK, ATTACK + 2)]
    assert tried == [-1, -1, 0, 2]
    assert legal[0].tolist() == [True] * 5 + [True, False, False]  # the third is 5 away, out of range
    assert set(env.split(rows[0])) == {"others", "enemies", "health", "position", "cooldown", "kind"}


def test_a_picture_shows_the_living():
    env = game()[0]
    picture = env.draw(faced_off((45, 0, 45, 45, 45, 0)))
    assert picture.grid.tolist() == [32, 32]
    assert picture.players.tolist() == [[17, 14], [-1, -1], [13, 14]]
    assert picture.cells["enemy"].tolist() == [[17, 17], [15, 17], [-1, -1]]
