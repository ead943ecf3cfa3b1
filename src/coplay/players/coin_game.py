"""Scripted coin takers: one who leaves the other's coins alone, one who takes all, one who pays back."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from coplay.envs import grid, paths
from coplay.players import seeking
from coplay.players.scripted import ScriptedPlayer, certain, machine, one_latent
from coplay.types import Environment

OWN, ANY = 0, 1  # places in env.goals


def own_coin(env: Environment) -> ScriptedPlayer:
    """Seeks its own coin and stays while the other's lies there."""
    take = _taker(env)
    return one_latent(
        "own_coin",
        policy=lambda latent, row, legal: take(row, legal, False),
        goal=lambda latent, row: jnp.int32(OWN),
    )


def any_coin(env: Environment) -> ScriptedPlayer:
    """Seeks every coin, whoever owns it."""
    take = _taker(env)
    return one_latent(
        "any_coin",
        policy=lambda latent, row, legal: take(row, legal, True),
        goal=lambda latent, row: jnp.int32(ANY),
    )


def tit_for_tat(env: Environment) -> ScriptedPlayer:
    """Plays own_coin; once the other takes its coin, any_coin until it has taken one of the other's."""
    take = _taker(env)

    def advance(latent, before, after):
        was, now = env.split(before), env.split(after)
        robbed = jnp.any(was["own_coin"] & now["others"][0])  # a coin is taken by entering its cell
        paid_back = jnp.any(was["other_coin"] & now["self"])
        return certain(jnp.where(latent == OWN, robbed, ~paid_back).astype(jnp.int32), 2)

    return machine(
        "tit_for_tat",
        start=[1.0, 0.0],
        policy=lambda latent, row, legal: take(row, legal, latent == ANY),
        advance=advance,
        goal=lambda latent, row: latent,
    )


def _taker(env: Environment) -> Callable:
    """How to take: observation row, legal row, wants the other's coin too -> action probabilities."""
    path_lengths = paths.on_torus(env.options.size)

    def take(row, legal: Bool[Array, " action"], wants_any) -> Float[Array, " action"]:
        seen = env.split(row)
        coin = seen["own_coin"] | (seen["other_coin"] & wants_any)
        lengths = path_lengths(None, paths.cell_of(seen["self"]))
        return seeking.seek(lengths, coin.reshape(-1), legal, grid.STAY)

    return take
