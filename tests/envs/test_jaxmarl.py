"""What every game of JaxMARL is given, on a game of two players with different numbers of actions."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from numpy.testing import assert_array_equal

from coplay.envs.imported import jaxmarl

FEW, MANY = "few", "many"


def game():
    """Two players of 3 and 5 actions who see 1 and 2 numbers; a state is what was done last."""
    return SimpleNamespace(
        agents=[FEW, MANY],
        action_spaces={FEW: SimpleNamespace(n=3), MANY: SimpleNamespace(n=5)},
        reset=lambda key: ({}, jnp.zeros(2, jnp.int32)),
        step_env=lambda key, state, action: (
            {},
            jnp.stack([action[FEW], action[MANY]]),
            {FEW: 1.0, MANY: 2.0},
            {},
            {},
        ),
        get_obs=lambda state: {FEW: jnp.array([7.0]), MANY: jnp.array([8.0, 9.0])},
    )


def test_an_action_that_a_player_does_not_have_is_masked():
    adapted = jaxmarl.adapt(game())
    assert adapted.num_actions == 5
    assert_array_equal(adapted.has_action, [[True] * 3 + [False] * 2, [True] * 5])


def test_what_is_masked_is_not_carried_out():
    adapted = jaxmarl.adapt(game())
    action = jnp.array([4, 4])  # the first player has no such action
    action = jaxmarl.carried_out(action, jnp.asarray(adapted.has_action), neutral=0)
    state, reward = adapted.step(adapted.reset(jax.random.key(0)), action, jax.random.key(0))
    assert_array_equal(state, [0, 4])
    assert_array_equal(reward, [1.0, 2.0])


def test_shorter_rows_end_in_zeros():
    adapted = jaxmarl.adapt(game())
    assert_array_equal(adapted.observe(adapted.reset(jax.random.key(0))), [[7.0, 0.0], [8.0, 9.0]])
