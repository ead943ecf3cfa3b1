"""Scripted players in seats, and the filter that sees through them: on machines small enough for paper."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.envs import matrix
from coplay.errors import BadInput
from coplay.players.scripted import (
    PlayerRows,
    bayes_filter,
    by_player,
    certain,
    machine,
    no_goal,
    one_latent,
    random_player,
    scripted,
)
from tests.players.play import assert_mean, compiled, keep_all, play

ENV = matrix.make(rounds=4)


def moody(stay=0.75):
    """Plays its latent state, which is 0 at first and changes with chance 1 - stay; from episode to
    episode it is turned round."""
    return machine(
        "moody",
        start=[1.0, 0.0],
        renew=lambda latent: certain(1 - latent, 2),
        policy=lambda latent, row, legal: certain(latent, 2),
        advance=lambda latent, before, after: jnp.where(jnp.arange(2) == latent, stay, 1 - stay),
        goal=lambda latent, row: latent,
    )


def constant(chance_of_one):
    policy = jnp.array([1 - chance_of_one, chance_of_one])
    return one_latent("constant", lambda latent, row, legal: policy, no_goal)


def test_the_latent_starts_advances_and_is_renewed_after_the_last_step_of_an_episode():
    seated = {(0, 1): scripted(moody(), ENV, (0, 1))}
    transition, _, memories = play(ENV, seated, 2000, 12, jax.random.key(0), keep_all, again=True)
    mood = np.asarray(transition.decision.action)
    assert_array_equal(mood, memories[0].latent)
    assert (mood[0] == 0).all()
    same = (mood[1:] == mood[:-1]).mean(axis=2)
    for t in range(1, 12):
        # Within an episode it keeps its mood with chance 3/4. Between episodes the last step still counts:
        # kept, then turned round, so that the mood is the same with chance 1/4.
        assert_mean(same[t - 1], 0.25 if t % 4 == 0 else 0.75, floor=0.0)


def test_draws_follow_the_identity_of_a_seat():
    algorithm = scripted(random_player(ENV), ENV, (0, 1))
    _, timestep = compiled(jax.vmap(ENV.reset))(jax.random.split(jax.random.key(0), 50))
    params, memory = algorithm.init(None), algorithm.remember(50)
    swapped = dataclasses.replace(params, own={"identity": params.own["identity"][::-1]})
    act = compiled(algorithm.act)
    _, decision = act(params, memory, timestep, None, jax.random.key(1))
    _, renamed = act(swapped, memory, timestep, None, jax.random.key(1))
    assert_array_equal(renamed.action, decision.action[:, ::-1])
    assert (decision.action[:, 0] != decision.action[:, 1]).any()


def test_a_scripted_player_learns_nothing():
    algorithm = scripted(random_player(ENV), ENV, (1,))
    params = algorithm.init(None)
    learner = algorithm.learn.init(params)
    assert algorithm.learn.update(params, learner, None, None) == (params, learner, {})


def test_a_seat_that_is_not_there_is_refused():
    with pytest.raises(BadInput, match="between 0 and 1"):
        scripted(random_player(ENV), ENV, (0, 2))


# --- the filter ----------------------------------------------------------------------------------


def filtered_by(players, prior, rows):
    return compiled(functools.partial(bayes_filter, players))(prior, rows)


def watched(actions, first=(), idle=()):
    """Rows in which only the actions matter."""
    time = len(actions)
    return PlayerRows(
        observation=jnp.zeros((time, ENV.observation_size)),
        legal=jnp.ones((time, 2), bool),
        action=jnp.array(actions),
        after=jnp.zeros((time, ENV.observation_size)),
        active=~jnp.isin(jnp.arange(time), jnp.array(idle, jnp.int32)),
        first=jnp.isin(jnp.arange(time), jnp.array([0, *first], jnp.int32)),
    )


def test_belief_between_two_coins_follows_the_rule_of_bayes():
    # Coins with chances 3/4 and 1/4 of a 1, at first 1 to 1. After a 1 they stand 3 to 1, then 9 to 1.
    # The next 1 is expected with 1/2, then 3/4*3/4 + 1/4*1/4 = 10/16, then (9*3/4 + 1/4) / 10 = 0.7.
    coins = [constant(0.75), constant(0.25)]
    filtered = filtered_by(coins, jnp.array([2.0, 2.0]), watched([1, 1, 0]))
    assert_allclose(filtered.prediction[:, 1], [0.5, 0.625, 0.7], rtol=1e-6)
    assert_allclose(filtered.posterior[:, 0], [0.75, 0.9, 0.75], rtol=1e-6)
    assert_allclose(filtered.belief[1:], filtered.posterior[:-1])


def test_the_filter_carries_latents_on_and_renews_them():
    # The moody one against a fair coin, 1 to 1. It starts with a 0 for sure: a 0 is expected with 3/4 and
    # leaves it 2 to 1. Next it plays 0 with chance 3/4: 2/3 * 3/4 + 1/3 * 1/2 = 2/3 for a 0.
    filtered = filtered_by([moody(), constant(0.5)], jnp.ones(2), watched([0, 0]))
    assert_allclose(filtered.prediction[:, 0], [3 / 4, 2 / 3], rtol=1e-6)
    assert_allclose(by_player([moody(), constant(0.5)], filtered.posterior[0]), [2 / 3, 1 / 3], rtol=1e-6)
    # At a new episode its mood (0 with chance 3/4 after the last step) is turned round:
    # 2/3 * 1/4 + 1/3 * 1/2 = 1/3 for a 0.
    filtered = filtered_by([moody(), constant(0.5)], jnp.ones(2), watched([0, 0], first=[1]))
    assert_allclose(filtered.prediction[:, 0], [3 / 4, 1 / 3], rtol=1e-6)


def test_an_idle_player_tells_nothing_but_its_latent_goes_on():
    # The mood is 0, then unseen for a step: 0 with chance 3/4 * 3/4 + 1/4 * 1/4 = 5/8 at the third step.
    filtered = filtered_by([moody()], jnp.ones(1), watched([0, 1, 1], idle=[1]))
    assert_allclose(filtered.prediction[:, 0], [1, 3 / 4, 5 / 8], rtol=1e-6)


def test_an_action_that_nobody_would_play_leaves_the_belief_alone():
    filtered = filtered_by([constant(1.0), constant(1.0)], jnp.array([3.0, 1.0]), watched([0, 1]))
    assert_allclose(filtered.posterior, [[0.75, 0.25], [0.75, 0.25]])
