"""What the figures of all parts are made of."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

RIDGE = 1e-4  # per row: columns may add up to others, and beside many rows a fixed ridge is rounded away


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


def linear_reading(
    inputs: Float[Array, "*rows number"],
    goal: Int[Array, "*rows"],
    counts: Bool[Array, "*rows"],
    is_learned: Bool[Array, "*some"],
    num_goals: int,
) -> Float[Array, ""]:
    """How often a linear reading of `inputs`, fitted by least squares where `is_learned`, tells the goal
    elsewhere. Rows without a goal do not count; without inputs it says the commonest."""
    has_goal = counts & (goal >= 0)
    inputs = jnp.concatenate([inputs, jnp.ones_like(goal, jnp.float32)[..., None]], axis=-1)
    weight = (has_goal & is_learned)[..., None]
    flat = (inputs * weight).reshape(-1, inputs.shape[-1])
    target = (jax.nn.one_hot(goal, num_goals) * weight).reshape(-1, num_goals)
    gram = flat.T @ flat + RIDGE * jnp.maximum(jnp.sum(weight), 1) * jnp.eye(flat.shape[-1])
    said = jnp.argmax(inputs @ jnp.linalg.solve(gram, flat.T @ target), axis=-1)
    return mean_over(has_goal & ~is_learned, said == goal)
