"""Subgoals chosen in hindsight: among which moments, by which value, and who learns with them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.algorithms.hindsight import chosen_in_hindsight, is_possible, mixed
from coplay.algorithms.hop_plus import hop_plus
from coplay.algorithms.hop_plus_config import HOPPlusConfig
from coplay.algorithms.hop_plus_parts import parts_of
from coplay.algorithms.imagination import values
from coplay.algorithms.ppo import Plan
from coplay.envs import make_game
from coplay.envs.contract import COMPILE_FAST
from coplay.opponents.goal_policy import sights, wishes
from coplay.opponents.prior import embedded
from coplay.opponents.subgoals import Subgoal, divergence, spread
from coplay.training.rollout import collect, start_playing
from tests.small import same_bits

SEATS = (0, 1, 2, 3)
PLAN = Plan(num_updates=10, sequence_length=10, num_envs=16, num_steps=20)
CONFIG = HOPPlusConfig(
    hidden=(8, 8),
    minibatches=2,
    epochs=1,
    model_hidden=(8, 8),
    prior_hidden=(8, 8),
    world="none",
    real_share=1.0,
    prior="a folder that is read when training begins",
    horizon=4,
)
compiled = functools.partial(jax.jit, compiler_options=COMPILE_FAST)


@functools.cache
def game():
    return make_game("4h1s_4x4", observation="entities")


@functools.cache
def played(config=CONFIG):
    env, player = game(), hop_plus(game(), SEATS, config, PLAN)
    params = player.init(jax.random.key(0))
    params = jax.tree.map(lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size)).reshape(x.shape), params)
    params["policy"].own["seat"]["identity"] = jnp.arange(4)
    actor = compiled(lambda key: start_playing(env, player, key, 16))(jax.random.key(1))
    play = compiled(lambda actor, key: collect(env, player, params, actor, key, 20, 10)[1])
    return player, params, play(actor, jax.random.key(2))


@functools.cache
def chosen(config=CONFIG, share=0.5):
    _, params, trajectory = played(config)
    parts, _ = parts_of(game(), SEATS, config)
    others = jnp.asarray(parts.reader.others)

    def run():
        return chosen_in_hindsight(
            parts.selector, parts.policy, params, trajectory, others, jnp.float32(share), jax.random.key(3)
        )

    return compiled(run)()


def test_moments_of_the_same_game_within_the_round_while_the_player_is_there():
    first = jnp.array([[True], [False], [False], [True], [False]])
    active = jnp.array([[[True]], [[True]], [[False]], [[True]], [[True]]])
    one, two = (np.asarray(is_possible(first, active, jnp.int32(h)))[:, 0, 0] for h in (1, 2))
    assert_array_equal(one, [True, False, False, True, False])
    assert_array_equal(two, [False, False, False, False, False])


@pytest.mark.parametrize(("selector", "best"), [("optimistic", np.max), ("conservative", np.min)])
def test_the_moment_is_chosen_that_makes_the_present_worth_most_or_least(selector, best):
    config = dataclasses.replace(CONFIG, selector=selector)
    _, params, trajectory = played(config)
    parts, _ = parts_of(game(), SEATS, config)
    steps, others = trajectory.steps, parts.reader.others
    seen = sights(steps.before, wishes(game().goals, steps.before))
    places = embedded(parts.selector.prior, params["prior"].common["prior"], seen)

    @compiled
    def worth(mean):
        """Of every moment to every seat, if the co-players were taken to be after that."""
        reading = steps.decision.notes["reading"]
        subgoal = dataclasses.replace(reading.subgoal, mean=mean)
        notes = {"reading": dataclasses.replace(reading, subgoal=subgoal)}
        rows = parts.policy.views["critic"](steps.before, notes, SEATS, params["policy"])
        return values(parts.policy, params["policy"], jnp.moveaxis(rows.reshape(-1, *rows.shape[2:]), 1, 0))

    found = chosen(config).target
    noted = np.asarray(steps.decision.notes["reading"].subgoal.mean)
    first, active = steps.before.first, steps.before.active
    possible = np.stack([is_possible(first, active, jnp.int32(h)) for h in range(1, config.horizon + 1)])
    moments = np.argwhere(possible[..., others].sum(axis=0) >= 3)
    for time, env, seat, place in moments[:: len(moments) // 4]:
        other = others[seat, place]
        ahead, each = np.flatnonzero(possible[:, time, env, other]) + 1, []
        for h in ahead:
            mean = noted.copy()
            mean[time, env, seat, place] = places.mean[time + h, env, other]
            each.append(float(worth(jnp.asarray(mean))[seat, time * 16 + env]))
        at = ahead[each.index(best(each))]
        assert_allclose(found.mean[time, env, seat, place], places.mean[time + at, env, other], atol=1e-6)


def test_with_nothing_left_it_is_where_the_player_is():
    _, params, trajectory = played()
    parts, _ = parts_of(game(), SEATS, CONFIG)
    before = trajectory.steps.before
    places = embedded(
        parts.selector.prior, params["prior"].common["prior"], sights(before, wishes(game().goals, before))
    )
    assert_allclose(chosen().target.mean[-1], places.mean[-1][:, parts.reader.others], atol=1e-6)


def test_as_many_are_used_as_are_asked_for():
    assert not np.asarray(chosen(share=0.0).is_used).any()
    assert np.asarray(chosen(share=1.0).is_used).all()
    assert abs(np.asarray(chosen().is_used).mean() - 0.5) < 0.05


def test_notes_change_where_what_was_chosen_is_used_and_nowhere_else():
    _, _, trajectory = played()
    notes, which = trajectory.steps.decision.notes, chosen()
    mean = np.asarray(mixed(notes, which)["reading"].subgoal.mean)
    is_used = np.asarray(which.is_used)
    assert_array_equal(mean[~is_used], np.asarray(notes["reading"].subgoal.mean)[~is_used])
    assert_array_equal(mean[is_used], np.asarray(which.target.mean)[is_used])


@functools.cache
def learned(rounds):
    player, params, trajectory = played()
    learner = player.learn.init(params)
    gate = learner["gate"]
    gate = dataclasses.replace(gate, common=gate.common | {"rounds": jnp.int32(rounds)})
    return compiled(player.learn.update)(params, learner | {"gate": gate}, trajectory, jax.random.key(3))[0]


def test_early_in_training_the_critic_learns_with_it_and_the_policy_never_does():
    early, late, later = (learned(rounds)["policy"].own["group"] for rounds in (0, 3, 9))
    assert same_bits(late["critic"], later["critic"]), "over after three tenths of ten rounds"
    assert not same_bits(early["critic"], late["critic"])
    assert same_bits(early["policy"], late["policy"])
    assert not same_bits(early["others"], late["others"]), "models of the others learn with it too"


def test_the_prior_stays_as_it_is():
    assert same_bits(played()[1]["prior"], learned(0)["prior"])


def test_divergence_from_a_standard_gaussian_is_the_spread():
    one = Subgoal(jnp.array([0.3, -1.0]), jnp.array([0.2, -0.4]))
    standard = Subgoal(jnp.zeros(2), jnp.zeros(2))
    assert_allclose(divergence(one, standard), spread(one), rtol=1e-6)
    assert_allclose(divergence(one, one), 0.0, atol=1e-6)
    # By hand, one number: half of (0.5^2 + 1) / 4 - 1 + ln 4.
    near = Subgoal(jnp.array([0.5]), jnp.array([0.0]))
    assert_allclose(divergence(near, Subgoal(jnp.zeros(1), jnp.log(jnp.array([2.0])))), 0.349397, rtol=1e-5)
