"""What the figures of all parts are made of."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def mean_over(counts: Bool[Array, "*rows"], x: Array) -> Float[Array, ""]:
    """The mean of `x` where it counts; 0 where nothing does."""
    return jnp.sum(jnp.where(counts, x, 0.0)) / jnp.maximum(jnp.sum(counts), 1)


def confusion_table(
    classes: int, told: Int[Array, "*rows"], true: Int[Array, "*rows"], counts: Bool[Array, "*rows"]
) -> Int[Array, "true told"]:
    """How often each class was taken for each, where it counts."""
    pairs = jnp.where(counts, true * classes + told, classes * classes).ravel()
    return jnp.bincount(pairs, length=classes * classes + 1)[:-1].reshape(classes, classes)
