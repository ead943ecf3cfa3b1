"""MPE behind our contract: JaxMARL's rewards and rows, our endings, roles shown, names that do not matter."""

import functools
import importlib.metadata

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay import runs
from coplay.envs import make_game
from coplay.envs.imported import jaxmarl
from tests.small import small

COAST, LEFT, RIGHT, DOWN, UP = range(5)


@functools.cache
def game(name, **options):
    env = make_game(f"mpe:{name}", **options)
    return env, jax.jit(env.reset), jax.jit(env.step)


def placed(name, *places, **options):
    """A game whose discs lie still at these places, players first."""
    env, reset, step = game(name, **options)
    state, _ = reset(jax.random.key(0))
    state = state.replace(p_pos=jnp.array(places, jnp.float32), p_vel=jnp.zeros_like(state.p_vel))
    return env, step, state


def coasting(env):
    return jnp.zeros(env.num_agents, jnp.int32)


SPREAD = [
    (0.0, 0.0),
    (1.0, 0.0),
    (0.0, 1.0),
    (0.0, 0.3),
    (1.0, 0.4),
    (0.0, 1.0),
]  # discs, then landmarks
TAG = [(-0.5, 0.0), (0.0, 0.6), (0.9, -0.8), (-0.4, 0.0), (0.5, 0.5), (0.5, -0.5)]  # prey is fourth


def test_covering_is_paid_alike_and_halved_by_the_ratio():
    # nearest discs of the landmarks: 0.3, 0.4 and 0 away; nobody touches: -0.5 * 0.7
    env, step, state = placed("simple_spread", *SPREAD)
    after, timestep = step(state, coasting(env), jax.random.key(1))
    assert_allclose(timestep.reward, [-0.35] * 3, atol=1e-6)
    assert {name: int(n) for name, n in env.outcomes(state, after).items()} == {"covered": 1, "collisions": 0}


def test_a_collision_costs_the_two_who_collide():
    # 0.2 apart, radius 0.15 each; landmarks 0, 0 and 1 away: -0.5 * 1, and -0.5 more for the two
    env, step, state = placed("simple_spread", (0, 0), (0.2, 0), (0, 1), (0, 0), (0, 1), (0, -1))
    after, timestep = step(state, coasting(env), jax.random.key(1))
    assert_allclose(timestep.reward, [-1.0, -1.0, -0.5], atol=1e-6)
    assert int(env.outcomes(state, after)["collisions"]) == 1


@pytest.mark.parametrize(
    ("action", "velocity"),
    [(COAST, (0, 0)), (LEFT, (-0.5, 0)), (RIGHT, (0.5, 0)), (DOWN, (0, -0.5)), (UP, (0, 0.5))],
)
def test_a_push_changes_the_velocity_along_its_axis(action, velocity):
    # a push of 5 for a tenth of a second
    env, step, state = placed("simple_spread", *SPREAD)
    assert env.action_names[action] == ("coast", "left", "right", "down", "up")[action]
    after, _ = step(state, coasting(env).at[0].set(action), jax.random.key(1))
    assert_allclose(after.p_vel[0], velocity, atol=1e-6)


def test_an_episode_is_cut_after_25_steps_and_nobody_leaves():
    env, reset, step = game("simple_spread")
    state, timestep = reset(jax.random.key(0))
    flags = []
    for number in range(25):
        state, timestep = step(state, coasting(env), jax.random.key(number))
        flags.append(bool(timestep.truncated))
        assert not timestep.terminated.any() and timestep.active.all()
    assert flags == [False] * 24 + [True]
    assert env.can_truncate


def test_rewards_and_rows_are_those_of_jaxmarl():
    _, reset, step = game("simple_spread")
    theirs = jaxmarl.load("mpe").SimpleSpreadMPE()
    state, _ = reset(jax.random.key(3))
    rows, other = jaxmarl.as_written(theirs.reset)(jax.random.key(3))
    for number in range(3):
        action, key = jnp.array([number, number + 1, 4]), jax.random.key(number)
        state, timestep = step(state, action, key)
        named = dict(zip(theirs.agents, action, strict=True))
        rows, other, reward, _, _ = jaxmarl.as_written(theirs.step_env)(key, other, named)
        assert_allclose(timestep.reward, [reward[name] for name in theirs.agents], atol=1e-5)
        assert_allclose(timestep.observation, [rows[name] for name in theirs.agents], atol=1e-5)


def test_a_catch_pays_every_predator_and_costs_the_prey():
    # predator 1 is 0.1 from the prey, radii 0.075 and 0.05
    env, step, state = placed("simple_tag", *TAG)
    after, timestep = step(state, coasting(env), jax.random.key(1))
    assert_allclose(timestep.reward, [10, 10, 10, -10], atol=1e-5)
    assert int(env.outcomes(state, after)["catches"]) == 1
    caught = [int(env.goals.shown(row, None, None, row)) for row in timestep.observation]
    assert caught == [3, -1, -1, -1]  # goals are the players by seat


def test_the_shorter_row_is_padded_and_every_row_names_its_role():
    env, _, state = placed("simple_tag", *TAG)
    rows, _ = env.view(state)
    assert rows.shape == (4, 18)
    parts = [env.split(row) for row in rows]
    assert_allclose([part["role"] for part in parts], [[1, 0], [1, 0], [1, 0], [0, 1]])
    assert_allclose(parts[3]["prey_velocity"], 0)  # where predators see how fast the prey is
    assert_allclose(parts[0]["others"][-1], [0.1, 0.0], atol=1e-6)
    assert [part["hunting"].tolist() for part in (parts[0], parts[3])] == [[True, True, False], [True] * 3]


def test_who_hunts_is_after_prey_and_who_is_hunted_away_from_predators():
    env, _, state = placed("simple_tag", *TAG)
    rows, _ = env.view(state)
    possible, seen = env.goals.look(rows[1])
    assert possible.tolist() == [False, False, False, True]
    assert_allclose(seen[3], [-0.4, -0.6, np.hypot(0.4, 0.6)], atol=1e-6)
    possible, seen = env.goals.look(rows[3])
    assert possible.tolist() == [True, True, True, False]
    assert_allclose(seen[1], [0.4, 0.6, np.hypot(0.4, 0.6)], atol=1e-6)


@pytest.mark.parametrize(("name", "order"), [("simple_spread", [2, 0, 1]), ("simple_tag", [1, 2, 0, 3])])
def test_renaming_within_a_role_permutes_what_happens(name, order):
    env, reset, step = game(name)
    order = jnp.array(order)
    state, _ = reset(jax.random.key(5))
    named = env.rename(state, order)
    for number in range(10):
        action = (jnp.arange(env.num_agents) + number) % 5
        state, timestep = step(state, action, jax.random.key(number))
        named, renamed = step(named, action[order], jax.random.key(number))
        assert_allclose(named.p_pos, env.rename(state, order).p_pos, atol=1e-4)
        assert_allclose(renamed.reward, timestep.reward[order], atol=1e-4)
    own = {"simple_spread": 10, "simple_tag": 8}[name]  # velocity, place and things; then come the others
    assert_allclose(renamed.observation[:, :own], timestep.observation[order][:, :own], atol=1e-4)


def test_other_numbers_of_players_and_steps_keep_the_shapes():
    env = make_game("mpe:simple_spread", num_agents=5, num_landmarks=2, max_steps=7)
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    assert (env.horizon, timestep.observation.shape) == (7, (5, env.observation_size))
    env = make_game("mpe:simple_tag", num_predators=2, num_prey=2, num_obstacles=0)
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    assert timestep.observation.shape == (4, env.observation_size)


def test_a_picture_shows_discs_in_their_cells_and_the_far_ones_on_the_border():
    # cells of 0.12; (0, 0) is the middle of 25 x 25
    env, _, state = placed("simple_spread", (0, 0), (9, 0), (0, 1.49), (0.13, 0), (0, -0.13), (-9, -9))
    picture = env.draw(state)
    assert picture.players.tolist() == [[12, 12], [12, 24], [0, 12]]
    assert picture.cells["landmark"].tolist() == [[12, 13], [13, 12], [24, 0]]


def test_a_run_records_whose_game_it_played(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "_go_on", lambda folder, built, *rest: runs.Run(folder, built.experiment))
    run = runs.train(small("mappo_simple_spread"), tmp_path / "spread")
    assert run.folder.versions["packages"]["jaxmarl"] == importlib.metadata.version("jaxmarl")
