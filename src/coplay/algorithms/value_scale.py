"""A running scale of returns, so that a critic always predicts numbers near one.

It is kept with the critic's weights ("scale" beside "policy" and "critic"), for they mean nothing without it.

Mean and mean square decay by 0.99 an update and are corrected for their start at zero; advantages are
computed from de-normalised values, so the scale changes the critic's task and nothing else.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from coplay.training.devices import masked_mean
from coplay.types import PyTree, pytree

DECAY = 0.99
SMALLEST = 1e-2  # standard deviation


@pytree
class ValueScale:
    mean: Float[Array, "*group"]
    mean_square: Float[Array, "*group"]
    weight: Float[Array, "*group"]  # how much of the averages is data; 0 at the start


def start() -> ValueScale:
    return ValueScale(mean=jnp.zeros(()), mean_square=jnp.zeros(()), weight=jnp.zeros(()))


def scale_of(weights: PyTree) -> ValueScale:
    """What a group's critic predicts in; the game's own scale for those that keep none."""
    return weights.get("scale", start())


def updated(scale: ValueScale, returns: Float[Array, "*rows"], counts: Bool[Array, "*rows"]) -> ValueScale:
    axes = tuple(range(returns.ndim))
    return ValueScale(
        mean=DECAY * scale.mean + (1 - DECAY) * masked_mean(returns, counts, axes),
        mean_square=DECAY * scale.mean_square + (1 - DECAY) * masked_mean(returns**2, counts, axes),
        weight=DECAY * scale.weight + (1 - DECAY),
    )


def mean_and_deviation(scale: ValueScale) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """0 and 1 before any data."""
    known = scale.weight > 0
    weight = jnp.where(known, scale.weight, 1.0)
    mean = scale.mean / weight
    variance = jnp.maximum(scale.mean_square / weight - mean**2, SMALLEST**2)
    return jnp.where(known, mean, 0.0), jnp.where(known, jnp.sqrt(variance), 1.0)


def normalised(scale: ValueScale, x: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
    mean, deviation = mean_and_deviation(scale)
    return (x - mean) / deviation


def denormalised(scale: ValueScale, x: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
    mean, deviation = mean_and_deviation(scale)
    return x * deviation + mean
