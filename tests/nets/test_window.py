"""What is in sight of a row, what a transformer makes of it, and that nothing comes in from elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.nets.window import HEADS, Window, fused, memory_width, recent

WIDTH, ROWS, TIME, WINDOW = 8, 3, 9, 4


@pytest.fixture(scope="module")
def transformer():
    made = Window(jax.random.key(0), 5, WIDTH, WINDOW)
    distance = jax.random.normal(jax.random.key(1), made.distance.shape)  # as if something had been learned
    return jax.tree_util.tree_map(lambda x: distance if x.shape == distance.shape else x, made)


def inputs(seed=2):
    rows = jax.random.normal(jax.random.key(seed), (TIME, ROWS, 5))
    first = jnp.zeros((TIME, ROWS), bool).at[0].set(True).at[5, 1].set(True)
    return rows, first


def nothing(rows=ROWS, width=WIDTH, window=WINDOW):
    return jnp.zeros((rows, memory_width(window, width)))


def test_a_row_sees_itself_and_those_before_it_in_its_episode():
    # five rows 1..5 of one number, three in sight; an episode begins at the fourth
    rows = jnp.arange(1.0, 6.0).reshape(5, 1, 1)
    first = jnp.array([True, False, False, True, False]).reshape(5, 1)
    seen = recent(nothing(1, 1, 3), rows, first, window=3)
    windows = np.where(seen.is_in_sight(), seen.windows(seen.rows)[..., 0], 0)[:, 0]
    assert_array_equal(windows, [[1, 0, 0], [2, 1, 0], [3, 2, 1], [4, 0, 0], [5, 4, 0]])
    # the next may see two of them: rows, the newest first, then whether each is there
    assert_array_equal(
        seen.memory()[:, 0], [[1, 0, 1, 0], [2, 1, 1, 1], [3, 2, 1, 1], [4, 0, 1, 0], [5, 4, 1, 1]]
    )


def test_a_sequence_goes_on_from_what_was_kept():
    # rows 2 and 1 were kept; 7 follows in the same episode, then one that begins
    memory = jnp.array([[2.0, 1.0, 1.0, 1.0]])
    rows, first = jnp.array([7.0, 8.0]).reshape(2, 1, 1), jnp.array([False, True]).reshape(2, 1)
    seen = recent(memory, rows, first, window=3)
    windows = np.where(seen.is_in_sight(), seen.windows(seen.rows)[..., 0], 0)[:, 0]
    assert_array_equal(windows, [[7, 2, 1], [8, 0, 0]])


@pytest.mark.parametrize("cut", [1, 3, 6])
def test_a_sequence_read_in_two_parts_says_what_the_whole_says(transformer, cut):
    rows, first = inputs()
    memory, whole = transformer.run(nothing(), rows, first)
    before, start = transformer.run(nothing(), rows[:cut], first[:cut])
    after, end = transformer.run(before[-1], rows[cut:], first[cut:])
    assert_allclose(jnp.concatenate([start, end]), whole, atol=1e-5)
    assert_allclose(jnp.concatenate([before, after]), memory, atol=1e-6)


def test_attention_is_the_sum_worked_row_by_row(transformer):
    rows, first = inputs()
    said = transformer.run(nothing(), rows, first)[1]
    begins = {0: 0, 1: 5, 2: 0}
    for row, time in [(0, 0), (0, 2), (0, 8), (1, 5), (1, 6), (2, 7)]:
        start = max(time - WINDOW + 1, begins[row])
        assert_allclose(
            said[time, row], by_hand(transformer, np.asarray(rows[start : time + 1, row])), atol=1e-5
        )


def by_hand(net, rows):
    """What the last of these rows says of all of them, in NumPy."""

    def linear(layer, x):
        return x @ np.asarray(layer.weight) + np.asarray(layer.bias)

    x = linear(net.enter, rows)
    key, value = np.split(linear(net.offered, x), 2, axis=-1)
    query, size = linear(net.asked, x[-1]), WIDTH // HEADS
    heard = []
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        back = np.arange(len(rows))[::-1]
        fit = key[:, part] @ query[part] / np.sqrt(size) + np.asarray(net.distance)[back, head]
        share = np.exp(fit - fit.max()) / np.exp(fit - fit.max()).sum()
        heard.append(share @ value[:, part])
    now = x[-1] + linear(net.heard, np.concatenate(heard))
    return now + linear(net.said, np.tanh(linear(net.thought, now)))


def test_what_is_out_of_sight_does_not_leak(transformer):
    rows, first = inputs()
    spoilt = transformer.run(nothing(), rows.at[3].set(jnp.nan), first)[1]
    hit = np.isnan(np.asarray(spoilt)).any(axis=-1)
    # row 3 is seen by the four steps 3..6; where an episode begins at 5, only by 3 and 4
    assert_array_equal(hit[:, 0], [False] * 3 + [True] * 4 + [False] * 2)
    assert_array_equal(hit[:, 1], [False] * 3 + [True] * 2 + [False] * 4)


def test_what_was_kept_of_the_last_episode_does_not_leak(transformer):
    rows, first = inputs()
    spoilt = jnp.full((ROWS, memory_width(WINDOW, WIDTH)), jnp.nan)
    memory, said = transformer.run(spoilt, rows, first)  # an episode begins with the first row
    assert np.isfinite(memory).all() and np.isfinite(said).all()


# --- states mixed by how alike they make play ----------------------------------------------------


def states(values, first):
    """A sequence of states of one number."""
    rows = jnp.array(values).reshape(-1, 1, 1)
    return recent(nothing(1, 1, 3), rows, jnp.array(first).reshape(-1, 1), window=3)


def play(numbers):
    """A state of x chooses the first of two actions with odds e^x to 1."""
    return jax.nn.log_softmax(jnp.concatenate([numbers, jnp.zeros_like(numbers)], axis=-1))


def divergence(x, y):
    p, q = (np.array([np.exp(z), 1.0]) / (np.exp(z) + 1.0) for z in (x, y))
    return np.sum(p * np.log(p / q))


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_states_weigh_by_how_alike_they_make_play(temperature):
    # at the third step states 2 (now), 0 and 1 are in sight, the newest first
    apart = np.array([0.0, divergence(2.0, 0.0), divergence(2.0, 1.0)])
    weight = np.exp(-apart / temperature) / np.exp(-apart / temperature).sum()
    mixed = fused(states([1.0, 0.0, 2.0], [True, False, False]), lambda x: x, play, temperature)
    assert_allclose(mixed[2, 0, 0], weight @ [2.0, 0.0, 1.0], rtol=1e-5)
    assert_allclose(mixed[0, 0, 0], 1.0, rtol=1e-6)  # alone


def test_states_before_an_episode_weigh_nothing():
    spoilt = states([jnp.nan, 5.0, 5.0], [True, True, False])
    mixed = fused(spoilt, lambda x: x, play, 1.0)
    assert np.isnan(mixed[0]).all()
    assert_allclose(mixed[1:, 0, 0], [5.0, 5.0], rtol=1e-6)


def test_weights_carry_no_gradient():
    # d c_t / d h_(t-m) is w_m, as if the weights were given
    def last(values):
        return fused(states(values, [True, False, False]), lambda x: x, play, 1.0)[2, 0, 0]

    apart = np.array([divergence(2.0, 1.0), divergence(2.0, 0.0), 0.0])
    weight = np.exp(-apart) / np.exp(-apart).sum()
    assert_allclose(jax.grad(last)(jnp.array([1.0, 0.0, 2.0])), weight, rtol=1e-5)
