"""Boards read by convolutions: whose board it is, where there is none, and where nothing is read at all."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coplay.algorithms.hyper_mappo import generator_shape, hyper_mappo
from coplay.errors import BadInput
from coplay.experiment import build, with_overrides
from tests.algorithms.generated import ENVS, PLAN, SEATS, config, game_for, loud
from tests.small import same_bits, small

CONV = {"encoder": "conv"}


def policies(algorithm, params, timestep):
    return algorithm.act(params, algorithm.remember(ENVS), timestep, None, jax.random.key(0))[1].policy


@pytest.mark.parametrize(("context_from", "reached"), [("own_game", [1]), ("another_game", [1, 2])])
def test_a_board_is_that_of_the_game_that_the_context_is_from(context_from, reached):
    # a NaN on player 0's board in game 1 reaches its play there, and its context where that is read
    env = game_for(CONV)
    settings = config(context="local_history", context_from=context_from, **CONV)
    algorithm = hyper_mappo(env, SEATS, settings, PLAN)
    params = loud(algorithm.init(jax.random.key(0)))
    timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), ENVS))[1]
    spoilt = dataclasses.replace(timestep, observation=timestep.observation.at[1, 0, 0].set(jnp.nan))
    hit = np.isnan(policies(algorithm, params, spoilt)).all(axis=-1)
    assert_array_equal(np.argwhere(hit), [[game, 0] for game in reached])


def test_play_starts_undecided():
    env = game_for(CONV)
    algorithm = hyper_mappo(env, SEATS, config(context="joint", **CONV), PLAN)
    timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), ENVS))[1]
    policy = np.asarray(policies(algorithm, algorithm.init(jax.random.key(0)), timestep))
    entropy = -np.sum(policy * np.log(np.maximum(policy, 1e-30)), axis=-1)
    assert np.all(entropy >= 0.98 * np.log(np.sum(timestep.legal, axis=-1)))


@pytest.mark.parametrize("context", ["local_history", "joint"])
def test_a_game_without_a_board_is_refused_in_a_sentence(context):
    given = {"hyper_mappo.context": context, "hyper_mappo.encoder": "conv"}
    with pytest.raises(BadInput) as refused:
        build(with_overrides(small("hyper_mappo_4h1s_4x4"), given))
    assert str(refused.value) == (
        "encoder='conv' needs observations that begin with a board; stag_hunt as set up has none: "
        "set observation='board' or encoder='mlp'"
    )
    build(with_overrides(small("hyper_mappo_4h1s_4x4"), given | {"game_options.observation": "board"}))


def test_where_nothing_is_seen_for_a_context_there_is_nothing_to_convolve():
    for changes in ({}, {"context": "none"}):
        assert "encoder" in config(**changes, **CONV).idle
    for context in ("local_history", "joint"):
        assert "encoder" not in config(context=context).idle
    env = game_for({})  # a game without a board
    assert generator_shape(env, config(**CONV)) == generator_shape(env, config())
    made = [
        hyper_mappo(env, SEATS, config(**changes), PLAN).init(jax.random.key(0)) for changes in ({}, CONV)
    ]
    assert same_bits(*made)
