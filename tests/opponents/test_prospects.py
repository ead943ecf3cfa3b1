"""What a player is paid next, worked by hand."""

import jax.numpy as jnp
import numpy as np

from coplay.opponents.prospects import num_prospects, prospects

VALUES = (0.0, 1.0, 5.0)
NONE = 3  # to come


def told(reward, is_over, is_cut=(False,) * 4):
    """Of one player, step by step: its prospect, and whether it is known."""
    found = prospects(*(jnp.array(x)[:, None] for x in (reward, is_over, is_cut)), VALUES)
    return np.asarray(found.paid)[:, 0].tolist(), np.asarray(found.is_known)[:, 0].tolist()


def test_steps_up_to_a_meal_are_told_that_it_is_to_come():
    paid, is_known = told([0.0, 0.0, 5.0, 0.0], [False, False, True, False])
    assert paid[:3] == [2, 2, 2]
    assert is_known == [True, True, True, False]  # the rows end before the last one's shows


def test_a_game_that_ends_without_a_meal_had_none_to_come_and_the_next_game_says_nothing_of_it():
    paid, is_known = told([0.0, 0.0, 0.0, 1.0], [False, True, False, False])
    assert paid == [NONE, NONE, 1, 1]
    assert all(is_known)


def test_rewards_that_come_again_and_again_are_told_one_after_the_other():
    paid, _ = told([1.0, 0.0, 5.0, 1.0], [False, False, False, True])
    assert paid == [1, 2, 2, 1]


def test_none_to_come_is_a_prospect_of_its_own():
    assert num_prospects(VALUES) == NONE + 1


def test_what_would_have_come_after_a_cut_is_not_known_though_the_next_game_pays():
    _, is_known = told([1.0, 0.0, 0.0, 5.0], [False] * 4, [False, False, True, False])
    assert is_known == [True, False, False, True]
