"""Every learner of the PPO family tells how far it moved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.algorithms import drift_watch
from coplay.algorithms.actor_critic import actor_critic, as_algorithm
from coplay.algorithms.drift_watch import EVERY, play_figures, turned
from coplay.algorithms.glance import how_many, sample
from coplay.algorithms.ppo_config import PPOConfig
from coplay.algorithms.views import own_view
from coplay.envs import make_game
from coplay.training.rollout import collect, start_playing
from coplay.training.stages import no_learning
from coplay.types import Seated
from tests.every.test_algorithms import chunks
from tests.small import same_bits, small_job


@pytest.fixture(scope="module")
def figures():
    return chunks(small_job("mappo_4h1s_4x4", **{"mappo.anneal": False}), updates=EVERY + 1)[2]


def test_joint_drift_is_the_sum_of_the_players(figures):
    share = figures["drift/joint_kl"] - figures["drift/others_kl"]
    assert_allclose(figures["drift/joint_kl"][:, 0], np.sum(share, axis=1), rtol=1e-3, atol=1e-7)
    assert (figures["drift/kl"] >= share - 1e-7).all()  # per move of those still in the game
    assert (figures["drift/kl"] >= 0).all() and (figures["drift/joint_kl"] > 0).all()


def test_what_is_dear_is_looked_at_every_tenth_update(figures):
    for name in ("drift/conflict", "drift/conflict_share", "drift/gradient_noise", "drift/diversity"):
        looked = np.isfinite(figures[name][:, 0])
        assert looked.tolist() == [True] + [False] * (EVERY - 1) + [True], name
    assert (np.abs(figures["drift/conflict"][[0, EVERY]]) <= 1).all()


def test_a_gradient_is_compared_with_that_of_every_tenth_update_in_the_next(figures):
    turn = figures["drift/gradient_turn"]
    told = np.isfinite(turn).reshape(EVERY + 1, -1).all(axis=1)
    assert told.tolist() == [False, True] + [False] * (EVERY - 1)
    assert (np.abs(turn[1]) <= 1 + 1e-6).all()


def test_a_kept_gradient_is_forgotten_once_it_has_been_compared():
    # Three players: the first goes on as before, the second back, the third at a right angle.
    kept = jnp.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    now = jnp.array([[2.0, 4.0], [-1.0, -2.0], [2.0, -1.0]])
    after, turn = turned(jax.vmap, lambda: now, kept, jnp.int32(1))
    assert_allclose(turn, [1.0, -1.0, 0.0], atol=1e-6)
    assert not np.any(after)
    after, turn = turned(jax.vmap, lambda: now, jnp.zeros((3, 2)), jnp.int32(0))
    assert_array_equal(after, now)
    assert np.isnan(turn).all()
    after, turn = turned(jax.vmap, lambda: now, jnp.zeros((3, 2)), jnp.int32(2))
    assert not np.any(after) and np.isnan(turn).all()


@pytest.mark.parametrize(("parameters", "groups"), [("per_agent", 4), ("shared_with_id", 1)])
def test_whoever_has_weights_has_a_turn_and_looking_changes_nothing_learned(parameters, groups, monkeypatch):
    work = small_job("mappo_4h1s_4x4", **{"mappo.parameters": parameters})
    looked, figures = chunks(work)[1:]
    turn = figures["drift/gradient_turn"]
    assert np.isfinite(turn[1]).all() and np.isnan(turn[0]).all()
    assert len(np.unique(turn[1])) == groups

    def not_looked(each, gradient, kept, since):
        return kept, each(lambda x: jnp.float32(jnp.nan))(kept)

    monkeypatch.setattr(drift_watch, "turned", not_looked)
    work = small_job("mappo_4h1s_4x4", **{"mappo.parameters": parameters})
    without, figures = chunks(work)[1:]
    assert np.isnan(figures["drift/gradient_turn"]).all()
    assert same_bits(looked, without)


def test_figures_lie_where_they_must(figures):
    assert ((figures["drift/effective_samples"] > 0) & (figures["drift/effective_samples"] <= 1 + 1e-5)).all()
    assert ((figures["drift/joint_tv"] > 0) & (figures["drift/joint_tv"] < 1)).all()
    diversity = figures["drift/diversity"][[0, EVERY]]
    assert ((diversity > 0) & (diversity < np.log(2))).all()


def test_a_critic_is_told_to_be_stale_one_update_after_it_was_looked_at(figures):
    told = np.isfinite(figures["drift/critic_staleness"][:, 0])
    assert told.tolist() == [False, True] + [False] * (EVERY - 1)


def test_learners_of_one_policy_that_is_not_told_who_it_is_act_alike():
    alike = chunks(small_job("mappo_4h1s_4x4", **{"mappo.parameters": "shared"}), updates=1)[2]
    assert_allclose(alike["drift/diversity"], 0.0, atol=1e-6)
    apart = chunks(small_job("mappo_4h1s_4x4", **{"mappo.parameters": "per_agent"}), updates=1)[2]
    assert (apart["drift/diversity"] > 1e-6).all()
    assert "drift/conflict" not in apart  # no weights are shared


def test_weights_that_stay_do_not_drift():
    env = make_game("4h1s_4x4", observation="entities")
    settings = PPOConfig(hidden=(8, 8))
    model, init = actor_critic(env, (0, 1, 2, 3), settings, {"policy": own_view, "critic": own_view})
    algorithm = as_algorithm(model, init, no_learning)
    params = algorithm.init(jax.random.key(0))
    actor = start_playing(env, algorithm, jax.random.key(1), 8)
    trajectory = collect(env, algorithm, params, actor, jax.random.key(2), 5, 5)[1]
    seen = sample(model, params, trajectory, 5).glance
    still = play_figures(model, params, params, seen)
    assert all(not np.any(still[name]) for name in ("drift/kl", "drift/joint_kl", "drift/joint_tv"))
    assert_allclose(still["drift/effective_samples"], 1.0)
    moved = Seated(
        {"group": jax.tree.map(lambda x: x + 0.1, params.own["group"]), "seat": params.own["seat"]}, {}
    )
    assert (play_figures(model, params, moved, seen)["drift/kl"] > 0).all()


def test_a_sample_is_a_quarter_of_a_round_and_a_thousand_states_at_most():
    assert how_many(time=70, num_envs=256) == 14  # 980 states
    assert how_many(time=20, num_envs=32) == 8
    assert how_many(time=50, num_envs=2) == 1
