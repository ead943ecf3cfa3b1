"""How far it is, on boards small enough to count by hand."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from coplay.envs import make_game, paths
from coplay.envs.walls import UNREACHABLE

UP, DOWN, LEFT, RIGHT = range(1, 5)  # places of `nearness` after the distance itself


def board(*rows):
    return jnp.array([[cell == "x" for cell in row] for row in rows])


def test_nearness_is_the_way_to_the_nearest_and_what_each_move_makes_of_it():
    targets = board("x...", "....", "....", "...x").reshape(1, -1)
    lengths = paths.on_open_board(4)(None, jnp.int32(6))  # second row, third column: 3 from either
    near = np.asarray(paths.nearness(paths.to_nearest(lengths, targets), 4))[0]
    assert_allclose(near[0], 3 / 4)
    assert_array_equal(near[[UP, DOWN, LEFT, RIGHT]], [-1, -1, -1, -1])
    lengths = paths.on_open_board(4)(None, jnp.int32(1))
    beside = np.asarray(paths.nearness(paths.to_nearest(lengths, targets), 4))[0]
    assert_allclose(beside[0], 1 / 4)
    assert_array_equal(beside[[DOWN, LEFT, RIGHT]], [1, -1, 1])


def test_who_stands_on_it_only_moves_away_and_what_is_not_there_is_nowhere_near():
    lengths = paths.on_open_board(4)(None, jnp.int32(5))
    there = jnp.arange(16)[None] == 5
    kinds = jnp.concatenate([there, ~there & there])
    near = np.asarray(paths.nearness(paths.to_nearest(lengths, kinds), 4))
    assert_array_equal(near[0], [0, 1, 1, 1, 1])
    assert_array_equal(near[1], [4, 0, 0, 0, 0])


def test_on_an_open_board_offsets_tell_the_same_as_cells():
    lengths = paths.on_open_board(5)(None, jnp.int32(12))  # the middle
    by_cell = paths.to_nearest(lengths, jnp.eye(25, dtype=bool))
    cells = jnp.stack(jnp.divmod(jnp.arange(25), 5), axis=1)
    assert_array_equal(paths.straight(cells - 2), by_cell)


def test_walls_are_walked_round():
    env = make_game("4h1s_8x8_walls", observation="entities")
    _, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 64))
    possible, description = jax.jit(jax.vmap(jax.vmap(env.goals.look)))(timestep.observation)
    seen = jax.jit(jax.vmap(jax.vmap(env.split)))(timestep.observation)
    assert possible.all()
    assert_array_equal(description[..., :2], jnp.broadcast_to(jnp.eye(2), (64, 4, 2, 2)))
    detours = 0
    for game in range(64):
        walls = np.asarray(seen["walls"][game, 0])
        for agent in range(4):
            start = np.argwhere(np.asarray(seen["self"][game, agent]))[0]
            for goal, prey in enumerate(("stags", "hares")):
                cells = np.argwhere(np.asarray(seen[prey][game, agent]))
                by_hand = min(spread(walls, start)[tuple(cell)] for cell in cells)
                assert_allclose(description[game, agent, goal, 2] * 8, by_hand)
                detours += by_hand > np.abs(cells - start).sum(axis=1).min()
    assert detours > 0, "no wall was ever in the way"


def spread(walls, start):
    """Steps from `start` to every cell, a ring at a time."""
    away = np.full(walls.shape, UNREACHABLE)
    away[tuple(start)] = 0
    ring = [tuple(start)]
    while ring:
        row, column = ring.pop(0)
        for cell in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            inside = 0 <= cell[0] < 8 and 0 <= cell[1] < 8
            if inside and not walls[cell] and away[cell] == UNREACHABLE:
                away[cell] = away[row, column] + 1
                ring.append(cell)
    return away
