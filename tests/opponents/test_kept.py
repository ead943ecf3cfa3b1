"""What is kept of a co-player's subgoals from one episode to the next, worked by hand."""

import jax.numpy as jnp
from numpy.testing import assert_allclose

from coplay.opponents import kept

PAIR = (1, 1, 1)
BEGINS, GOES_ON = jnp.array([True]), jnp.array([False])


def episode(known, readings, here=None):
    """Another one, with these readings step by step."""
    for step, reading in enumerate(readings):
        known = kept.another_episode(known, BEGINS if step == 0 else GOES_ON)
        is_here = True if here is None else here[step]
        known = kept.with_reading(known, jnp.full((*PAIR, 1), reading), jnp.full(PAIR, is_here))
    return known


def told(known):
    return kept.told(kept.another_episode(known, BEGINS))[0, 0, 0]


def test_nothing_is_known_before_the_first_episode_has_ended():
    start = kept.nothing_kept(PAIR, 1)
    assert_allclose(kept.told(start)[0, 0, 0], [0.0, 0.0])
    assert_allclose(kept.told(episode(start, [3.0, 5.0]))[0, 0, 0], [0.0, 0.0])


def test_an_episode_counts_by_the_mean_of_its_steps_and_fades():
    # 4 after one episode. Then 8: (0.9 * 0.1 * 4 + 0.1 * 8) / 0.19 = 1.16 / 0.19.
    once = episode(kept.nothing_kept(PAIR, 1), [3.0, 5.0])
    assert_allclose(told(once), [4.0, 0.1], rtol=1e-6)
    assert_allclose(told(episode(once, [8.0, 8.0, 8.0])), [1.16 / 0.19, 0.19], rtol=1e-6)


def test_steps_of_a_player_that_has_left_do_not_count():
    once = episode(kept.nothing_kept(PAIR, 1), [3.0, 100.0], here=[True, False])
    assert_allclose(told(once), [3.0, 0.1], rtol=1e-6)
    assert_allclose(told(episode(once, [7.0], here=[False])), [3.0, 0.1], rtol=1e-6)
