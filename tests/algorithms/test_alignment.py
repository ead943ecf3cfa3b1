"""Held near the policy that played: a divergence worked by hand, whose weight follows how far play moved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.algorithms.actor_critic import actor_critic
from coplay.algorithms.alignment import align, followed, strengthened
from coplay.algorithms.losses import PolicyRows, TaughtRows
from coplay.algorithms.ppo import mappo, ppo
from coplay.algorithms.ppo_config import MAPPOConfig, PPOConfig
from coplay.algorithms.targets import Batch
from coplay.algorithms.views import own_view
from coplay.envs import make_game
from tests.algorithms.generated import PLAN, SEATS, played
from tests.small import same_bits

HELD = PPOConfig(hidden=(8, 8), epochs=4, minibatches=1, align_weight=0.5)
EVEN = np.log(2)


def batch(strength=1.0, taught=()) -> Batch:
    """One column of two steps of one player: played evenly; the second step does not count."""
    shape = (1, 2, 1)
    counts = jnp.array([True, False]).reshape(shape)
    rows = PolicyRows(
        legal=jnp.ones((*shape, 2), bool),
        action=jnp.zeros(shape, jnp.int32),
        log_prob=jnp.zeros(shape),
        advantage=jnp.zeros(shape),
        counts=counts,
    )
    empty = jnp.zeros(shape)
    beside = {"strength": jnp.array([strength]), "reference": jnp.log(jnp.full((*shape, 2), 0.5))}
    first = jnp.zeros((1, 2), bool)
    return Batch(jnp.zeros((*shape, 1)), (), rows, taught, counts, empty, empty, first, (), beside=beside)


def test_the_term_is_the_divergence_over_rows_that_count():
    # KL((1/2, 1/2) || (4/5, 1/5)) = -ln 2 - (ln 0.8 + ln 0.2) / 2 = 0.2231
    logits = jnp.broadcast_to(jnp.log(jnp.array([0.8, 0.2])), (1, 2, 1, 2))
    apart = -EVEN - 0.5 * (np.log(0.8) + np.log(0.2))
    terms, figures = align(logits, batch(strength=3.0))
    assert_allclose(terms["align"], 3 * apart, rtol=1e-5)
    assert_allclose(figures["align/divergence"], apart, rtol=1e-5)


def test_what_a_search_teaches_is_not_held_back():
    taught = TaughtRows(jnp.ones((1, 2, 1), bool), jnp.full((1, 2, 1, 2), 0.5))
    logits = jnp.broadcast_to(jnp.log(jnp.array([0.8, 0.2])), (1, 2, 1, 2))
    assert float(align(logits, batch(taught=taught))[0]["align"]) == 0.0


@pytest.mark.parametrize(("kl", "factor"), [(0.02, 1.5), (0.01, 1.0), (0.005, 1 / 1.5)])
def test_the_weight_follows_what_was_measured(kl, factor):
    assert_allclose(strengthened(HELD, jnp.float32(2.0), jnp.float32(kl)), 2.0 * factor, rtol=1e-6)


def test_the_weight_has_bounds():
    assert_allclose(strengthened(HELD, jnp.float32(200.0), jnp.float32(1.0)), 10 / 0.5)
    assert_allclose(strengthened(HELD, jnp.float32(0.0002), jnp.float32(0.0)), 1e-4 / 0.5)


def model(parameters: str):
    """Three players."""
    settings = PPOConfig(hidden=(8,), parameters=parameters)
    env = make_game("specialisation", num_agents=3)
    return actor_critic(env, (0, 1, 2), settings, {"policy": own_view, "critic": own_view})[0]


def test_separate_players_are_each_followed_by_their_own_movement_and_those_that_share_by_the_mean():
    moved = jnp.array([0.02, 0.004, 0.01])
    strength, figures = followed(model("per_agent"), HELD, jnp.full(3, 2.0), moved)
    assert_allclose(strength, [3.0, 2 / 1.5, 2.0], rtol=1e-6)
    assert_allclose(figures["align/weight"], np.array([3.0, 2 / 1.5, 2.0]) * 0.5, rtol=1e-6)
    assert_allclose(followed(model("shared"), HELD, jnp.float32(2.0), moved)[0], 2.0)  # 0.0113 on average


def test_a_weight_that_is_not_to_follow_stays():
    fixed = PPOConfig(align_weight=0.5, align_adaptive=False)
    assert float(followed(model("shared"), fixed, jnp.float32(2.0), jnp.ones(3))[0]) == 2.0


@pytest.mark.parametrize(("make", "settings"), [(ppo, PPOConfig), (mappo, MAPPOConfig)])
def test_play_that_is_held_moves_less_and_play_that_is_not_is_ppo(make, settings):
    env = make_game("specialisation", num_agents=4, rounds=3)
    shape = {"hidden": (8, 8), "epochs": 4, "minibatches": 1, "learning_rate": 1e-2, "align_adaptive": False}

    def after(weight: float):
        algorithm = make(env, SEATS, settings(**shape, align_weight=weight), PLAN)
        params = algorithm.init(jax.random.key(0))
        trajectory = played(env, algorithm, params)
        update = jax.jit(algorithm.learn.update)
        return update(params, algorithm.learn.init(params), trajectory, jax.random.key(1))

    (free, _, figures), (held, _, told) = after(0.0), after(10.0)
    assert "align/weight" not in figures
    assert not same_bits(free, held)
    assert np.all(np.asarray(told["drift/kl"]) < 0.5 * np.asarray(figures["drift/kl"]))
    assert np.all(np.asarray(told["align/weight"]) == 10.0)
    assert np.all(np.asarray(told["align/divergence"]) > 0)


def test_a_negative_weight_is_refused():
    with pytest.raises(ValueError, match=r"align_weight=-1\.0 must not be negative"):
        PPOConfig(align_weight=-1.0)
