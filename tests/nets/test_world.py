"""What the world model reads and says, and that a game can be made from it again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.envs import make_game
from coplay.nets import world as worlds
from coplay.offline import collect
from coplay.types import Board
from tests.small import same_bits


def model(env):
    return worlds.world_model(env.entities, env.num_agents, env.num_actions, env.reward_values)


@pytest.fixture(scope="module", params=["4h1s_4x4", "4h1s_8x8_walls"])
def played(request):
    """A game, and moves that known players made in it: states before and after, actions, rewards."""
    options = {"observation": "entities", "end_after_first_hunt": 5}
    about = collect.about(
        request.param, options, ("nearest_stag", "nearest_hare", "random"), True, episodes=30, seed=1
    )
    play = collect.record(about)
    moves = play.is_move[:, :-1]
    before, after = (
        jax.tree.map(lambda x, part=part: jnp.asarray(x[:, part][moves]), play.state)
        for part in (slice(None, -1), slice(1, None))
    )
    return about.env(), before, after, play.action[:, :-1][moves], play.reward[:, :-1][moves]


def test_a_board_with_the_rest_by_rule_makes_the_games_own_next_moment(played):
    env, before, _, action, reward = played
    keys = jax.random.split(jax.random.key(0), len(action))
    state, timestep = jax.jit(jax.vmap(env.step))(before, action, keys)
    board = jax.vmap(env.entities.read)(state)
    written = jax.jit(jax.vmap(env.entities.write))(before, action, board, reward)
    assert same_bits(written, (state, timestep))


def test_labels_say_all_that_happened_to_players_and_prey(played):
    env, before, after, _, reward = played
    world, _ = model(env)
    boards = [jax.vmap(env.entities.read)(state) for state in (before, after)]
    happened = worlds.true_drawn(world, *boards, jnp.asarray(reward))
    again = worlds.next_board(world, boards[0], happened)
    assert same_bits(again, boards[1])
    assert_allclose(np.array(world.reward_values)[happened.reward], reward, rtol=1e-6)
    assert len(np.unique(happened.reward)) >= 3
    assert len(np.unique(happened.step)) == 6


def test_a_player_reads_what_it_does_and_what_is_on_its_cell():
    env = make_game("4h1s_4x4", players=3)
    world, _ = model(env)
    board = Board(
        players=jnp.array([5, 5, 9]),
        here=jnp.array([True, True, True]),
        things=jnp.array([5, 9, 1, 2, 3]),
        there=jnp.array([True, False, True, True, True]),
    )
    rows = worlds.rows_of(world, board, jnp.array([5, 5, 6]), jnp.array([True, True, False]))
    action, legal, here, stag, hare = np.split(np.asarray(rows.player)[:, :11], [7, 8, 9, 10], axis=1)
    assert_array_equal(action.argmax(axis=1), [5, 5, 6])
    assert_array_equal(legal[:, 0], [1, 1, 0])
    assert_array_equal(here[:, 0], [1, 1, 1])
    assert_array_equal(stag[:, 0], [1, 1, 0])
    assert_array_equal(hare[:, 0], [0, 0, 0])  # the one on the third player's cell is gone
    counts = np.asarray(rows.player)[:, 11:].reshape(3, 7, 4).argmax(axis=-1)
    assert_array_equal(counts[:, 5], [2, 2, 0])
    assert_array_equal(counts[:, 6], [0, 0, 1])
    at_things = np.asarray(rows.thing)[:, 3:].reshape(5, 7, 4).argmax(axis=-1)
    assert_array_equal(at_things[:, 5], [2, 0, 0, 0, 0])
    assert_array_equal(np.asarray(rows.thing)[:, :3].argmax(axis=1), [0, 1, 1, 1, 1])


def test_the_departed_are_nobody_and_stay_gone():
    env = make_game("4h1s_4x4", players=3)
    world, init = model(env)
    board = Board(jnp.array([5, 5, 5]), jnp.array([True, False, True]), jnp.zeros(5, int), jnp.zeros(5, bool))
    rows = worlds.rows_of(world, board, jnp.array([0, 0, 0]), jnp.ones(3, bool))
    assert np.asarray(rows.player)[0, 11:].reshape(7, 4)[0].argmax() == 2
    said = worlds.foreseen(world, init(jax.random.key(0)), rows)
    later = worlds.next_board(world, board, worlds.draw(said, jax.random.key(1)))
    assert not later.here[1]
    assert later.players[1] == 5
    assert not later.there.any()


def test_what_is_foretold_are_chances_and_members_differ():
    env = make_game("4h1s_4x4", players=3)
    world, init = model(env)
    _, now = env.reset(jax.random.key(0))
    state, _ = env.reset(jax.random.key(0))
    rows = worlds.rows_of(world, env.entities.read(state), jnp.array([0, 4, 4]), now.legal[:, 0])
    one, other = (worlds.foreseen(world, init(jax.random.key(seed)), rows) for seed in (0, 1))
    for name in ("step", "reward", "there"):
        assert_allclose(np.exp(getattr(one, name)).sum(axis=-1), 1.0, rtol=1e-5)
        assert (np.asarray(getattr(one, name)) != np.asarray(getattr(other, name))).any()


def test_renaming_players_permutes_what_is_foretold():
    env = make_game("4h1s_4x4")
    world, init = model(env)
    state, now = env.reset(jax.random.key(3))
    order, action = jnp.array([2, 3, 0, 1]), jnp.array([0, 1, 2, 4])
    legal = jnp.take_along_axis(now.legal, action[:, None], axis=1)[:, 0]
    weights = init(jax.random.key(0))

    def said(state, action, legal):
        rows = worlds.rows_of(world, env.entities.read(state), action, legal)
        return worlds.foreseen(world, weights, rows)

    as_it_is, renamed = (
        said(state, action, legal),
        said(env.rename(state, order), action[order], legal[order]),
    )
    for name in ("step", "reward"):
        assert_allclose(getattr(renamed, name), getattr(as_it_is, name)[order], rtol=1e-6)
    assert_allclose(renamed.there, as_it_is.there, rtol=1e-6)
