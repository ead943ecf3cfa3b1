"""A GRU's memory: its gradient is written out, and must be the one that would be derived."""

import jax
import jax.numpy as jnp
from numpy.testing import assert_allclose

from coplay.nets.recurrent import remember

TIME, ROWS, HIDDEN = 7, 3, 4


def by_the_book(from_memory, memory, drive, first):
    """The same recurrence as it is usually written, step by step."""
    remembered = []
    for now in range(TIME):
        memory = jnp.where(first[now][:, None], 0.0, memory)
        reset_in, update_in, new_in = jnp.split(drive[now], 3, axis=-1)
        reset_kept, update_kept, new_kept = jnp.split(memory @ from_memory, 3, axis=-1)
        reset, update = jax.nn.sigmoid(reset_in + reset_kept), jax.nn.sigmoid(update_in + update_kept)
        memory = (1.0 - update) * jnp.tanh(new_in + reset * new_kept) + update * memory
        remembered.append(memory)
    return jnp.stack(remembered)


def drawn():
    keys = jax.random.split(jax.random.key(0), 5)
    from_memory = jax.random.normal(keys[0], (HIDDEN, 3 * HIDDEN))
    memory = jax.random.normal(keys[1], (ROWS, HIDDEN))
    drive = jax.random.normal(keys[2], (TIME, ROWS, 3 * HIDDEN))
    first = jax.random.bernoulli(keys[3], 0.3, (TIME, ROWS))
    return from_memory, memory, drive, first, jax.random.normal(keys[4], (TIME, ROWS, HIDDEN))


def test_memory_is_what_the_formula_says():
    *arguments, _ = drawn()
    assert bool(jnp.any(arguments[3])) and not bool(jnp.all(arguments[3]))
    assert_allclose(remember(*arguments), by_the_book(*arguments), rtol=1e-5, atol=1e-6)


def test_one_step_by_hand():
    # No drive, no weights: both gates stand at 1/2 and the proposal is 0, so half of the memory stays.
    nothing = jnp.zeros((1, 1, 3))
    after = remember(jnp.zeros((1, 3)), jnp.array([[0.8]]), nothing, jnp.array([[False]]))
    assert_allclose(after, [[[0.4]]])
    assert_allclose(remember(jnp.zeros((1, 3)), jnp.array([[0.8]]), nothing, jnp.array([[True]])), 0.0)


def test_its_gradient_is_the_derived_one():
    from_memory, memory, drive, first, weight = drawn()

    def gradient(function):
        def loss(*arguments):
            return jnp.sum(function(*arguments, first) * weight)

        return jax.grad(loss, argnums=(0, 1, 2))(from_memory, memory, drive)

    for ours, derived in zip(gradient(remember), gradient(by_the_book), strict=True):
        assert bool(jnp.any(derived != 0))
        assert_allclose(ours, derived, rtol=1e-4, atol=1e-6)


def test_players_with_weights_of_their_own_are_mapped_over():
    from_memory, memory, drive, first, _ = drawn()
    both = jax.vmap(remember, in_axes=(0, None, None, None))(
        jnp.stack([from_memory, -from_memory]), memory, drive, first
    )
    assert_allclose(both[1], remember(-from_memory, memory, drive, first), rtol=1e-6)
