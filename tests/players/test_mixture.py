"""A player that is one of several."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from coplay.envs import make_game
from coplay.players.catalogue import make_player

ENV = make_game("4h1s_4x4", observation="entities")


def test_it_is_one_of_them_for_a_whole_episode_and_drawn_anew_for_the_next():
    names = ("nearest_stag", "fickle", "random")
    each = [make_player(name, ENV) for name in names]
    mixture = make_player(f"one_of{names}", ENV)
    _, now = ENV.reset(jax.random.key(0))
    row, legal = now.observation[0], now.legal[0]
    assert mixture.num_latents == sum(player.num_latents for player in each)
    start, first = np.asarray(mixture.start()), 0
    for player in each:
        own = np.arange(first, first + player.num_latents)
        assert_allclose(start[own].sum(), 1 / 3, rtol=1e-6)
        for latent in own:
            as_itself, as_one = jnp.int32(latent - first), jnp.int32(latent)
            assert_allclose(mixture.policy(as_one, row, legal), player.policy(as_itself, row, legal))
            assert mixture.goal(as_one, row) == player.goal(as_itself, row)
            chances = np.asarray(mixture.advance(as_one, row, row))
            assert_allclose(chances[own], player.advance(as_itself, row, row))
            assert_allclose(chances.sum(), 1.0, rtol=1e-6)
            assert_allclose(mixture.renew(as_one), start)
        first += player.num_latents
