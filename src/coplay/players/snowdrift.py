"""Scripted road users: those who clear the snow, those who let others do it, and those who do both."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.envs import paths
from coplay.envs.grid import STAY
from coplay.envs.snowdrift import NUM_ACTIONS, REMOVE
from coplay.errors import require
from coplay.players import seeking
from coplay.players.scripted import ScriptedPlayer, certain, machine, one_latent, uniform
from coplay.types import Environment


def cleaner(env: Environment) -> ScriptedPlayer:
    """Seeks the nearest drift and removes it."""
    act = _road_user(env)
    return one_latent(
        "cleaner",
        policy=lambda latent, row, legal: act(row, legal, True),
        goal=lambda latent, row: _goal(env, True),
    )


def exploiter(env: Environment) -> ScriptedPlayer:
    """Moves and stays at random among what is legal, and never removes a drift."""
    act = _road_user(env)
    return one_latent(
        "exploiter",
        policy=lambda latent, row, legal: act(row, legal, False),
        goal=lambda latent, row: _goal(env, False),
    )


def tired_cleaner(env: Environment, m: int = 2) -> ScriptedPlayer:
    """A cleaner for m removals in an episode, then an exploiter."""
    require(m >= 1, f"m={m} must be at least 1")
    act = _road_user(env)

    def advance(latent, before, after):
        removed = env.split(after)["previous"][0, REMOVE] > 0.5
        return certain(jnp.minimum(latent + removed.astype(jnp.int32), m), m + 1)

    return machine(
        "tired_cleaner",
        start=[1.0] + [0.0] * m,
        policy=lambda latent, row, legal: act(row, legal, latent < m),
        advance=advance,
        goal=lambda latent, row: _goal(env, latent < m),
    )


def fickle(env: Environment, switch: float = 0.05) -> ScriptedPlayer:
    """Cleaner or exploiter by a fair draw, changing between them with chance 0.05 per step."""
    require(0 <= switch <= 1, f"switch={switch} must lie between 0 and 1")
    act = _road_user(env)
    chances = np.array([[1 - switch, switch], [switch, 1 - switch]], np.float32)
    return machine(
        "fickle",
        start=[0.5, 0.5],
        policy=lambda latent, row, legal: act(row, legal, latent == 0),
        advance=lambda latent, before, after: jnp.asarray(chances)[latent],
        goal=lambda latent, row: _goal(env, latent == 0),
    )


def _road_user(env: Environment) -> Callable:
    """How to use the road: observation row, legal row, cleans it -> action probabilities."""
    path_lengths = paths.on_open_board(env.options.size)

    def act(row, legal: Bool[Array, " action"], cleans) -> Float[Array, " action"]:
        seen = env.split(row)
        lengths = path_lengths(seen["walls"], paths.cell_of(seen["self"]))
        cleaning = seeking.seek(lengths, seen["drifts"].reshape(-1), legal, REMOVE)
        strolling = uniform(legal & (jnp.arange(NUM_ACTIONS) <= STAY))
        return jnp.where(cleans, cleaning, strolling)

    return act


def _goal(env: Environment, cleans) -> Int[Array, ""]:
    # A row shows drifts without their numbers, so which one a cleaner is after has no place in env.goals.
    return jnp.where(cleans, -1, env.goals.names.index("no more"))
