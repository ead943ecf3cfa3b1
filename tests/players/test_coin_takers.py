"""The scripted players of the coin game, and its team optimum by backward induction."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.envs import coin_game
from coplay.players.coin_game import any_coin, own_coin, tit_for_tat
from coplay.players.scripted import random_player
from coplay.training.stages import no_learning
from coplay.types import Algorithm, Decision
from tests.players.play import assert_mean, compiled, policy_of, returns, returns_of_casts

UP, DOWN, LEFT, RIGHT, STAY = range(5)


@functools.cache
def game(tie="both"):
    return coin_game.make(tie=tie)


def after_moves(players, coin, owner, actions=(STAY, STAY)):
    """The board with both players and the coin on cells 0 to 8, and what is seen a step later."""
    env = game()
    state, _ = compiled(env.reset)(jax.random.key(0))
    state = dataclasses.replace(
        state,
        players=jnp.array(players, jnp.int32),
        coin=jnp.asarray(coin, state.coin.dtype),
        owner=jnp.arange(2) == owner,
    )
    return compiled(env.step)(state, jnp.array(actions), jax.random.key(0))


def test_a_coin_is_sought_across_the_edge():
    env = game()
    # Seat 0 in the corner 0, the coin in the opposite corner 8: up and left, each over the edge.
    _, timestep = after_moves(players=(0, 4), coin=8, owner=0)
    for player in (own_coin(env), any_coin(env)):
        assert_allclose(policy_of(player, timestep), [0.5, 0, 0.5, 0, 0])
    # The same coin is the other's to seat 1 in the centre.
    assert_allclose(policy_of(own_coin(env), timestep, seat=1), [0, 0, 0, 0, 1])
    assert_allclose(policy_of(any_coin(env), timestep, seat=1), [0, 0.5, 0, 0.5, 0])


def test_tit_for_tat_takes_one_coin_for_one():
    env = game()
    player = tit_for_tat(env)
    advance = compiled(player.advance)
    state, before = after_moves(players=(0, 4), coin=5, owner=0)  # seat 1 stands left of seat 0's coin
    _, robbed = compiled(env.step)(state, jnp.array([STAY, RIGHT]), jax.random.key(1))
    _, spared = compiled(env.step)(state, jnp.array([STAY, LEFT]), jax.random.key(1))
    assert_allclose(player.start(), [1, 0])
    assert_allclose(advance(jnp.int32(0), before.observation[0], robbed.observation[0]), [0, 1])
    assert_allclose(advance(jnp.int32(0), before.observation[0], spared.observation[0]), [1, 0])
    # Seat 1 took another's coin: had it been out for revenge, it would have had it.
    assert_allclose(advance(jnp.int32(1), before.observation[1], robbed.observation[1]), [1, 0])
    assert_allclose(advance(jnp.int32(1), before.observation[1], spared.observation[1]), [0, 1])
    # Its own coin pays nothing back.
    state, before = after_moves(players=(0, 4), coin=5, owner=1)
    _, own_taken = compiled(env.step)(state, jnp.array([STAY, RIGHT]), jax.random.key(1))
    assert_allclose(advance(jnp.int32(1), before.observation[1], own_taken.observation[1]), [0, 1])
    assert player.goal(jnp.int32(1), before.observation[1]) == env.goals.names.index("any coin")


@pytest.mark.parametrize(("tie", "victim", "thief"), [("both", -13.0, 31.1), ("share", -9.1, 27.2)])
def test_pairs_earn_their_reference_returns(tie, victim, thief):
    env = game(tie)
    players = [random_player(env), own_coin(env), any_coin(env)]
    casts = [[0, 0], [1, 1], [2, 2], [1, 2]]
    at_random, kind, greedy, unequal = returns_of_casts(env, players, casts, 1000, jax.random.key(5))
    assert_mean(at_random.mean(axis=1), 0.0)
    assert_mean(kind.mean(axis=1), 16.6, floor=0.05)  # the figures are given to one decimal
    assert_mean(greedy.mean(axis=1), 0.0)
    assert_mean(unequal[:, 0], victim, floor=0.05)
    assert_mean(unequal[:, 1], thief, floor=0.05)


def test_the_induction_policy_earns_the_team_optimum():
    env = game()
    value, policy = induction(env.horizon)
    free = np.array([[[c not in (i, j) for c in range(9)] for j in range(9)] for i in range(9)])
    start = np.where(free[..., None], value, 0).sum(axis=(2, 3)) / (2 * free.sum(axis=2))
    assert_allclose(start.mean() / 2, 17.43, atol=0.005)

    def act(params, memory, timestep, state, key):
        owner = jnp.argmax(state.owner, axis=1)
        joint = jnp.asarray(policy)[state.time, state.players[:, 0], state.players[:, 1], state.coin, owner]
        action = jnp.stack([joint // 5, joint % 5], axis=1)
        return memory, Decision(action, jnp.zeros(action.shape), jax.nn.one_hot(action, 5))

    central = Algorithm(
        init=lambda key: {},
        remember=lambda num_envs: {},
        act=act,
        watch=lambda params, memory, transition: memory,
        learn=no_learning,
    )
    assert_mean(returns(env, {(0, 1): central}, 1000, jax.random.key(6)).mean(axis=1), 17.43)


def induction(horizon):
    """Value at the start and joint actions [time, ...] over (cell 0, cell 1, coin, owner), in plain NumPy."""
    row, column = np.divmod(np.arange(9), 3)
    steps = [(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)]
    moved = np.array([(row + down) % 3 * 3 + (column + right) % 3 for down, right in steps])  # [action, cell]
    one, two, coin, owner = np.meshgrid(*map(np.arange, (9, 9, 9, 2)), indexing="ij")
    is_free = (coin != one) & (coin != two)
    value, policy = np.zeros(one.shape), []
    for _ in range(horizon):
        fresh = np.where(is_free, value, 0).sum(axis=2) / is_free.sum(axis=2)  # [cell, cell, owner]
        options = []
        for joint in range(25):
            first, second = moved[joint // 5][one], moved[joint % 5][two]
            takes = np.stack([first == coin, second == coin])
            by_owner = np.where(owner == 0, takes[0], takes[1])
            by_other = np.where(owner == 0, takes[1], takes[0])
            later = np.where(
                takes.any(axis=0), fresh[first, second, 1 - owner], value[first, second, coin, owner]
            )
            options.append(by_owner * 1.0 - by_other * 1.0 + later)
        value = np.max(options, axis=0)
        policy.append(np.argmax(options, axis=0))
    return value, np.array(policy[::-1], np.int32)
