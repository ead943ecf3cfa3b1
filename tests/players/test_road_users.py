"""The scripted players of the snowdrift game."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from coplay.envs import snowdrift
from coplay.players.scripted import random_player, scripted
from coplay.players.snowdrift import cleaner, exploiter, fickle, tired_cleaner
from tests.players.play import assert_mean, compiled, keep_all, play, policy_of, returns_of_casts

UP, DOWN, LEFT, RIGHT, STAY, REMOVE = range(6)


@functools.cache
def game():
    return snowdrift.make()


def on_board(players, drifts):
    """The state and what is seen of it, with everything on the cells given."""
    env = game()
    state, _ = compiled(env.reset)(jax.random.key(0))
    state = dataclasses.replace(
        state,
        players=jnp.array(players, jnp.int32),
        drifts=jnp.array(drifts, jnp.int32),
    )
    return compiled(env.step)(state, jnp.full(4, STAY), jax.random.key(0))


def test_a_cleaner_goes_to_the_nearest_drift_and_removes_it():
    env = game()
    # Seat 0 at row 1, column 1 (cell 9): drifts two steps away at (1, 3) = 11 and at (2, 2) = 18.
    # right: 1/2 + 1/2 * 1/2 = 3/4; down: 1/4. Seat 1 stands on a drift.
    _, timestep = on_board(players=(9, 63, 0, 40), drifts=(11, 18, 63, 62, 61, 60))
    player = cleaner(env)
    assert_allclose(policy_of(player, timestep), [0, 0.25, 0, 0.75, 0, 0])
    assert_allclose(policy_of(player, timestep, seat=1), [0, 0, 0, 0, 0, 1])
    # An exploiter in the bottom right corner may go up, left or stay; it leaves the drift alone.
    assert_allclose(policy_of(exploiter(env), timestep, seat=1), [1 / 3, 0, 1 / 3, 0, 1 / 3, 0], rtol=1e-6)
    assert exploiter(env).goal(0, timestep.observation[0]) == env.goals.names.index("no more")


def test_a_tired_cleaner_stops_after_its_removals():
    env = game()
    player = tired_cleaner(env, m=2)
    advance = compiled(player.advance)
    state, before = on_board(players=(63, 0, 0, 0), drifts=(63, 62, 61, 60, 59, 58))
    state, removed = compiled(env.step)(state, jnp.array([REMOVE, STAY, STAY, STAY]), jax.random.key(0))
    _, moved = compiled(env.step)(state, jnp.array([LEFT, STAY, STAY, STAY]), jax.random.key(0))
    assert_allclose(advance(jnp.int32(0), before.observation[0], removed.observation[0]), [0, 1, 0])
    assert_allclose(advance(jnp.int32(1), removed.observation[0], moved.observation[0]), [0, 1, 0])
    assert_allclose(advance(jnp.int32(1), before.observation[0], removed.observation[0]), [0, 0, 1])
    assert_allclose(policy_of(player, moved, latent=1)[REMOVE], 1)
    assert_allclose(policy_of(player, moved, latent=2)[REMOVE], 0)
    # Another's removal does not tire it.
    assert_allclose(advance(jnp.int32(0), before.observation[1], removed.observation[1]), [1, 0, 0])


def test_in_a_whole_game_two_tired_cleaners_remove_two_drifts_each():
    env = game()
    seated = {
        (0, 1): scripted(tired_cleaner(env), env, (0, 1)),
        (2, 3): scripted(exploiter(env), env, (2, 3)),
    }
    transition, alive, _ = play(env, seated, 64, env.horizon, jax.random.key(3), keep_all)
    removals = np.asarray((transition.decision.action == REMOVE) & alive[..., None]).sum(axis=0)
    # Meeting on one drift they tire together; otherwise four drifts are gone. Nobody removes a third.
    assert (removals == [2, 2, 0, 0]).all()


def test_the_fickle_one_changes_with_chance_one_in_twenty():
    env = game()
    player = fickle(env)
    row = jnp.zeros(env.observation_size)
    chances = np.stack([player.advance(jnp.int32(z), row, row) for z in range(2)])
    assert_allclose(player.start(), [0.5, 0.5])
    assert_allclose(chances, [[0.95, 0.05], [0.05, 0.95]])


def test_line_ups_earn_their_reference_returns():
    env = game()
    players = [random_player(env), cleaner(env), exploiter(env)]
    casts = [[0] * 4, [1] * 4, [0, 2, 2, 2], [1, 2, 2, 2]]
    at_random, clean, lone, alone = returns_of_casts(env, players, casts, 1000, jax.random.key(8))
    assert_mean(at_random.mean(axis=1), 11.0, floor=0.1)
    assert_allclose(clean.mean(axis=1), 30.0, rtol=1e-6)
    assert_mean(lone[:, 0], 1.3, floor=0.05)
    assert_mean(alone[:, 0], 12.0)
    assert_mean(alone[:, 1], 36.0, floor=0.05)
    assert max(x.mean(axis=1).max() for x in (at_random, clean, lone, alone)) <= env.ceiling + 1e-5
