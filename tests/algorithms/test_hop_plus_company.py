"""HOP+ among players under orders: who is ordered teaches its policy nothing, and strangers are forgotten."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coplay.algorithms.hop_plus import hop_plus
from coplay.algorithms.hop_plus_config import HOPPlusConfig
from coplay.algorithms.hop_plus_imagining import beside_play
from coplay.algorithms.hop_plus_parts import parts_of
from coplay.algorithms.orders import FREE
from coplay.algorithms.ppo import Plan
from coplay.diagnostics import gates
from coplay.envs import make_game
from coplay.envs.contract import COMPILE_FAST
from coplay.training.rollout import collect, start_playing
from tests.small import same_bits

SEATS = (0, 1, 2, 3)
PLAN = Plan(num_updates=4, sequence_length=10, num_envs=16, num_steps=20)
PLAIN = HOPPlusConfig(
    hidden=(8, 8),
    minibatches=2,
    epochs=2,
    model_hidden=(8, 8),
    subgoals="none",
    world="none",
    real_share=1.0,
    ordered_games=1.0,
)
KEEPS = dataclasses.replace(PLAIN, subgoals="inferred", between="average")
compiled = functools.partial(jax.jit, compiler_options=COMPILE_FAST)


@functools.cache
def game():
    return make_game("4h1s_4x4", observation="entities")


@functools.cache
def played(config, steps=20):
    env, player = game(), hop_plus(game(), SEATS, config, PLAN)
    params = player.init(jax.random.key(0))
    actor = compiled(lambda key: start_playing(env, player, key, 16))(jax.random.key(1))
    play = compiled(lambda actor, key: collect(env, player, params, actor, key, steps, 10)[1])
    return player, params, player.learn.init(params), play(actor, jax.random.key(2))


def learned(config, change):
    """Networks after learning from a round in which `change` was made to log chances."""
    player, params, learner, trajectory = played(config)
    steps = trajectory.steps
    spoiled = dataclasses.replace(steps.decision, log_prob=change(steps))
    steps = dataclasses.replace(steps, decision=spoiled)
    trajectory = dataclasses.replace(trajectory, steps=steps)
    after = compiled(player.learn.update)(params, learner, trajectory, jax.random.key(3))[0]
    return after["policy"].own["group"]["policy"], after["pursuit"]


def spoiled_where(is_chosen):
    return lambda steps: jnp.where(is_chosen(steps), steps.decision.log_prob - 1.0, steps.decision.log_prob)


def test_who_follows_orders_teaches_its_own_policy_nothing():
    ordered = learned(PLAIN, spoiled_where(lambda steps: steps.decision.notes["order"] != FREE))[0]
    free = learned(PLAIN, spoiled_where(lambda steps: steps.decision.notes["order"] == FREE))[0]
    base = learned(PLAIN, lambda steps: steps.decision.log_prob)[0]
    assert same_bits(base, ordered)
    assert not same_bits(base, free)


def test_carrying_out_orders_is_learned_from_every_step():
    _, params, _, _ = played(PLAIN)
    assert not same_bits(params["pursuit"], learned(PLAIN, lambda steps: steps.decision.log_prob)[1])


def test_some_are_ordered_and_do_as_they_are_told():
    trajectory = played(PLAIN)[3]
    order = np.asarray(trajectory.steps.decision.notes["order"])
    assert (order != FREE).any()
    assert (order == FREE).any()
    chance = np.take_along_axis(
        np.asarray(trajectory.steps.decision.policy),
        np.asarray(trajectory.steps.decision.action)[..., None],
        -1,
    )
    assert (chance > 0).all(), "what is noted as the policy is what was followed"


def test_when_it_counts_nobody_follows_orders():
    player, params, _, _ = played(PLAIN)
    actor = start_playing(game(), player, jax.random.key(1), 16)
    decision = player.play(params, actor.memory, actor.timestep, actor.env_state, jax.random.key(4))[1]
    assert_array_equal(decision.notes["order"], FREE)


@pytest.mark.parametrize(("chance", "is_known"), [(0.0, True), (1.0, False)])
def test_what_was_kept_of_strangers_is_forgotten(chance, is_known):
    trajectory = played(dataclasses.replace(KEEPS, new_company=chance), 60)[3]
    assert (np.asarray(trajectory.next_memory.read.kept.weight) > 0).any() == is_known


def test_only_the_free_imagine():
    config = dataclasses.replace(KEEPS, world="game", real_share=0.5, gates="off")
    _, params, _, trajectory = played(config)
    parts, _ = parts_of(game(), SEATS, config)
    beside, _ = compiled(
        lambda: beside_play(parts, PLAN, params, trajectory, jnp.int32(gates.SEVERAL), jax.random.key(5))
    )()
    counts = np.asarray(beside.rows.policy.counts)  # [seat, env, time, 1, step]
    order = np.moveaxis(np.asarray(trajectory.steps.decision.notes["order"]), (2, 1, 0), (0, 1, 2))
    assert counts[..., 0, 0][order == FREE].any()
    assert not counts[order != FREE].any()
