"""What the figures of all parts are made of."""

import jax.numpy as jnp
import numpy as np
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


def rarity(classes: Int[np.ndarray, " row"], num_classes: int, most: float) -> Float[np.ndarray, " class"]:
    """How much a row counts by its class: the root of how rare that is, up to a limit, 1 on average."""
    share = np.bincount(classes, minlength=num_classes) / len(classes)
    times = np.minimum(most, np.sqrt(share.max() / np.maximum(share, 1e-9)))
    return (times / (times * share).sum()).astype(np.float32)
