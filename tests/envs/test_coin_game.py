"""The coin game, by hand, in 100 games and against backward induction."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare

from coplay.envs import coin_game, grid
from coplay.envs.coin_game import CoinGameState
from tests.envs.walks import fields_of, variant, walk

UP, DOWN, LEFT, RIGHT, STAY = range(5)
BOTH_VARIANTS = ["coin game", "coin game, share"]


def a_state(players, coin, owner) -> CoinGameState:
    """Cells of the 3x3 torus are numbered row by row."""
    return CoinGameState(
        players=jnp.array(players),
        coin=jnp.int32(coin),
        owner=jnp.arange(2) == owner,
        previous=jnp.array([STAY, STAY]),
        time=jnp.int32(0),
    )


COINS = [1, 2, 3, 6, 0, 4, 4, 7, 0, 0]  # where the coin lies before each step; chance is overruled
ACTIONS = [
    [RIGHT, STAY],  # A takes its own
    [RIGHT, UP],  # A takes B's
    [UP, RIGHT],  # B takes A's across the edge; A goes from the top row to the bottom
    [RIGHT, DOWN],  # both enter B's coin
    [DOWN, LEFT],  # A takes its own across the edge
    [STAY, UP],
    [RIGHT, LEFT],  # B takes its own
    [UP, DOWN],  # both enter A's coin
    [STAY, STAY],
    [UP, LEFT],
]


def by_hand(tie):
    """Ten steps worked by hand, A from cell 0 and B from cell 8."""
    env = coin_game.make(horizon=10, tie=tie)

    def one_step(state, coin_and_action):
        coin, action = coin_and_action
        state, after = env.step(dataclasses.replace(state, coin=coin), action, jax.random.key(3))
        return state, (state, after)

    script = (jnp.array(COINS), jnp.array(ACTIONS))
    _, (states, rows) = jax.jit(lambda state: jax.lax.scan(one_step, state, script))(a_state([0, 8], 1, 0))
    return fields_of(states), fields_of(rows)


@pytest.fixture(scope="module")
def both():
    return by_hand("both")


def test_ten_steps_by_hand_move_round_the_torus(both):
    states, _ = both
    assert_array_equal(
        states["players"],
        [[1, 8], [2, 5], [8, 3], [6, 6], [0, 8], [0, 5], [1, 4], [7, 7], [7, 7], [4, 6]],
    )


def test_ten_steps_by_hand_pay_and_charge(both):
    _, rows = both
    expected = [[1, 0], [1, -2], [-2, 1], [1, -1], [1, 0], [0, 0], [0, 1], [-1, 1], [0, 0], [0, 0]]
    assert_array_equal(rows["reward"], expected)


def test_ten_steps_by_hand_share_a_tie():
    _, rows = by_hand("share")
    expected = [[1, 0], [1, -2], [-2, 1], [0.5, -0.5], [1, 0], [0, 0], [0, 1], [-0.5, 0.5], [0, 0], [0, 0]]
    assert_array_equal(rows["reward"], expected)


def test_ten_steps_by_hand_change_the_colour_with_every_coin(both):
    states, _ = both
    owner = states["owner"].argmax(axis=-1)
    assert_array_equal(owner, [1, 0, 1, 0, 1, 1, 0, 1, 1, 1])
    assert (states["owner"].sum(axis=-1) == 1).all()


def test_ten_steps_by_hand_end_terminated_at_the_horizon(both):
    _, rows = both
    assert not rows["terminated"][:9].any() and rows["terminated"][9].all()
    assert_array_equal(rows["active"], ~rows["terminated"])
    assert_allclose(rows["observation"][:, 0, -1], np.arange(1, 11) / 10, rtol=1e-6)


def test_both_players_see_themselves_as_the_owner_of_their_coin():
    env = coin_game.make()
    rows = jax.jit(env.view)(a_state([4, 2], 7, 1))[0]
    assert rows.shape == (2, 47)
    first, second = (env.split(row) for row in rows)
    assert_array_equal(np.argwhere(first["self"]), [[1, 1]])
    assert_array_equal(np.argwhere(first["others"][0]), [[0, 2]])
    assert_array_equal(np.argwhere(first["other_coin"]), [[2, 1]])
    assert not np.asarray(first["own_coin"]).any()
    assert_array_equal(np.argwhere(second["own_coin"]), [[2, 1]])
    assert not np.asarray(second["other_coin"]).any()
    assert_array_equal(np.argwhere(second["others"][0]), [[1, 1]])


@pytest.mark.parametrize("name", BOTH_VARIANTS)
def test_a_coin_adds_one_or_takes_one_away_and_a_tie_adds_nothing(name):
    state, rows, *_ = walk(name)
    takes = state["players"][:, 1:] == state["coin"][:, :-1, None]
    owner = state["owner"][:, :-1]
    total = (takes & owner).sum(axis=-1) - (takes & ~owner).sum(axis=-1)
    assert takes.all(axis=-1).any()  # ties happen
    assert_allclose(rows["reward"][:, 1:].sum(axis=-1), total, atol=1e-5)


@pytest.mark.parametrize("name", BOTH_VARIANTS)
def test_a_coin_never_lies_under_a_player(name):
    state = walk(name).state
    assert (state["players"] != state["coin"][..., None]).all()


@pytest.mark.parametrize("name", BOTH_VARIANTS)
def test_split_agrees_with_the_state(name):
    env, (state, rows, *_) = variant(name), walk(name)
    parts = jax.jit(jax.vmap(jax.vmap(jax.vmap(env.split))))(jnp.asarray(rows["observation"]))
    at = np.arange(9).reshape(3, 3)
    bodies = state["players"][..., None, None] == at
    coin = (state["coin"][..., None, None] == at)[:, :, None]
    owner = state["owner"][..., None, None]
    assert_array_equal(parts["self"], bodies)
    assert_array_equal(parts["others"][:, :, :, 0], bodies[:, :, ::-1])
    assert_array_equal(parts["own_coin"], coin & owner)
    assert_array_equal(parts["other_coin"], coin & ~owner)
    one_hot = np.eye(5)[state["previous"]]
    assert_array_equal(parts["previous"], np.stack([one_hot, one_hot[:, :, ::-1]], axis=3))


@pytest.mark.parametrize(("players", "num_free"), [([4, 4], 8), ([1, 4], 7), ([4, 1], 7)])
def test_the_next_coin_is_uniform_over_cells_without_a_player(players, num_free):
    env = coin_game.make()
    state = a_state(players, 4, 0)  # one of them, or both, is about to stay on it
    keys = jax.random.split(jax.random.key(0), 20_000)
    after, _ = jax.jit(jax.vmap(env.step, (None, None, 0)))(state, jnp.array([STAY, STAY]), keys)
    counts = np.bincount(np.asarray(after.coin), minlength=9)
    assert_array_equal(np.flatnonzero(counts == 0), np.unique(players))
    assert chisquare(counts[counts > 0]).pvalue > 0.001
    assert (counts > 0).sum() == num_free


def test_a_game_starts_anywhere_with_either_colour():
    env = coin_game.make()
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(1), 20_000))
    pairs = np.asarray(state.players[:, 0] * 9 + state.players[:, 1])
    assert chisquare(np.bincount(pairs, minlength=81)).pvalue > 0.001
    assert chisquare(np.bincount(np.asarray(state.coin), minlength=9)).pvalue > 0.001
    assert abs(float(state.owner[:, 0].mean()) - 0.5) < 4 * 0.5 / np.sqrt(20_000)


def test_the_ceiling_is_that_of_the_specification():
    assert_allclose(coin_game.make().ceiling, 17.43, atol=0.005)


def best_joint_actions(horizon):
    """[steps left, player, player, coin, owner] -> the joint action that earns most in all, found on
    whole boards; the game's own ceiling is computed on offsets."""
    cells = np.arange(9)
    row, column = np.divmod(cells, 3)
    moved = np.stack(
        [
            ((row + down) % 3) * 3 + (column + right) % 3
            for down, right in [(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)]
        ]
    )
    a, b, coin, owner = np.meshgrid(cells, cells, cells, [0, 1], indexing="ij")
    first, second = np.divmod(np.arange(25), 5)
    new_a, new_b = moved[first][:, a], moved[second][:, b]  # [joint action, state]
    takes = np.stack([new_a == coin, new_b == coin])
    earned = np.where(owner == 0, 1.0 * takes[0] - takes[1], 1.0 * takes[1] - takes[0])
    free = (cells != cells[:, None, None]) & (cells != cells[None, :, None])  # [a, b, coin]
    value, best = np.zeros(a.shape), [np.zeros(a.shape, int)]
    for _ in range(horizon):
        fresh = np.where(free[..., None], value, 0).sum(axis=2) / free.sum(axis=2)[..., None]
        later = np.where(takes.any(axis=0), fresh[new_a, new_b, 1 - owner], value[new_a, new_b, coin, owner])
        total = earned + later
        value = total.max(axis=0)
        best.append(total.argmax(axis=0))
    return np.stack(best)


def test_the_best_joint_play_averages_the_ceiling():
    env = coin_game.make()
    table = jnp.asarray(best_joint_actions(50))

    def one_game(key):
        def one_step(state, key):
            left, owner = env.horizon - state.time, jnp.argmax(state.owner)
            joint = table[left, state.players[0], state.players[1], state.coin, owner]
            state, after = env.step(state, jnp.stack([joint // 5, joint % 5]), key)
            return state, after.reward

        state, _ = env.reset(key)
        return jax.lax.scan(one_step, state, jax.random.split(key, env.horizon))[1].sum(axis=0)

    returns = np.asarray(jax.jit(jax.vmap(one_game))(jax.random.split(jax.random.key(5), 4000))).mean(axis=1)
    error = returns.std() / np.sqrt(len(returns))
    assert abs(returns.mean() - 17.43) < 4 * error < 0.1


def test_outcomes_count_own_and_other_coins():
    env = coin_game.make()
    before = a_state([0, 2], 1, 0)
    after, _ = jax.jit(env.step)(before, jnp.array([RIGHT, LEFT]), jax.random.key(0))
    counts = {name: int(count) for name, count in env.outcomes(before, after).items()}
    assert counts == {"own_coins": 1, "other_coins": 1}
    picture = env.draw(before)
    assert_array_equal(picture.cells["coin of player 1"], [[0, 1]])
    assert_array_equal(picture.cells["coin of player 2"], [[-1, -1]])


def test_what_is_declared_is_that_of_the_specification():
    env = coin_game.make()
    assert (env.observation_size, env.plane_shape, env.num_actions) == (47, (3, 3, 4), 5)
    assert env.action_names == grid.MOVE_NAMES


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"size": 9}, "size=9 must lie between 2 and 8"),
        ({"horizon": 0}, "horizon=0 must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        coin_game.make(**options)
