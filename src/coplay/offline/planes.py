"""A board as planes of chances, one for each player and kind of thing, and how far what was foretold is off.

Squared errors are of cells, whose chances lie between 0 and 1: a signal's peak is 1, and its ratio to the
noise (PSNR) is -10 log10 of the error, in decibels; 120 where nothing is off.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coplay.nets.world import Foreseen, World
from coplay.nets.world_fit import Moves
from coplay.types import Board


def plane_errors(world: World, told: Foreseen, rows: Moves) -> dict[str, Array]:
    """Squared error of the chances of every cell, by channel and over all, beside "nothing changes"."""
    true = true_planes(world, rows.after)
    error, nothing = (
        (guess - true) ** 2 for guess in (planes(world, told, rows.before), true_planes(world, rows.before))
    )
    by_channel, mean = jnp.mean(error, axis=(0, 2)), jnp.mean(error)
    return {
        **{f"mse/{name}": by_channel[place] for place, name in enumerate(channel_names(world))},
        "mse": mean,
        "psnr/pooled": decibel(mean),
        "psnr/mean": jnp.mean(decibel(jnp.mean(error, axis=(1, 2)))),
        "skill": 1 - mean / jnp.mean(nothing),
    }


def planes(world: World, told: Foreseen, board: Board) -> Float[Array, "row channel cell"]:
    """Where everybody and everything is foretold to be, as chances of every cell, unrounded."""
    cells = world.entities.num_cells
    target = board.players[..., None] + jnp.asarray(world.shift)[None, None]
    chance = jnp.where(board.here[..., None], jnp.exp(told.step[..., :-1]), 0.0)
    players = jnp.sum(jax.nn.one_hot(target, cells) * chance[..., None], axis=-2)
    stays = jnp.where(board.there, jnp.exp(told.there[..., 1]), 0.0)
    return _channels(world, players, jax.nn.one_hot(board.things, cells) * stays[..., None])


def true_planes(world: World, board: Board) -> Float[Array, "row channel cell"]:
    cells = world.entities.num_cells
    players = jax.nn.one_hot(board.players, cells) * board.here[..., None]
    return _channels(world, players, jax.nn.one_hot(board.things, cells) * board.there[..., None])


def _channels(world: World, players: Float[Array, "row agent cell"], things: Float[Array, "row thing cell"]):
    """One plane for each player, one for each kind of thing."""
    kind_of = np.array(world.entities.kind_of)
    kinds = [jnp.sum(things[:, kind_of == kind], axis=1) for kind in range(len(world.entities.kinds))]
    return jnp.concatenate([players, jnp.stack(kinds, axis=1)], axis=1)


def channel_names(world: World) -> list[str]:
    return [f"player {seat}" for seat in range(world.num_agents)] + list(world.entities.kinds)


def decibel(error: Float[Array, "*row"]) -> Float[Array, "*row"]:
    return -10 * jnp.log10(jnp.maximum(error, 1e-12))
