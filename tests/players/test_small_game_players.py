"""The scripted players of the matrix games and of specialisation."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.envs import matrix, specialisation
from coplay.players import matrix as players
from coplay.players.catalogue import make_player
from coplay.players.scripted import scripted
from coplay.players.specialisation import fixed, sidestep
from tests.players.play import assert_mean, compiled, keep_all, play, policy_of, returns


def after_round(env, own, other):
    """What is seen after one round."""
    state, _ = compiled(env.reset)(jax.random.key(0))
    return compiled(env.step)(state, jnp.array([own, other]), jax.random.key(0))[1]


@pytest.mark.parametrize(
    ("name", "at_first", "after_0", "after_1"),
    [
        ("always_cooperate", 0, 0, 0),
        ("always_defect", 1, 1, 1),
        ("tit_for_tat", 0, 0, 1),
        ("generous", 0, 0, 2 / 3),
        ("biased(0.7)", 0.3, 0.3, 0.3),
    ],
)
def test_the_chance_of_a_1_depends_on_what_the_other_played_last(name, at_first, after_0, after_1):
    env = matrix.make()
    player = make_player(name, env)
    _, start = compiled(env.reset)(jax.random.key(0))
    seen = [start] + [after_round(env, own, other) for other in range(2) for own in range(2)]
    chances = [at_first, after_0, after_0, after_1, after_1]
    assert_allclose([policy_of(player, timestep)[1] for timestep in seen], chances, rtol=1e-6)
    goals = [int(player.goal(0, timestep.observation[0])) for timestep in seen]
    assert goals == [int(chance > 0.5) for chance in chances]


def test_grim_remembers_a_1_until_the_episode_ends():
    env = matrix.make(rounds=4)
    noisy, unforgiving = players.biased(env, 0.5), players.grim(env)
    seated = {(0,): scripted(noisy, env, (0,)), (1,): scripted(unforgiving, env, (1,))}
    transition, _, _ = play(env, seated, 64, 12, jax.random.key(0), keep_all, again=True)
    theirs, mine = np.asarray(transition.decision.action).reshape(3, 4, 64, 2).transpose(3, 0, 1, 2)
    assert (mine[:, 0] == 0).all()
    assert (mine[:, 1:] == np.maximum.accumulate(theirs, axis=1)[:, :-1]).all()


@pytest.mark.parametrize(
    ("game", "repeats"),
    # For (own, other) = 00, 01, 10, 11, by the two best of the payoffs in the game's table.
    [
        ("prisoners_dilemma", [1, 0, 1, 0]),
        ("stag_hunt", [1, 0, 1, 0]),
        ("chicken", [1, 0, 1, 0]),
        ("pure_coordination", [1, 0, 0, 1]),
    ],
)
def test_win_stay_lose_shift_repeats_after_its_two_best_payoffs(game, repeats):
    env = matrix.make(game=game)
    player = players.win_stay_lose_shift(env)
    for (own, other), repeat in zip(itertools.product(range(2), repeat=2), repeats, strict=True):
        policy = policy_of(player, after_round(env, own, other))
        assert policy[own] == repeat
        assert policy.sum() == 1


def test_win_stay_lose_shift_knows_its_role():
    env = matrix.make(game="matching_pennies")
    player = players.win_stay_lose_shift(env)
    state, timestep = env.reset(jax.random.key(0))
    matcher = int(np.argmax(state.matcher))
    assert policy_of(player, timestep).tolist() == [1, 0]
    _, timestep = env.step(state, jnp.array([1, 1]), jax.random.key(0))
    policies = [policy_of(player, timestep, seat=i).tolist() for i in range(2)]
    assert policies[matcher] == [0, 1]  # they matched: the matcher won and repeats its 1
    assert policies[1 - matcher] == [1, 0]


def test_distinct_fixed_players_earn_the_ceiling():
    env = specialisation.make(num_agents=3)
    seated = {(k,): scripted(fixed(env, k), env, (k,)) for k in range(3)}
    assert_allclose(returns(env, seated, 2, jax.random.key(0)), 1.0)


def test_sidestep_keeps_a_task_of_its_own_and_leaves_a_shared_one():
    env = specialisation.make(num_agents=4, rounds=3)
    player = sidestep(env)
    state, timestep = env.reset(jax.random.key(0))
    assert_allclose(policy_of(player, timestep), [0.25] * 4)
    assert player.goal(0, timestep.observation[0]) == -1
    # Players 0 and 1 share task 2, player 2 has task 0, player 3 task 3: task 1 is free.
    _, timestep = env.step(state, jnp.array([2, 2, 0, 3]), jax.random.key(0))
    policies = [policy_of(player, timestep, seat=i).tolist() for i in range(4)]
    assert policies == [[0, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    assert [int(player.goal(0, timestep.observation[i])) for i in range(4)] == [-1, -1, 0, 3]


def test_two_sidesteppers_who_meet_step_together_for_ever():
    # With two tasks, whoever leaves a shared one has only the other to go to, and so has its partner.
    env = specialisation.make(num_agents=2, rounds=6)
    earned = returns(env, {(0, 1): scripted(sidestep(env), env, (0, 1))}, 1000, jax.random.key(1))
    assert set(earned.ravel()) == {3.0, 6.0}
    assert_mean(earned.mean(axis=1), 4.5, floor=0.0)
