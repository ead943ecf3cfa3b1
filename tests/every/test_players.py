"""What every scripted player promises: exact probabilities, of legal actions only, and draws to match."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import chi2

from coplay.envs import coin_game, make_game, matrix, snowdrift, specialisation, stag_hunt
from coplay.players.catalogue import PLAYERS, describe, make_player, player_names, players_of
from coplay.players.scripted import random_player, scripted
from tests.players.play import compiled, keep_all, play

GAMES = {
    "stag_hunt": stag_hunt.make(size=4, observation="entities"),
    "snowdrift": snowdrift.make(size=4),
    "coin_game": coin_game.make(),
    "matrix": matrix.make(),
    "specialisation": specialisation.make(rounds=10),
    "mpe:simple_spread": make_game("mpe:simple_spread"),
    "mpe:simple_tag": make_game("mpe:simple_tag"),
}
OPTIONS = {  # of players that cannot do without
    "biased": "biased(0.7)",
    "fixed": "fixed(1)",
    "changing": "changing('random', 'random', 2)",
    "one_of": "one_of('random', 'random')",
}
EVERY = [(game, name) for game, env in GAMES.items() for name in player_names(env)]
NUM_ROWS, DRAWS = 20, 1000


def made(game, name):
    return make_player(OPTIONS.get(name, name), GAMES[game])


@functools.cache
def moments(game):
    """Transitions from random play, each from another game and another time, with every row of theirs."""
    env = GAMES[game]
    seats = tuple(range(env.num_agents))
    seated = {seats: scripted(random_player(env), env, seats)}
    steps, _, _ = play(env, seated, NUM_ROWS, NUM_ROWS, jax.random.key(0), keep_all, again=True)
    diagonal = np.arange(NUM_ROWS)
    return jax.tree.map(lambda x: np.asarray(x)[diagonal, diagonal], steps)


@functools.cache
def told(game):
    """By player: what it says of its latent states, actions and goals for seat 0, and what it draws."""
    env = GAMES[game]
    every = {name: made(game, name) for name in player_names(env)}
    tell = compiled(lambda steps: {name: _told(env, player, steps) for name, player in every.items()})
    return jax.tree.map(np.asarray, tell(moments(game)))


def _told(env, player, steps):
    before, after = steps.before.observation[:, 0], steps.after.observation[:, 0]
    latents = jnp.arange(player.num_latents)

    def each(function):
        return jax.vmap(lambda z: jax.vmap(functools.partial(function, z))(*rows))(latents)

    rows = (before, steps.before.legal[:, 0])
    policy = each(player.policy)
    rows = (before, after)
    advance = each(player.advance)
    rows = (before,)
    goal = each(player.goal)
    return {
        "start": player.start(),
        "renew": jax.vmap(player.renew)(latents),
        "policy": policy,  # [latent, row, action]
        "advance": advance,
        "goal": goal,
        "draws": _draws(env, player, steps.before),
    }


def _draws(env, player, timesteps):
    """Latent state (by turns), declared policy and drawn actions of each row."""
    latent = np.arange(NUM_ROWS) % player.num_latents
    many = jax.tree.map(lambda x: jnp.repeat(x, DRAWS, axis=0), timesteps)
    algorithm = scripted(player, env, (0,))
    memory = dataclasses.replace(
        algorithm.remember(NUM_ROWS * DRAWS),
        upcoming=jax.nn.one_hot(np.repeat(latent, DRAWS)[:, None], player.num_latents),
    )
    memory, decision = algorithm.act(algorithm.init(None), memory, many, None, jax.random.key(1))
    drawn = jax.nn.one_hot(decision.action[:, 0], env.num_actions).reshape(NUM_ROWS, DRAWS, -1)
    return {
        "latent": memory.latent.reshape(NUM_ROWS, DRAWS),
        "policy": decision.policy.reshape(NUM_ROWS, DRAWS, -1),
        "log_prob": decision.log_prob.reshape(NUM_ROWS, DRAWS),
        "counts": jnp.sum(drawn, axis=1),
    }


@pytest.mark.sampled(15)
@pytest.mark.parametrize(("game", "name"), EVERY)
def test_probabilities_add_up_and_are_0_on_illegal_actions(game, name):
    say = told(game)[name]
    for chances in ("start", "renew", "policy", "advance"):
        assert_allclose(say[chances].sum(axis=-1), 1, atol=1e-6)
        assert (say[chances] >= 0).all()
    illegal = ~moments(game).before.legal[:, 0]
    assert (say["policy"][:, illegal] == 0).all()
    assert ((say["goal"] >= -1) & (say["goal"] < len(GAMES[game].goals.names))).all()


@pytest.mark.parametrize(("game", "name"), EVERY)
def test_twenty_thousand_draws_match_the_declared_distribution(game, name):
    say = told(game)[name]
    draws = say["draws"]
    latent = np.arange(NUM_ROWS) % len(say["start"])
    declared = say["policy"][latent, np.arange(NUM_ROWS)]  # [row, action]
    assert (draws["latent"] == latent[:, None]).all()
    assert_allclose(draws["policy"], np.repeat(declared[:, None], DRAWS, axis=1), atol=1e-6)
    counts, possible = draws["counts"], declared > 0
    assert (counts[~possible] == 0).all()
    expected = DRAWS * declared[possible]
    statistic = ((counts[possible] - expected) ** 2 / expected).sum()
    freedom = possible.sum() - NUM_ROWS
    assert freedom == 0 or chi2.sf(statistic, freedom) > 0.001
    spread = np.where(possible, counts * np.log(np.where(possible, declared, 1)), 0).sum()
    assert_allclose(draws["log_prob"].sum(dtype=np.float64), spread, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("game", "name"), EVERY)
def test_it_is_described_in_a_line(game, name):
    assert describe(players_of(GAMES[game])[name]).endswith(".")
    assert made(game, name).name == name


def test_every_game_with_players_is_tested():
    assert set(PLAYERS) == set(GAMES)
