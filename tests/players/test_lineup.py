"""Line-ups: whose rows are whose, frozen runs, and scores that follow the learner."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.compute as pc
import pytest

from coplay import runs
from coplay.envs import make_game
from coplay.errors import BadInput
from coplay.experiment import build, job, load_params
from coplay.players.frozen import frozen
from coplay.players.lineup import Member, seated
from coplay.training import loop, programs
from coplay.training.rollout import start_playing
from coplay.training.stages import no_learning
from coplay.types import Algorithm, Decision, Seated
from tests.small import same_bits, small, small_job


def constant(action: int):
    """A player that always does the same, legal or not."""

    def build_for(seats):
        def act(params, memory, timestep, state, key):
            shape = (timestep.first.shape[0], len(seats))
            actions = jnp.full(shape, action, jnp.int32)
            return memory, Decision(actions, jnp.zeros(shape), jax.nn.one_hot(actions, 7))

        return Algorithm(
            init=lambda key: Seated(own={"identity": jnp.asarray(seats, jnp.int32)}, common={}),
            remember=lambda num_envs: (),
            act=act,
            watch=lambda params, memory, transition: memory,
            learn=no_learning,
        )

    return build_for


def started(env, players, num_envs):
    return jax.jit(lambda key: start_playing(env, players, key, num_envs))(jax.random.key(1))


def acted(players, params, actor):
    return jax.jit(players.act)(params, actor.memory, actor.timestep, actor.env_state, jax.random.key(2))


def test_everyone_acts_in_the_seat_they_were_given():
    env = make_game("4h1s_4x4")
    names = ("b", "a", "c", "a")
    members = [
        Member("a", constant(1), (1, 3)),
        Member("b", constant(2), (0,)),
        Member("c", constant(3), (2,)),
    ]
    players = seated(members, names)
    params = players.init(jax.random.key(0))
    _, decision = acted(players, params, started(env, players, 5))
    np.testing.assert_array_equal(decision.action, [[2, 1, 3, 1]] * 5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return runs.train(small(**{"rollout.total_steps": 320}), tmp_path_factory.mktemp("runs") / "old")


def test_a_frozen_run_brings_to_a_seat_the_weights_it_learned_there(trained):
    built = build(small(lineup=("ppo", str(trained.path), "nearest_stag", f"{trained.path}@last:0")))
    own = build(small())
    params = built.stretches[0].algorithm.init(jax.random.key(0))
    actor = started(built.env, built.stretches[0].algorithm, 6)
    _, mixed = acted(built.stretches[0].algorithm, params, actor)
    old = jax.tree.map(lambda x: x[0], load_params(own, trained.folder, best=False).params)
    everyone = own.stretches[0].algorithm
    _, alone = acted(everyone, old, dataclasses.replace(actor, memory=everyone.remember(6)))
    for seat in (1, 3):
        np.testing.assert_allclose(mixed.policy[:, seat], alone.policy[:, seat], atol=1e-6)


def test_a_frozen_player_needs_what_it_needed_when_it_learned():
    learned = build(small("hop_4h1s_4x4")).stretches[0].algorithm
    assert frozen(learned, {}).needs == learned.needs == "sees the game"


def test_frozen_and_scripted_players_do_not_learn(trained, tmp_path):
    experiment = small(lineup=("ppo", str(trained.path), "nearest_stag", "random"))
    run = runs.train(experiment, tmp_path / "mixed")
    name = str(trained.path)
    built = build(experiment)
    start = built.stretches[0].algorithm.init(jax.random.key(0))
    assert same_bits(jax.tree.map(lambda x: x[0], run.finished.state.params[name]), start[name])
    updates = run.metrics().filter(pc.field("metric") == "count/updates/policy")
    assert set(updates["seat"].to_pylist()) == {0}


def test_a_run_of_another_game_cannot_sit_down(trained):
    with pytest.raises(BadInput, match="cannot sit"):
        build(small(lineup=("ppo", str(trained.path), "random", "random"), observation="board"))


def test_two_algorithms_learn_in_one_game():
    work = small_job(lineup=("ppo", "mappo", "ppo", "mappo"))
    state = loop.seat(work, work.stretches[0], None, 0)
    _, metrics = programs.chunk_program(work, work.stretches[0], state).run(state, jnp.int32(1))
    assert np.isfinite(np.asarray(metrics["policy/entropy"])[0, 0]).all()


def test_shuffled_seats_keep_rows_with_their_learner():
    work = job(build(small(seats="shuffled")))
    actor = started(work.env, work.stretches[0].algorithm, 64)
    orders = np.asarray(actor.env_state.order)
    assert len({tuple(order) for order in orders}) > 10
    view = jax.jit(jax.vmap(make_game("4h1s_4x4", observation="entities").view))
    inner = np.asarray(view(actor.env_state.inner)[0])
    for game in range(64):
        np.testing.assert_array_equal(actor.timestep.observation[game], inner[game][orders[game]])


def test_a_learner_of_the_game_itself_may_sit_in_shuffled_seats():
    """Without a step of training: it would fail while it is traced, where states are read as boards."""
    work = job(build(small("hop_plus_4h1s_4x4", seats="shuffled")))
    stretch = work.stretches[0]
    state = jax.tree.map(lambda x: x[0], loop.start(work, stretch))
    learn = partial(programs.train_step, work.env, stretch.algorithm, work.num_steps, work.sequence_length)
    after, metrics = jax.eval_shape(learn, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert any(name.startswith("world/") for name in metrics)
