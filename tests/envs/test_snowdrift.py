"""The snowdrift game, by hand and in 100 games."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.envs import snowdrift
from coplay.envs.snowdrift import SnowdriftState
from tests.envs.walks import fields_of, variant, walk

UP, DOWN, LEFT, RIGHT, STAY, REMOVE = range(6)


def a_start(env, players, drifts):
    return SnowdriftState(
        players=jnp.array(players),
        drifts=jnp.array(drifts),
        is_there=jnp.ones(len(drifts), bool),
        previous=jnp.full(len(players), STAY),
        time=jnp.int32(0),
    )


def play(env, state, actions):
    def one_step(state, action):
        state, after = env.step(state, action, jax.random.key(0))
        return state, (state, after)

    _, (states, rows) = jax.jit(lambda state: jax.lax.scan(one_step, state, jnp.array(actions)))(state)
    return fields_of(states), fields_of(rows)


@pytest.fixture(scope="module")
def by_hand():
    """Ten steps on 4x4 with drifts on 5, 10 and 3: one is removed by one, one by three, one by four."""
    env = snowdrift.make(size=4, drifts=3, horizon=10)
    return play(
        env,
        a_start(env, [0, 5, 10, 15], [5, 10, 3]),
        [
            [RIGHT, REMOVE, STAY, LEFT],
            [REMOVE, DOWN, UP, UP],  # A stands on no drift: it stays
            [RIGHT, RIGHT, DOWN, STAY],
            [RIGHT, REMOVE, REMOVE, REMOVE],
            [LEFT, LEFT, UP, RIGHT],
            [UP, UP, UP, UP],  # A would leave the board: it stays
            [RIGHT, RIGHT, RIGHT, UP],
            [STAY, UP, STAY, STAY],
            [STAY, RIGHT, STAY, STAY],
            [REMOVE, REMOVE, REMOVE, REMOVE],
        ],
    )


def test_ten_steps_by_hand_move_the_players(by_hand):
    states, _ = by_hand
    assert_array_equal(
        states["players"],
        [
            [1, 5, 10, 14],
            [1, 9, 6, 10],
            [2, 10, 10, 10],
            [3, 10, 10, 10],
            [2, 9, 6, 11],
            [2, 5, 2, 7],
            [3, 6, 3, 3],
            [3, 2, 3, 3],
            [3, 3, 3, 3],
            [3, 3, 3, 3],
        ],
    )
    assert_array_equal(states["previous"][1], [STAY, DOWN, UP, UP])


def test_ten_steps_by_hand_reward_all_and_charge_the_removers(by_hand):
    _, rows = by_hand
    expected = np.zeros((10, 4))
    expected[0] = [6, 6 - 4, 6, 6]
    expected[3] = [6, 6 - 4 / 3, 6 - 4 / 3, 6 - 4 / 3]
    expected[9] = [6 - 1] * 4
    assert_allclose(rows["reward"], expected, rtol=1e-6)
    assert_allclose(rows["reward"].sum(), 3 * 20, rtol=1e-6)


def test_ten_steps_by_hand_end_for_all_at_once(by_hand):
    _, rows = by_hand
    assert not rows["terminated"][:9].any() and rows["active"][:9].all()
    assert rows["terminated"][9].all() and not rows["active"][9].any()
    assert_allclose(
        rows["observation"][:, :, -1], np.repeat(np.arange(1, 11)[:, None] / 10, 4, axis=1), rtol=1e-6
    )


def test_ten_steps_by_hand_allow_removal_only_on_a_drift(by_hand):
    _, rows = by_hand
    assert_array_equal(rows["legal"][0, :, REMOVE], [False, False, True, False])  # B has removed its own
    assert_array_equal(rows["legal"][8, :, REMOVE], [True] * 4)
    assert_array_equal(rows["legal"][8, 0], [False, True, True, False, True, True])  # cell 3: top right


def test_the_game_ends_with_the_last_drift():
    env = snowdrift.make(size=4, players=2, drifts=2)
    _, rows = play(env, a_start(env, [0, 1], [0, 1]), [[REMOVE, STAY], [STAY, REMOVE], [STAY, STAY]])
    assert_array_equal(rows["terminated"][:, 0], [False, True, True])
    assert_allclose(rows["reward"][:2], [[2, 6], [6, 2]])


def test_two_drifts_in_one_step_pay_twice():
    env = snowdrift.make(size=4, players=3, drifts=2)
    _, rows = play(env, a_start(env, [0, 1, 2], [0, 1]), [[REMOVE, REMOVE, STAY]])
    assert_allclose(rows["reward"][0], [12 - 4, 12 - 4, 12])


def test_rewards_add_to_twenty_for_each_drift():
    state, rows, *_ = walk("snowdrift")
    removed = -np.diff(state["is_there"].sum(axis=-1), axis=1)
    assert removed.sum() > 100
    assert_allclose(rows["reward"][:, 1:].sum(axis=-1), 20 * removed, atol=1e-5)


def test_no_legal_move_leaves_the_grid():
    state, rows, *_ = walk("snowdrift")
    row, column = np.divmod(state["players"], 8)
    assert_array_equal(rows["legal"][..., UP], row > 0)
    assert_array_equal(rows["legal"][..., DOWN], row < 7)
    assert_array_equal(rows["legal"][..., LEFT], column > 0)
    assert_array_equal(rows["legal"][..., RIGHT], column < 7)
    assert rows["legal"][..., STAY].all()


@pytest.mark.parametrize("name", ["snowdrift", "snowdrift, entities"])
def test_split_agrees_with_the_state(name):
    env, (state, rows, *_) = variant(name), walk(name)
    parts = jax.jit(jax.vmap(jax.vmap(jax.vmap(env.split))))(jnp.asarray(rows["observation"][:, ::4]))
    circle = (np.arange(4)[:, None] + np.arange(4)[None, :]) % 4
    at = np.arange(64).reshape(8, 8)
    bodies = (state["players"][:, ::4, :, None, None] == at)[:, :, circle]  # [game, time, observer, seen]
    drifts = (state["drifts"][:, ::4, :, None, None] == at) & state["is_there"][:, ::4, :, None, None]
    assert_array_equal(parts["self"], bodies[:, :, :, 0])
    assert_array_equal(parts["others"], bodies[:, :, :, 1:])
    assert_array_equal(parts["drifts"], np.repeat(drifts.any(axis=2)[:, :, None], 4, axis=2))
    assert not np.asarray(parts["walls"]).any()
    assert_array_equal(parts["previous"], np.eye(6)[state["previous"][:, ::4]][:, :, circle])


def test_drifts_start_on_different_cells():
    state = walk("snowdrift").state
    assert all(len(set(cells)) == 6 for cells in state["drifts"][:, 0])


def test_what_is_declared_is_that_of_the_specification():
    env = snowdrift.make()
    assert (env.observation_size, env.ceiling, env.horizon) == (409, 30.0, 50)
    assert env.goals.names == ("drift 1", "drift 2", "drift 3", "drift 4", "drift 5", "drift 6", "no more")


def test_outcomes_and_picture_follow_the_drifts():
    env = snowdrift.make(size=4, players=2, drifts=2)
    before = a_start(env, [0, 6], [0, 7])
    after = jax.jit(env.step)(before, jnp.array([REMOVE, STAY]), jax.random.key(0))[0]
    assert int(env.outcomes(before, after)["drifts"]) == 1
    picture = env.draw(after)
    assert_array_equal(picture.cells["drift"], [[-1, -1], [1, 3]])
    assert_array_equal(picture.players, [[0, 0], [1, 2]])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"size": 40}, "size=40 must lie between 2 and 32"),
        ({"players": 1}, "players=1 must lie between 2 and 8"),
        ({"size": 2, "drifts": 5}, "drifts=5 must lie between 1 and 4"),
        ({"horizon": 0}, "horizon=0 must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        snowdrift.make(**options)
