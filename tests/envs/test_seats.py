"""Seats that are drawn anew, and games under other names."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

from coplay.envs import make_game
from coplay.envs.seats import renamed, shuffled
from coplay.errors import BadInput
from coplay.types import stream
from tests.envs.walks import equal, variant

PER_AGENT = ("observation", "legal", "reward", "active", "terminated")


@pytest.fixture(scope="module")
def one_step():
    """The same step of a stag hunt, with shuffled seats and without: learners' actions 0, 1, 2, 3."""
    inner = variant("4x4, entities, early")
    env = shuffled(inner)
    key, step_key = jax.random.key(27), jax.random.key(22)
    state, first = jax.jit(env.reset)(key)
    after_state, after = jax.jit(env.step)(state, jnp.arange(4), step_key)
    inner_state, inner_first = jax.jit(inner.reset)(stream(key, "game"))
    seat_action = np.empty(4, np.int32)
    seat_action[np.asarray(state.order)] = np.arange(4)  # learner i sits in seat order[i]
    inner_after_state, inner_after = jax.jit(inner.step)(inner_state, jnp.asarray(seat_action), step_key)
    return {
        "order": np.asarray(state.order),
        "rows": [(first, inner_first), (after, inner_after)],
        "states": [(state.inner, inner_state), (after_state.inner, inner_after_state)],
    }


def test_the_drawn_order_is_no_turn_of_the_circle_here(one_step):
    assert_array_equal(np.sort(one_step["order"]), np.arange(4))
    assert len({int(step) % 4 for step in np.diff(one_step["order"])}) > 1


def test_every_row_follows_its_learner(one_step):
    for rows, inner in one_step["rows"]:
        for field in PER_AGENT:
            expected = np.asarray(getattr(inner, field))[one_step["order"]]
            assert_array_equal(getattr(rows, field), expected, err_msg=field)


def test_actions_reach_the_seat_of_their_learner(one_step):
    for state, inner in one_step["states"]:
        assert equal(state, inner)


def test_all_orders_are_drawn_alike():
    env = shuffled(variant("specialisation"))
    orders = jax.jit(jax.vmap(lambda key: env.reset(key)[0].order))(
        jax.random.split(jax.random.key(0), 24_000)
    )
    number = np.asarray(orders) @ [64, 16, 4, 1]
    _, counts = np.unique(number, return_counts=True)
    assert len(counts) == 24
    assert chisquare(counts).pvalue > 0.001


def test_seats_do_not_depend_on_the_game_that_is_drawn():
    env = shuffled(variant("coin game"))
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 8_000))
    in_seat_one, owns = np.asarray(state.order[:, 0]) == 1, np.asarray(state.inner.owner[:, 0])
    table = np.array([[(in_seat_one & owns).sum(), (in_seat_one & ~owns).sum()],
                      [(~in_seat_one & owns).sum(), (~in_seat_one & ~owns).sum()]])  # fmt: skip
    assert chisquare(table.reshape(-1)).pvalue > 0.001


def test_renaming_learners_commutes_with_a_step():
    env = shuffled(variant("4x4, entities, early"))
    state, _ = jax.jit(env.reset)(jax.random.key(3))
    orders = jnp.array([[1, 0, 2, 3], [3, 2, 0, 1], [1, 2, 3, 0]])
    action, key = jnp.array([3, 0, 2, 1]), jax.random.key(4)

    def both_ways(order):
        renamed_first = env.step(env.rename(state, order), action[order], key)
        after, rows = env.step(state, action, key)
        rows = dataclasses.replace(rows, **{field: getattr(rows, field)[order] for field in PER_AGENT})
        return equal(renamed_first, (env.rename(after, order), rows))

    assert jax.jit(jax.vmap(both_ways))(orders).all()


def test_a_picture_and_the_outcomes_follow_the_learners():
    env = shuffled(variant("coin game"))
    reset = jax.jit(env.reset)
    state, first = next(
        s for s in map(reset, jax.random.split(jax.random.key(0), 50)) if int(s[0].order[0]) == 1
    )
    picture, parts = env.draw(state), env.split(first.observation[0])
    assert_array_equal(np.argwhere(parts["self"])[0], picture.players[0])
    own = np.argwhere(parts["own_coin"])
    shown = picture.cells["coin of player 1"]
    assert_array_equal(shown, own if len(own) else [[-1, -1]])
    assert set(env.outcomes(state, state)) == {"own_coins", "other_coins"}


def walked(env, steps):
    """States, actions and what followed, of random play that hunts where it can."""

    def one_step(carry, key):
        state, before = carry
        liking = jax.random.uniform(key, (4, 7)) * jnp.arange(1, 8)[None]
        action = jnp.argmax(before.legal * liking, axis=1)
        after = env.step(state, action, key)
        return after, (state, action, after)

    keys = jax.random.split(jax.random.key(5), steps)
    return jax.lax.scan(one_step, env.reset(jax.random.key(27)), keys)[1]


def test_a_shuffled_game_is_read_as_a_board_by_learner_and_written_back_from_it():
    env = shuffled(variant("4x4, entities, early"))
    states, actions, (later, rows) = jax.jit(lambda: walked(env, 12))()
    assert not np.asarray(rows.active).all(), "somebody has left on the way"

    def there_and_back(state, action, later, rows):
        board = env.entities.read(later)
        written = env.entities.write(state, action, board, rows.reward)
        can = env.entities.possible(state, board)
        return equal(written, (later, rows)), equal(env.entities.read(written[0]), board), can

    assert np.all(jax.jit(jax.vmap(there_and_back))(states, actions, later, rows))


def test_a_learner_is_on_the_board_where_it_sees_itself():
    env = shuffled(variant("4x4, entities, early"))
    state, first = jax.jit(env.reset)(jax.random.key(27))
    own = jax.vmap(lambda row: env.split(row)["self"])(first.observation)
    assert_array_equal(env.entities.read(state).players, np.argmax(own.reshape(4, -1), axis=1))
    assert len(set(np.asarray(env.entities.read(state).players).tolist())) == 4, "or all orders are alike"
    jump = dataclasses.replace(env.entities.read(state), players=env.entities.read(state).players[::-1])
    assert not env.entities.possible(state, jump)


def test_a_game_that_is_no_board_of_things_is_none_with_shuffled_seats_either():
    assert shuffled(variant("coin game")).entities is None


@pytest.mark.parametrize("order", [(1, 2, 3, 0), (2, 3, 0, 1)])
def test_a_game_under_other_names_is_the_same_game_row_by_row(order):
    plain = make_game("4h1s_4x4")
    env = renamed(plain, order)
    seats = jnp.array(order)

    def compare(key):
        def one_step(carry, key):
            action = jax.random.randint(key, (4,), 0, 7)
            state, rows = plain.step(carry[0], action, key)
            named_state, named_rows = env.step(carry[1], action[seats], key)
            same = [equal(getattr(named_rows, f), getattr(rows, f)[seats]) for f in PER_AGENT]
            return (state, named_state), jnp.stack(same)

        (state, first), (named_state, named_first) = plain.reset(key), env.reset(key)
        same = [equal(getattr(named_first, f), getattr(first, f)[seats]) for f in PER_AGENT]
        _, later = jax.lax.scan(one_step, (state, named_state), jax.random.split(key, 35))
        return jnp.stack(same), later

    first, later = jax.jit(compare)(jax.random.key(6))
    assert first.all() and later.all()


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 1, 2), (1, 1, 1, 1)])
def test_only_a_turn_of_the_circle_is_accepted(order):
    with pytest.raises(BadInput, match="must be a turn of the circle of 4 players, such as \\(1, 2, 3, 0\\)"):
        renamed(make_game("4h1s_4x4"), order)


def test_shuffled_learners_can_be_renamed_too():
    env = renamed(shuffled(variant("coin game")), (1, 0))
    plain = shuffled(variant("coin game"))
    state, first = jax.jit(env.reset)(jax.random.key(1))
    plain_state, plain_first = jax.jit(plain.reset)(jax.random.key(1))
    assert_array_equal(state.order, plain_state.order[::-1])
    assert_array_equal(first.observation, plain_first.observation[::-1])
