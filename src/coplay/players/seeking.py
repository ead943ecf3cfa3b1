"""Going somewhere on a grid: to the nearest target by path length, every tie broken uniformly."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.envs.grid import MOVES, STAY
from coplay.envs.walls import UNREACHABLE

NUM_MOVES = len(MOVES)


def seek(
    lengths: Int[Array, "place cell"],
    target: Bool[Array, " cell"],
    legal: Bool[Array, " action"],
    at_target: int | Int[Array, ""],
) -> Float[Array, " action"]:
    """Uniform over the nearest targets, then over legal moves that shorten the path to the one drawn.

    Who stands on it plays `at_target`. Where that is illegal, walls block every shorter path or there
    is no target at all, the player stays.
    """
    here = lengths[0]
    nearest = target & (here == jnp.min(jnp.where(target, here, UNREACHABLE)))
    shortens = (lengths[1:] < here[None, :]) & legal[:NUM_MOVES, None]
    count = jnp.sum(shortens, axis=0, dtype=jnp.int32)
    # Twelfths of a target's share, so that all sums are exact: one to four moves may share it.
    share = jnp.where(nearest, jnp.asarray(_TWELFTHS)[count], 0)
    moves = jnp.sum(jnp.where(shortens, share[None, :], 0), axis=1)
    actions = jnp.arange(legal.shape[0])
    deed = actions == at_target
    acting = 12 * jnp.sum(nearest & (here == 0)) * jnp.any(deed & legal)
    whole = jnp.maximum(12 * jnp.sum(nearest), 12)
    staying = whole - jnp.sum(moves) - acting
    padded = jnp.concatenate([moves, jnp.zeros(legal.shape[0] - NUM_MOVES, moves.dtype)])
    return (padded + acting * deed + staying * (actions == STAY)) / whole


_TWELFTHS = np.array([0, 12, 6, 4, 3], np.int32)  # by the number of moves that share a target
