"""Rare actions count more while a model of a player learns, and its chances stay true ones.

Rows that are weighted by their action are rows of another player, who takes an action w times as often. So
the model's chances are moved by w before they are judged by such rows: what they learn to be without it is
how the player itself acts.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

MOST = 5.0  # how many times as much as the commonest action the rarest may count


def rarity_weights(share: Float[Array, " kind"], most: float) -> Float[Array, " kind"]:
    """By how often each kind occurs: the root of how rare that is, up to `most`, 1 on average; 1 for each
    where nothing has occurred."""
    times = jnp.minimum(most, jnp.sqrt(jnp.max(share) / jnp.maximum(share, 1e-9)))
    mean = jnp.sum(times * share)
    return jnp.where(mean > 0, times / jnp.maximum(mean, 1e-9), 1.0)


def balanced_surprise(
    told: Float[Array, "*rows action"], action: Int[Array, "*rows"], weight: Float[Array, " action"]
) -> Float[Array, "*rows"]:
    """At every action, in nats times its weight; `told` are log chances."""
    moved = told + jnp.log(weight).reshape((1,) * (told.ndim - 1) + (-1,))
    log_chance = jnp.take_along_axis(jax.nn.log_softmax(moved, axis=-1), action[..., None], axis=-1)
    return -log_chance[..., 0] * weight[action]
