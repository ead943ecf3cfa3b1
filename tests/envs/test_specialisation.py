"""Specialisation, by hand and at random."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.envs import specialisation
from tests.envs.walks import fields_of, walk

ACTIONS = [
    [0, 0, 0],
    [0, 1, 2],
    [0, 0, 1],
    [2, 2, 2],
    [2, 1, 2],
    [1, 0, 2],
    [0, 1, 1],
    [2, 1, 0],
    [1, 1, 1],
    [0, 2, 1],
]


def by_hand(reward):
    """Ten rounds of three players."""
    env = specialisation.make(num_agents=3, rounds=10, reward=reward)
    start, _ = jax.jit(env.reset)(jax.random.key(0))

    def one_step(state, action):
        state, after = env.step(state, action, jax.random.key(0))
        return state, (state, after)

    _, (states, rows) = jax.jit(lambda state: jax.lax.scan(one_step, state, jnp.array(ACTIONS)))(start)
    return fields_of(states), fields_of(rows)


@pytest.fixture(scope="module")
def own():
    return by_hand("own")


def test_ten_rounds_by_hand_pay_one_over_the_players_on_a_task(own):
    _, rows = own
    third, half = 1 / 3, 1 / 2
    expected = [
        [third, third, third],
        [1, 1, 1],
        [half, half, 1],
        [third, third, third],
        [half, 1, half],
        [1, 1, 1],
        [1, half, half],
        [1, 1, 1],
        [third, third, third],
        [1, 1, 1],
    ]
    assert_allclose(rows["reward"], expected, rtol=1e-6)


def test_ten_rounds_by_hand_share_the_distinct_tasks():
    _, rows = by_hand("shared")
    distinct = np.array([1, 3, 2, 1, 2, 3, 2, 3, 1, 3])
    assert_allclose(rows["reward"], np.repeat(distinct[:, None] / 3, 3, axis=1), rtol=1e-6)


def test_both_rewards_have_the_same_mean(own):
    assert_allclose(own[1]["reward"].mean(axis=1), by_hand("shared")[1]["reward"].mean(axis=1), rtol=1e-6)


def test_ten_rounds_by_hand_show_own_task_shares_and_time(own):
    _, rows = own
    shares = [2 / 3, 1 / 3, 0]
    assert_allclose(
        rows["observation"][2],
        [[1, 0, 0, *shares, 0.3], [1, 0, 0, *shares, 0.3], [0, 1, 0, *shares, 0.3]],
        rtol=1e-6,
    )


def test_ten_rounds_by_hand_end_terminated(own):
    _, rows = own
    assert not rows["terminated"][:9].any() and rows["terminated"][9].all()


def test_players_who_differ_reach_the_ceiling_in_one_round():
    env = specialisation.make(num_agents=4)
    state, first = jax.jit(env.reset)(jax.random.key(0))
    assert not np.asarray(first.observation).any()  # nothing says who one is
    _, after = jax.jit(env.step)(state, jnp.array([2, 0, 3, 1]), jax.random.key(0))
    assert_array_equal(after.reward, [1, 1, 1, 1])
    assert np.asarray(after.terminated).all()
    assert env.ceiling == 1.0


@pytest.mark.parametrize(("players", "blind"), [(2, 0.750), (4, 0.684), (8, 0.656), (16, 0.644)])
def test_uniform_play_earns_what_a_blind_shared_policy_can(players, blind):
    assert_allclose(specialisation.make(num_agents=players).random_return, blind, atol=0.0005)


@pytest.mark.parametrize("name", ["specialisation", "specialisation, eight, shared"])
def test_rewards_add_to_the_distinct_tasks(name):
    _, rows, action, *_ = walk(name)
    distinct = np.array([[len(set(joint)) for joint in game] for game in action])
    assert_allclose(rows["reward"][:, 1:].sum(axis=-1), distinct, atol=1e-5)


def test_picture_split_and_outcomes_tell_the_last_round():
    env = specialisation.make(num_agents=2, rounds=2)
    before, _ = jax.jit(env.reset)(jax.random.key(0))
    assert_array_equal(env.draw(before).players, [[-1, -1], [-1, -1]])
    after, rows = jax.jit(env.step)(before, jnp.array([1, 1]), jax.random.key(0))
    assert_array_equal(env.draw(after).players, [[0, 1], [1, 1]])
    assert int(env.outcomes(before, after)["distinct"]) == 1
    parts = env.split(rows.observation[0])
    assert_array_equal(parts["own"], [0, 1])
    assert_array_equal(parts["share"], [0, 1])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"num_agents": 17}, "num_agents=17 must lie between 2 and 16"),
        ({"rounds": 0}, "rounds=0 must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        specialisation.make(**options)
