"""What is kept of a co-player from one episode to the next: a running mean of the subgoals that were read.

Readings of an episode are averaged over the steps at which the co-player was in the game; episodes fade by
FADES each. Told are the mean over what has been met so far, and how much that is: nothing before the first
episode has ended.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from coplay.types import pytree

FADES = 0.9  # weight of what was known, when another episode is added
EXTRA = 1  # numbers told beside the mean: how much is known


@pytree
class Kept:
    """[env, seat, other, ...]."""

    mean: Float[Array, "*pair number"]  # of episodes, weighted as they fade
    weight: Float[Array, "*pair"]  # of all of them together; nears 1
    added: Float[Array, "*pair number"]  # in this episode
    steps: Float[Array, "*pair"]


def nothing_kept(pairs: tuple[int, ...], size: int) -> Kept:
    return Kept(
        mean=jnp.zeros((*pairs, size)),
        weight=jnp.zeros(pairs),
        added=jnp.zeros((*pairs, size)),
        steps=jnp.zeros(pairs),
    )


def another_episode(kept: Kept, first: Bool[Array, " env"]) -> Kept:
    """Where an episode begins, the one before is put to the others; who was never seen adds nothing."""
    begins = first.reshape(-1, *(1,) * (kept.steps.ndim - 1))
    is_more = begins & (kept.steps > 0)
    lately = kept.added / jnp.maximum(kept.steps, 1.0)[..., None]
    return Kept(
        mean=jnp.where(is_more[..., None], FADES * kept.mean + (1.0 - FADES) * lately, kept.mean),
        weight=jnp.where(is_more, FADES * kept.weight + (1.0 - FADES), kept.weight),
        added=jnp.where(begins[..., None], 0.0, kept.added),
        steps=jnp.where(begins, 0.0, kept.steps),
    )


def told(kept: Kept) -> Float[Array, "*pair number"]:
    """The mean, and how much it rests on."""
    mean = kept.mean / jnp.maximum(kept.weight, 1e-6)[..., None]
    return jnp.concatenate([mean, kept.weight[..., None]], axis=-1)


def with_reading(kept: Kept, reading: Float[Array, "*pair number"], is_here: Bool[Array, "*pair"]) -> Kept:
    """One step more of whoever is in the game."""
    return dataclasses.replace(
        kept,
        added=kept.added + jnp.where(is_here[..., None], reading, 0.0),
        steps=kept.steps + is_here,
    )
