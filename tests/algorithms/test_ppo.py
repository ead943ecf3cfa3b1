"""What PPO reads and how returns end: views, departures, cuts, teams."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.algorithms import value_scale
from coplay.algorithms.actor_critic import actor_critic, draw_actions, from_columns, to_columns
from coplay.algorithms.ppo import _clipped_by_team
from coplay.algorithms.ppo_config import PPOConfig
from coplay.algorithms.targets import advantages, standardiser, usual_lesson
from coplay.algorithms.views import joint_view, own_view, with_identity
from coplay.envs import make_game
from coplay.experiment import with_overrides
from coplay.training import loop, programs
from coplay.training.rollout import collect, start_playing
from coplay.types import Decision, TimeStep, Transition
from tests.small import same_bits, small, small_job


def timestep(observation, active):
    num_agents = observation.shape[-2]
    batch = observation.shape[:-2]
    return TimeStep(
        observation=jnp.asarray(observation, jnp.float32),
        legal=jnp.ones((*batch, num_agents, 2), bool),
        reward=jnp.zeros((*batch, num_agents)),
        active=jnp.asarray(active),
        terminated=~jnp.asarray(active),
        truncated=jnp.zeros(batch, bool),
        first=jnp.zeros(batch, bool),
    )


ROWS = np.array([[[1.0], [2.0], [3.0]]])  # one game, three players, one feature


def test_the_joint_view_shows_own_row_first_and_the_departed_as_zeros():
    seen = joint_view(timestep(ROWS, [[True, False, True]]), (), (0, 1, 2))
    assert_array_equal(seen[0], [[1, 0, 3], [0, 3, 1], [3, 1, 0]])


def test_some_seats_see_only_their_rows():
    assert_array_equal(own_view(timestep(ROWS, [[True] * 3]), (), (2,))[0], [[3.0]])
    assert_array_equal(joint_view(timestep(ROWS, [[True] * 3]), (), (2,))[0], [[3, 1, 2]])


def test_identity_is_data_and_not_the_place_in_the_row():
    named = with_identity(jnp.zeros((1, 2, 1)), jnp.array([2, 0]), 3)
    assert_array_equal(named[0], [[0, 0, 0, 1], [0, 1, 0, 0]])


def test_columns_go_there_and_back():
    x = jnp.arange(6 * 2 * 3).reshape(6, 2, 3)
    columns = to_columns(x, 3)
    assert columns.shape == (4, 3, 3)
    assert_array_equal(columns[1], x[3:, 0])  # the second sequence of the first game
    assert_array_equal(from_columns(columns, (6, 2)), x)


def test_actions_are_drawn_as_often_as_the_policy_says():
    policy = jnp.broadcast_to(jnp.array([0.5, 0.0, 0.2, 0.3]), (40_000, 2, 4))
    drawn = np.asarray(draw_actions(jax.random.key(0), jnp.array([0, 1]), policy))
    for seat in (0, 1):
        shares = np.bincount(drawn[:, seat], minlength=4) / len(drawn)
        assert_allclose(shares, [0.5, 0.0, 0.2, 0.3], atol=0.01)
        assert shares[1] == 0
    assert 0.3 < (drawn[:, 0] == drawn[:, 1]).mean() < 0.45  # independent streams: 0.38


def steps(reward, terminated, truncated=(False, False)):
    """Two steps of one game with two players."""
    active = np.array([[True, True], ~np.array(terminated[0])])
    before = timestep(np.zeros((2, 1, 2, 1)), active[:, None])
    after = dataclasses.replace(
        timestep(np.zeros((2, 1, 2, 1)), ~np.array(terminated)[:, None]),
        reward=jnp.asarray(reward, jnp.float32)[:, None],
        truncated=jnp.asarray(truncated)[:, None],
    )
    decision = Decision(jnp.zeros((2, 1, 2), jnp.int32), jnp.zeros((2, 1, 2)), jnp.ones((2, 1, 2, 2)) / 2)
    return Transition(before=before, decision=decision, after=after)


def advantage(config, transition):
    zeros = jnp.zeros((2, 1, 2))
    views = {"policy": own_view, "critic": own_view}
    model, _ = actor_critic(make_game("prisoners_dilemma"), (0, 1), config, views)
    reward = usual_lesson(config).reward(transition, (0, 1))
    return advantages(model, config, transition, reward, zeros, zeros, config.trace)[:, 0]


# Player 0 takes a hare (1) and leaves; player 1 catches 4 a step later and the game is over.
LEAVES = {"reward": [[1, 0], [0, 4]], "terminated": [[True, False], [True, True]]}


def test_with_its_own_reward_a_players_return_ends_when_it_leaves():
    config = PPOConfig(discount=0.5, trace=1.0)
    assert_allclose(advantage(config, steps(**LEAVES)), [[1.0, 2.0], [0.0, 4.0]])


def test_with_the_teams_reward_it_runs_on_to_the_end_of_the_game():
    # team means 0.5 and 2: both players' return at the first step is 0.5 + 0.5 * 2 = 1.5
    config = PPOConfig(discount=0.5, trace=1.0, learning_reward="team")
    assert_allclose(advantage(config, steps(**LEAVES))[0], [1.5, 1.5])


@pytest.mark.parametrize("network", ["mlp", "gru"])
def test_a_game_that_can_be_cut_is_learned_with_and_without_memory(network):
    changes = {"game_options.continue_probability": 0.9, "ppo.network": network, "rollout.sequence_length": 5}
    work = small_job("matrix_prisoners_dilemma", **changes)
    assert work.env.can_truncate
    state = loop.seat(work, work.stretches[0], None, 0)
    _, metrics = programs.chunk_program(work, work.stretches[0], state).run(state, jnp.int32(1))
    assert np.isfinite(np.asarray(metrics["value/loss"])[0, 0]).all()


def test_what_follows_a_cut_is_judged_by_the_last_row_and_not_by_the_next_game():
    work = small_job("mappo_simple_spread", **{"rollout.num_steps": 25, "rollout.sequence_length": 25})
    algorithm, key = work.stretches[0].algorithm, jax.random.key(1)
    state = jax.tree.map(lambda x: x[0], loop.start(work, work.stretches[0]))
    play = jax.jit(lambda params, actor: collect(work.env, algorithm, params, actor, key, 25, 25)[1])
    learned = jax.jit(lambda rows: algorithm.learn.update(state.params, state.learner, rows, key)[0])
    trajectory = play(state.params, state.actor)
    steps = trajectory.steps
    assert steps.after.truncated[-1].all() and not steps.after.truncated[:-1].any()

    def moved(timestep):
        return dataclasses.replace(timestep, observation=timestep.observation + 1.0)

    cut = dataclasses.replace(trajectory, steps=dataclasses.replace(steps, after=moved(steps.after)))
    next_game = dataclasses.replace(trajectory, next=moved(trajectory.next))
    assert same_bits(learned(trajectory), learned(next_game))
    assert not same_bits(learned(trajectory), learned(cut))


def test_a_critic_means_the_same_to_a_learner_that_starts_afresh():
    work = small_job()
    stretch = work.stretches[0]
    state = loop.seat(work, stretch, None, 0)
    state, _ = programs.chunk_program(work, stretch, state).run(state, jnp.int32(3))
    params, learner = jax.tree.map(lambda x: x[0], (state.params, state.learner))
    algorithm, key = stretch.algorithm, jax.random.key(1)
    actor = start_playing(work.env, algorithm, key, work.num_envs)
    _, trajectory, _ = collect(work.env, algorithm, params, actor, key, work.num_steps, work.sequence_length)
    scale = params["ppo"].own["group"]["scale"]
    assert (np.asarray(scale.weight) > 0).all()
    as_it_was, afresh = (
        algorithm.learn.update(params, state, trajectory, key)[2]
        for state in (learner, algorithm.learn.init(params))
    )
    name = "value/explained_variance"
    assert_array_equal(as_it_was[name], afresh[name])


@pytest.mark.parametrize(("name", "worth"), [("running", 50.0), ("round", 10.0)])
def test_what_is_rare_teaches_as_much_as_it_pays_only_on_a_running_scale(name, worth):
    """Rounds of alike rows; in one of them a row is worth fifty times as much."""
    dull = jnp.tile(jnp.array([1.0, -1.0]), 50)
    rare = dull.at[0].set(50.0)
    counts = jnp.ones(100, bool)
    scale = value_scale.updated(value_scale.start(), dull, counts)
    scaled = functools.partial(standardiser(PPOConfig(advantage_scale=name)), scale, counts=counts)
    assert scaled(rare)[0] / scaled(dull)[0] == pytest.approx(worth, rel=0.03)


def test_rows_that_do_not_count_are_in_no_scale():
    advantage, counts = jnp.array([1.0, 3.0, 1e6]), jnp.array([True, True, False])
    for name in ("round", "running"):
        scaled = standardiser(PPOConfig(advantage_scale=name))(value_scale.start(), advantage, counts)
        assert_allclose(scaled, [-1.0, 1.0, 0.0], atol=1e-6)


def test_a_running_scale_without_one_is_refused():
    with pytest.raises(ValueError, match="value_normalisation=true"):
        PPOConfig(advantage_scale="running", value_normalisation=False)


def test_learning_rates_are_data_so_that_runs_which_differ_in_them_share_a_program():
    def program(rate: float) -> str:
        work = small_job(learning_rate=rate)
        algorithm = work.stretches[0].algorithm
        state = loop.start(work, work.stretches[0])
        step = functools.partial(
            programs.train_step, work.env, algorithm, work.num_steps, work.sequence_length
        )
        return str(jax.make_jaxpr(step)(jax.tree.map(lambda x: x[0], state)))

    assert program(1e-3) == program(3e-3)


@pytest.mark.parametrize(("text", "clip"), [("true", 0.05), ("false", 0.2)])
def test_a_team_of_four_may_move_a_quarter_as_far_each(text, clip):
    settings = with_overrides(small(), {"ppo.clip_by_team": text, "ppo.clip": "0.2"}).ppo
    assert_allclose(_clipped_by_team(settings, players=4).clip, clip)


def test_a_clip_that_is_divided_is_learned_with():
    # steps of a rate that is far too large, so that ratios leave the clip
    far = {"ppo.epochs": 4, "ppo.learning_rate": 0.05}
    divided = after_one_update(far | {"ppo.clip_by_team": True, "ppo.clip": 0.2})
    assert same_bits(divided, after_one_update(far | {"ppo.clip": 0.05}))


def after_one_update(changes):
    work = small_job(**changes)
    state = loop.seat(work, work.stretches[0], None, 0)
    program = programs.chunk_program(work, work.stretches[0], state)
    return jax.device_get(program.run(state, jnp.int32(1))[0].params)
