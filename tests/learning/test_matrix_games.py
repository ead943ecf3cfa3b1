"""Known equilibria are found: dominance, coordination, and the mixed one on average."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coplay import runs
from coplay.experiment import build, job, read_experiment
from coplay.training import loop, programs

pytestmark = [pytest.mark.learning, pytest.mark.optimised]


def trained(name, tmp_path, seeds=10):
    changes = {"seeds": seeds, "devices": 1, "evaluation.every": 0, "saving.tensorboard": False}
    return runs.train(read_experiment(name, changes), tmp_path / name)


def test_the_dominant_action_is_found_from_every_seed(tmp_path):
    score = trained("matrix_prisoners_dilemma", tmp_path).evaluate(512)
    # mutual defection pays -2 each; cooperation would be seen at once as more
    assert np.allclose(score.per_seed, -2.0, atol=0.05), score.per_seed


def test_coordination_is_reached_from_every_seed(tmp_path):
    score = trained("matrix_pure_coordination", tmp_path).evaluate(512)
    assert min(score.per_seed) > 0.95, score.per_seed


def test_matching_pennies_is_mixed_on_average():
    """P(action 0) of each player in each role, averaged over the last half of training, is near one half."""
    built = build(
        read_experiment("matrix_matching_pennies", {"seeds": 3, "devices": 1, "evaluation.every": 0})
    )
    work, stretch = job(built), built.stretches[0]
    state = loop.seat(work, stretch, None, 0)
    chunk = programs.chunk_program(work, stretch, state)
    look = jax.jit(jax.vmap(lambda params, actor: stretch.algorithm.act(
        params, actor.memory, actor.timestep, actor.env_state, jax.random.key(0))[1].policy))  # fmt: skip
    plays = []
    for _ in range(work.num_updates):
        state, _ = chunk.run(state, jnp.int32(1))
        matcher = np.asarray(state.actor.timestep.observation)[..., 5] > 0.5
        first = np.asarray(look(state.params, state.actor))[..., 0]
        plays.append([np.nanmean(np.where(matcher == role, first, np.nan), axis=1) for role in (True, False)])
    last_half = np.mean(plays[len(plays) // 2 :], axis=0)  # [role, seed, agent]
    assert np.abs(last_half - 0.5).max() < 0.05, last_half
