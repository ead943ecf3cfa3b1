"""Iterated matrix games, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.envs import matrix
from coplay.envs.matrix import NONE_YET, SAFETY_STOP, MatrixState
from tests.envs.walks import fields_of, walk


def a_start(matcher=(False, False), time=0) -> MatrixState:
    return MatrixState(jnp.array([NONE_YET, NONE_YET]), jnp.array(matcher), jnp.int32(time))


@pytest.fixture(scope="module")
def by_hand():
    """Ten rounds of the dilemma; 0 cooperates."""
    env = matrix.make(game="prisoners_dilemma")
    actions = [[0, 0], [0, 1], [1, 0], [1, 1], [0, 0], [1, 0], [0, 1], [1, 1], [1, 0], [0, 1]]

    def one_step(state, action):
        state, after = env.step(state, action, jax.random.key(0))
        return state, (state, after)

    _, (states, rows) = jax.jit(lambda state: jax.lax.scan(one_step, state, jnp.array(actions)))(a_start())
    return fields_of(states), fields_of(rows)


def test_ten_rounds_by_hand_pay_by_the_table(by_hand):
    _, rows = by_hand
    both, alone, cheat, neither = [-1, -1], [-3, 0], [0, -3], [-2, -2]
    expected = [both, alone, cheat, neither, both, cheat, alone, neither, cheat, alone]
    assert_array_equal(rows["reward"], expected)


def test_ten_rounds_by_hand_show_the_last_round_from_ones_own_side(by_hand):
    _, rows = by_hand
    assert_allclose(rows["observation"][1], [[0, 1, 0, 0, 0, 0, 0.2], [0, 0, 1, 0, 0, 0, 0.2]])
    assert_allclose(rows["observation"][3], [[0, 0, 0, 1, 0, 0, 0.4], [0, 0, 0, 1, 0, 0, 0.4]])


def test_ten_rounds_by_hand_end_terminated(by_hand):
    _, rows = by_hand
    assert not rows["terminated"][:9].any() and rows["terminated"][9].all()
    assert not rows["truncated"].any()


def test_before_the_first_round_there_is_nothing_to_see():
    _, first = jax.jit(matrix.make().reset)(jax.random.key(0))
    assert_array_equal(first.observation, [[0, 0, 0, 0, 1, 0, 0]] * 2)


@pytest.mark.parametrize(
    ("game", "payoffs", "best"),
    [
        ("prisoners_dilemma", [-1, -3, 0, -2], -1),
        ("stag_hunt", [4, 0, 3, 2], 4),
        ("chicken", [3, 1, 4, 0], 3),
        ("pure_coordination", [1, 0, 0, 1], 1),
    ],
)
def test_payoffs_are_those_of_the_specification(game, payoffs, best):
    env = matrix.make(game=game)
    joint = jnp.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    _, after = jax.jit(jax.vmap(env.step, (None, 0, None)))(a_start(), joint, jax.random.key(0))
    assert_array_equal(after.reward[:, 0], payoffs)
    assert_array_equal(after.reward[:, 1], np.array(payoffs)[[0, 2, 1, 3]])  # seen from the other side
    assert env.ceiling == 10 * best


@pytest.mark.parametrize("matcher", [0, 1])
def test_the_matcher_wins_on_equal_sides_wherever_it_sits(matcher):
    env = matrix.make(game="matching_pennies")
    joint = jnp.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    state = a_start(matcher=np.arange(2) == matcher)
    _, after = jax.jit(jax.vmap(env.step, (None, 0, None)))(state, joint, jax.random.key(0))
    assert_array_equal(after.reward[:, matcher], [1, -1, -1, 1])
    assert_array_equal(after.reward[:, 1 - matcher], [-1, 1, 1, -1])
    assert_array_equal(after.observation[:, :, 5], [np.arange(2) == matcher] * 4)


def test_roles_are_drawn_fairly_and_only_in_matching_pennies():
    keys = jax.random.split(jax.random.key(0), 10_000)
    env = matrix.make(game="matching_pennies")
    roles = jax.jit(jax.vmap(lambda key: env.reset(key)[0].matcher))(keys)
    assert (np.asarray(roles).sum(axis=1) == 1).all()
    assert abs(float(roles[:, 0].mean()) - 0.5) < 4 * 0.5 / 100
    assert not np.asarray(jax.jit(matrix.make(game="chicken").reset)(keys[0])[0].matcher).any()


def test_pennies_add_to_nothing():
    rows = walk("pennies, hidden time").rows
    assert (rows["reward"][:, 1:].sum(axis=-1) == 0).all()
    assert (rows["reward"][:, 1:] != 0).all()


def test_one_round_is_one_shot():
    _, after = jax.jit(matrix.make(rounds=1).step)(a_start(), jnp.array([0, 1]), jax.random.key(0))
    assert np.asarray(after.terminated).all()


def test_a_hidden_end_comes_with_the_chance_that_was_asked_for():
    env = matrix.make(continue_probability=0.8)
    keys = jax.random.split(jax.random.key(2), 20_000)
    step = jax.jit(jax.vmap(env.step, (None, None, 0)))
    _, after = step(a_start(time=3), jnp.array([0, 1]), keys)
    ended = np.asarray(after.terminated)
    assert abs(ended[:, 0].mean() - 0.2) < 4 * np.sqrt(0.2 * 0.8 / 20_000)
    assert_array_equal(ended[:, 0], ended[:, 1])
    assert not np.asarray(after.truncated).any()
    assert not np.asarray(after.observation[..., -1]).any()  # time is hidden


def test_the_safety_stop_is_truncated_unless_the_draw_ended_the_game():
    env = matrix.make(continue_probability=0.8)
    keys = jax.random.split(jax.random.key(2), 2_000)
    _, after = jax.jit(jax.vmap(env.step, (None, None, 0)))(
        a_start(time=SAFETY_STOP - 1), jnp.array([0, 1]), keys
    )
    terminated, truncated = np.asarray(after.terminated[:, 0]), np.asarray(after.truncated)
    assert (terminated ^ truncated).all() and terminated.any() and truncated.any()
    assert_array_equal(np.asarray(after.active[:, 0]), truncated)  # whoever is cut off is still in the game
    assert env.can_truncate and env.horizon == SAFETY_STOP
    assert not matrix.make().can_truncate


def test_expected_returns_count_the_expected_rounds():
    # p = 0.8: 1 / (1 - 0.8) = 5 rounds; uniform play of the dilemma earns (-1 - 3 + 0 - 2) / 4 = -1.5 a round
    env = matrix.make(continue_probability=0.8)
    assert_allclose([env.ceiling, env.random_return], [-5.0, -7.5])


def test_split_picture_and_outcomes_tell_the_last_round():
    env = matrix.make(game="chicken")
    before = a_start()
    assert_array_equal(env.draw(before).players, [[-1, -1], [-1, -1]])
    after, rows = jax.jit(env.step)(before, jnp.array([1, 0]), jax.random.key(0))
    assert_array_equal(env.draw(after).players, [[0, 1], [1, 0]])
    assert_array_equal(env.split(rows.observation[0])["last"], [[0, 0], [1, 0]])
    assert_array_equal(env.split(rows.observation[1])["last"], [[0, 1], [0, 0]])
    assert {name: int(n) for name, n in env.outcomes(before, after).items()} == {"swerve": 1, "straight": 1}


def test_renaming_moves_the_role_along():
    env = matrix.make(game="matching_pennies")
    state = dataclasses.replace(a_start(matcher=(True, False)), last=jnp.array([0, 1]))
    swapped = env.rename(state, jnp.array([1, 0]))
    assert_array_equal(swapped.matcher, [False, True])
    assert_array_equal(swapped.last, [1, 0])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"rounds": 0}, "rounds=0 must be at least 1"),
        ({"continue_probability": 1.0}, "must lie between 0 and 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        matrix.make(**options)
