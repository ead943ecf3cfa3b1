"""HAPPO: in turns, each minding how those before it have moved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.algorithms.happo import HAPPOConfig, happo, taking_turns
from coplay.algorithms.losses import PolicyRows
from coplay.algorithms.ppo import mappo
from coplay.algorithms.ppo_config import MAPPOConfig
from coplay.algorithms.targets import Batch
from coplay.envs import make_game
from tests.algorithms.generated import PLAN, learned, played

SEATS, COLUMNS = 3, 2


def batch():
    shape = (SEATS, COLUMNS, 1, 1)
    rows = PolicyRows(
        legal=jnp.ones((*shape, 2), bool),
        action=jnp.zeros(shape, jnp.int32),
        log_prob=jnp.log(jnp.full(shape, 0.5)),
        advantage=jnp.ones(shape),
        counts=jnp.ones(shape, bool).at[0, 1].set(False),  # seat 0 is out in the second column
    )
    empty, seen = jnp.zeros(shape), jnp.zeros((*shape, 1))
    return Batch(seen, (), rows, (), rows.counts, empty, empty, jnp.zeros((SEATS, COLUMNS, 1), bool), ())


def descend(weights, optimiser, batch, count, key):
    """Notes the advantages it was given, and moves."""
    return weights + 1.0, optimiser, {"advantage": batch.policy.advantage[:, 0, 0], "key": key}


def log_prob(weights, batch):
    return jnp.broadcast_to(jnp.log(0.5 * (1.0 + weights)), batch.policy.log_prob.shape)


def turns(keys):
    weights = jnp.array([0.0, 0.5, 1.0])  # ratios after a step: 2, 2.5, 3
    update = taking_turns(descend, log_prob)
    return update(weights, jnp.zeros(SEATS), batch(), jnp.sum, keys)


def test_later_turns_weigh_what_earlier_ones_changed():
    keys = jax.random.split(jax.random.key(0), SEATS)
    networks, _, sums = turns(keys)
    assert_allclose(networks, [1.0, 1.5, 2.0])
    given = np.asarray(sums["advantage"])  # [seat, column]
    ratios = np.array([2.0, 2.5, 3.0])
    order = np.argsort(given[:, 0])  # weights only grow: the first turn has 1
    assert_allclose(given[order, 0], [1.0, ratios[order[0]], ratios[order[0]] * ratios[order[1]]], rtol=1e-5)
    ratios[0] = 1.0  # who is out changes nothing
    assert_allclose(given[order, 1], [1.0, ratios[order[0]], ratios[order[0]] * ratios[order[1]]], rtol=1e-5)


def test_the_order_is_drawn_and_goes_with_the_players():
    orders = set()
    for seed in range(20):
        keys = jax.random.split(jax.random.key(seed), SEATS)
        sums = turns(keys)[2]
        orders.add(tuple(np.argsort(sums["advantage"][:, 0]).tolist()))
        assert_array_equal(jax.random.key_data(sums["key"]), jax.random.key_data(keys))
    assert len(orders) == 6


def test_shared_weights_are_refused():
    with pytest.raises(ValueError, match="must be 'per_agent'"):
        HAPPOConfig(parameters="shared")


def test_whoever_comes_first_learns_as_separate_mappo_and_nobody_after_it_does():
    """The first has nobody before it; the others weigh their advantages by what has changed already."""
    game = make_game("specialisation", num_agents=4, rounds=3)
    settings = {
        "hidden": (8,),
        "epochs": 2,
        "minibatches": 1,
        "parameters": "per_agent",
        "learning_rate": 0.02,
    }
    in_turns = happo(game, (0, 1, 2, 3), HAPPOConfig(**settings), PLAN)
    at_once = mappo(game, (0, 1, 2, 3), MAPPOConfig(**settings), PLAN)
    params = in_turns.init(jax.random.key(0))
    trajectory = played(game, in_turns, params)
    ours, theirs = (learned(each, params, trajectory)[0] for each in (in_turns, at_once))

    def last_layer(params):
        return np.asarray(params.own["group"]["policy"].layers[-1].weight)

    apart = np.abs(last_layer(ours) - last_layer(theirs)).reshape(4, -1).max(axis=1)
    assert np.sum(apart < 1e-5) == 1, apart
    assert np.sum(apart > 1e-4) == 3, apart
