"""Training does not care how players are named, and no learner learns from another's reward."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coplay.audit.renamed import renamed_state
from coplay.envs.seats import renamed
from coplay.experiment import build, job
from coplay.training import loop, programs
from coplay.training.rollout import collect
from tests.small import same_bits, small, small_job

ORDER = np.array([1, 2, 3, 0])


def rename_state(env, state):
    return renamed_state(env, state, ORDER)


def trained(work, state, updates):
    copied = jax.tree.map(lambda x: x.copy(), state)  # the program takes its argument's memory
    placed = loop.seat(work, work.stretches[0], copied, -1)
    return programs.chunk_program(work, work.stretches[0], placed).run(placed, jnp.int32(updates))


def both_ways(updates, name="ppo_4h1s_4x4", **changes):
    """Trained and then renamed, and renamed and then trained."""
    work = small_job(name, **changes)
    start = loop.start(work, work.stretches[0])
    again = rename_state(work.env, start)
    after, metrics = trained(work, start, updates)
    built = build(small(name, **changes))
    other = job(built)._replace(env=renamed(work.env, ORDER.tolist()))
    renamed_after, renamed_metrics = trained(other, again, updates)
    return rename_state(work.env, after), metrics, renamed_after, renamed_metrics


CIRCLED = ["ppo_4h1s_4x4", "happo_4h1s_4x4", "hop_4h1s_4x4", "hop_plus_4h1s_4x4_strangers"]


@pytest.mark.optimised
@pytest.mark.parametrize("name", CIRCLED)
def test_renaming_players_in_a_circle_permutes_training_to_the_bit(name):
    after, metrics, renamed_after, renamed_metrics = both_ways(updates=3, name=name)
    assert same_bits(after.params, renamed_after.params)
    assert same_bits(after.learner, renamed_after.learner)
    assert same_bits(after.actor, renamed_after.actor)
    for name, value in metrics.items():
        value = np.asarray(value)[:, :3]
        expected = value[..., ORDER] if value.ndim == 3 else value
        found = np.asarray(renamed_metrics[name])[:, :3]
        if name.startswith("drift/"):  # sums over players, who come in another order
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(found, expected, err_msg=name)


POOLED = {  # who shares what
    "weights": {"ppo.parameters": "shared"},
    "weights and names": {"ppo.parameters": "shared_with_id"},
    "a generator": {"name": "hyper_mappo_4h1s_4x4"},
    "a generator that all are heard by": {"name": "hyper_mappo_4h1s_4x4", "hyper_mappo.context": "joint"},
    "a generator whose copy plays, and a critic that it moves": {
        "name": "hyper_mappo_4h1s_4x4",
        "hyper_mappo.target": "act",
        "hyper_mappo.target_every": 1,
        "hyper_mappo.generated_critic": "last_layer",
    },
    "a generator that reads the last rows and mixes what it made of them": {
        "name": "hyper_mappo_4h1s_4x4",
        "hyper_mappo.context": "joint",
        "hyper_mappo.history": "transformer",
        "hyper_mappo.history_window": 4,
        "hyper_mappo.history_fusion": "kl_weighted",
        "hyper_mappo.fusion_window": 3,
    },
    "a model of the game": {
        "name": "hop_plus_4h1s_4x4",
        "hop_plus.gates": "off",
    },
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pooled", POOLED)
def test_renaming_pooled_players_changes_no_more_than_rounding(pooled):
    after, _, renamed_after, _ = both_ways(updates=1, **POOLED[pooled])
    for a, b in zip(jax.tree.leaves(after.params), jax.tree.leaves(renamed_after.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("j", range(4))
def test_a_learner_is_moved_by_its_own_reward_and_no_other(j):
    trajectory, update = _reward_job()
    base = update(trajectory)
    others = np.arange(4) != j
    rewards = trajectory.steps.after.reward
    spoiled = _with_reward(trajectory, jnp.where(jnp.asarray(others)[None, None, :], rewards + 5.0, rewards))
    own = _with_reward(trajectory, jnp.where(jnp.asarray(others)[None, None, :], rewards, rewards + 5.0))
    assert _same_row(base, update(spoiled), j), "another player's reward reached this learner"
    assert not _same_row(base, update(own), j), "this learner's own reward did not reach it"


_CACHE = {}


def _reward_job():
    if not _CACHE:
        work = small_job()
        algorithm = work.stretches[0].algorithm
        state = jax.tree.map(lambda x: x[0], loop.start(work, work.stretches[0]))
        _, trajectory, _ = jax.jit(
            lambda p, a, k: collect(work.env, algorithm, p, a, k, work.num_steps, work.sequence_length)
        )(state.params, state.actor, jax.random.key(3))
        update = jax.jit(
            lambda t: algorithm.learn.update(state.params, state.learner, t, jax.random.key(4))[0]
        )
        _CACHE["job"] = (trajectory, update)
    return _CACHE["job"]


def _with_reward(trajectory, reward):
    after = dataclasses.replace(trajectory.steps.after, reward=reward)
    return dataclasses.replace(trajectory, steps=dataclasses.replace(trajectory.steps, after=after))


def _same_row(a, b, j):
    row = jax.tree.map(lambda x: x[j], (a["ppo"].own, b["ppo"].own))
    return same_bits(*row)
