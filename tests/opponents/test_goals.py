"""Labels in hindsight, and how each game gives goals away."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coplay.envs import make_game
from coplay.envs.snowdrift import REMOVE
from coplay.envs.stag_hunt import HUNT_HARE, HUNT_STAG
from coplay.opponents import goals
from coplay.opponents.goals import UNKNOWN, hindsight_labels
from coplay.training.rollout import is_over
from coplay.types import Decision, Transition

NO = UNKNOWN


def labels(shown, over, upcoming, lost=None):
    """One game, one player."""
    column = jnp.asarray(shown, jnp.int32)[:, None, None]
    lost = None if lost is None else jnp.asarray(lost)[:, None, None]
    upcoming = jnp.full((1, 1), upcoming, jnp.int32)
    told, first = hindsight_labels(column, jnp.asarray(over)[:, None], upcoming, lost)
    return told[:, 0, 0].tolist(), int(first[0, 0])


def test_every_step_is_labelled_by_what_the_player_gave_away_next():
    assert labels([NO, 1, NO, 0, NO], [False] * 5, NO) == ([1, 1, 0, 0, NO], 1)


def test_an_episodes_end_cuts_the_label_off():
    # The first game ends without anything given away; what follows belongs to the next.
    assert labels([NO, NO, NO, 0], [False, True, False, False], NO)[0] == [NO, NO, 0, 0]


def test_a_catch_that_ends_the_game_still_labels_it():
    assert labels([NO, 0, NO], [False, True, False], NO)[0] == [0, 0, NO]


def test_a_game_that_a_round_cuts_off_is_labelled_by_the_next_round():
    assert labels([NO, NO], [False, False], 1) == ([1, 1], 1)
    assert labels([NO, NO], [False, True], 1) == ([NO, NO], NO)


def test_what_was_given_away_after_a_goal_was_gone_says_nothing_about_before():
    # The stag is taken in the second step; the hare taken in the fourth labels the third and fourth only.
    never, gone = [False] * 4, [False, True, False, False]
    assert labels([NO, NO, NO, 1], never, NO, lost=gone)[0] == [NO, NO, 1, 1]
    # Who takes the stag itself was after it.
    assert labels([NO, 0, NO, NO], never, NO, lost=gone)[0] == [0, 0, NO, NO]


def shown_goals(env, steps):
    return np.asarray(jax.jit(lambda steps: goals.shown_goals(env, steps))(steps))


@functools.cache
def walk(name, steps=400, **options):
    """Random legal play: transitions [time, env, agent] and how many are over."""
    env = make_game(name, **options)

    def one(carry, key):
        state, before = carry
        draw, step, fresh = jax.random.split(key, 3)
        gumbel = jax.random.gumbel(draw, before.legal.shape)
        action = jnp.argmax(jnp.where(before.legal, gumbel, -jnp.inf), axis=-1).astype(jnp.int32)
        state, after = jax.vmap(env.step)(state, action, jax.random.split(step, 8))
        decision = Decision(action, jnp.zeros(action.shape), before.legal.astype(jnp.float32))
        new = jax.vmap(env.reset)(jax.random.split(fresh, 8))
        over = is_over(after)
        carry = jax.tree.map(
            lambda a, b: jnp.where(over.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, (state, after)
        )
        return carry, Transition(before, decision, after)

    start = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 8))
    return env, jax.jit(lambda s: jax.lax.scan(one, s, jax.random.split(jax.random.key(1), steps))[1])(start)


@pytest.mark.parametrize("observation", ["board", "entities"])
def test_in_the_stag_hunt_the_prey_that_fed_a_player_is_its_goal(observation):
    env, steps = walk("4h1s_4x4", observation=observation)
    shown, action = shown_goals(env, steps), np.asarray(steps.decision.action)
    fed = np.asarray(steps.after.reward) > 0
    assert_array_equal(shown != UNKNOWN, fed)
    assert_array_equal(action[shown == 0], HUNT_STAG)
    assert_array_equal(action[shown == 1], HUNT_HARE)
    assert (shown == 0).any() and (shown == 1).any()


@pytest.mark.parametrize("observation", ["board", "entities"])
def test_a_kind_of_prey_is_possible_while_one_is_left(observation):
    env, steps = walk("4h1s_4x4", observation=observation)
    possible = jax.jit(jax.vmap(jax.vmap(jax.vmap(lambda row: env.goals.look(row)[0]))))(
        steps.before.observation
    )
    boards = jax.jit(jax.vmap(jax.vmap(env.split)))(steps.before.observation[:, :, 0])
    assert_array_equal(possible[:, :, 0, 0], np.asarray(boards["stags"]).any(axis=(-2, -1)))
    assert_array_equal(possible[:, :, 0, 1], np.asarray(boards["hares"]).any(axis=(-2, -1)))


def test_in_the_snowdrift_game_the_drift_removed_is_the_goal():
    env, steps = walk("snowdrift", observation="entities")
    shown, action = shown_goals(env, steps), np.asarray(steps.decision.action)
    assert_array_equal(shown != UNKNOWN, action == REMOVE)  # random play is legal: it removes what is there
    possible, description = jax.jit(jax.vmap(jax.vmap(jax.vmap(env.goals.look))))(steps.before.observation)
    after, _ = jax.jit(jax.vmap(jax.vmap(jax.vmap(env.goals.look))))(steps.after.observation)
    for time, game, agent in np.argwhere(shown != UNKNOWN)[:50]:
        drift = shown[time, game, agent]
        assert possible[time, game, agent, drift] and not after[time, game, agent, drift]
        assert_array_equal(description[time, game, agent, drift], [0, 0, 0, 0, 1, 1, 1, 1])
    assert np.asarray(possible)[..., -1].all(), "to remove no more is always possible"


def test_in_the_coin_game_a_coin_taken_tells_whose_coins_a_player_takes():
    env, steps = walk("coin_game")
    shown, reward = shown_goals(env, steps), np.asarray(steps.after.reward)
    takes_alone = (shown != UNKNOWN).sum(axis=-1) == 1
    assert takes_alone.any()
    assert_array_equal((shown != UNKNOWN) & takes_alone[..., None], (reward == 1) & takes_alone[..., None])
    loses = (reward == -2).any(axis=-1) & takes_alone
    assert_array_equal(shown[loses].max(axis=-1), 1)  # the other's coin: any coin will do


def test_in_a_matrix_game_the_action_is_the_goal():
    env, steps = walk("prisoners_dilemma")
    assert_array_equal(shown_goals(env, steps), steps.decision.action)


def test_a_player_that_has_left_gives_nothing_away():
    env, steps = walk("4h1s_4x4", observation="entities")
    assert (shown_goals(env, steps)[~np.asarray(steps.before.active)] == UNKNOWN).all()


def test_who_hunts_a_stag_alone_tries_for_it_but_does_not_give_it_away():
    env, steps = walk("4h1s_4x4", observation="entities")
    tried = np.asarray(jax.jit(lambda steps: goals.tried_goals(env, steps))(steps))
    shown, action = shown_goals(env, steps), np.asarray(steps.decision.action)
    active = np.asarray(steps.before.active)
    assert_array_equal(tried[active] == 0, action[active] == HUNT_STAG)
    assert_array_equal(tried[active] == 1, action[active] == HUNT_HARE)
    assert (tried[~active] == UNKNOWN).all()
    assert_array_equal(tried[shown != UNKNOWN], shown[shown != UNKNOWN])
    assert ((tried == 0) & (shown == UNKNOWN)).any(), "nobody hunted alone"


def test_an_action_that_may_not_be_taken_tries_for_nothing():
    env, steps = walk("4h1s_4x4", observation="entities")
    hunting = jnp.full_like(steps.decision.action, HUNT_STAG)
    insisting = dataclasses.replace(steps, decision=dataclasses.replace(steps.decision, action=hunting))
    tried = np.asarray(jax.jit(lambda steps: goals.tried_goals(env, steps))(insisting))
    may = np.asarray(steps.before.legal)[..., HUNT_STAG] & np.asarray(steps.before.active)
    assert_array_equal(tried == 0, may)


def test_where_nothing_else_is_said_a_goal_is_tried_for_as_it_is_shown():
    env, steps = walk("snowdrift", observation="entities")
    assert_array_equal(jax.jit(lambda steps: goals.tried_goals(env, steps))(steps), shown_goals(env, steps))
