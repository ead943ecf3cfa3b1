"""What the figures of all parts are made of."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

RIDGE = 1e-4  # per row: columns may add up to others, and beside many rows a fixed ridge is rounded away
STEPS = 300  # of a logistic regression
SURE = 0.9  # chance at which one may say that a goal is known


def mean_over(counts: Bool[Array, "*rows"], x: Array) -> Float[Array, ""]:
    """The mean of `x` where it counts; 0 where nothing does."""
    return jnp.sum(jnp.where(counts, x, 0.0)) / jnp.maximum(jnp.sum(counts), 1)


def confusion_table(
    classes: int, told: Int[Array, "*rows"], true: Int[Array, "*rows"], counts: Bool[Array, "*rows"]
) -> Int[Array, "true told"]:
    """How often each class was taken for each, where it counts."""
    pairs = jnp.where(counts, true * classes + told, classes * classes).ravel()
    return jnp.bincount(pairs, length=classes * classes + 1)[:-1].reshape(classes, classes)


def linear_reading(
    inputs: Float[Array, "*rows number"],
    goal: Int[Array, "*rows"],
    counts: Bool[Array, "*rows"],
    is_learned: Bool[Array, "*some"],
    num_goals: int,
) -> Float[Array, ""]:
    """How often a linear reading of `inputs`, fitted where `is_learned`, tells the goal elsewhere. Rows
    without a goal do not count; without inputs it says the commonest."""
    said = jnp.argmax(linear_beliefs(inputs, goal, counts & is_learned, num_goals), axis=-1)
    return mean_over(counts & (goal >= 0) & ~is_learned, said == goal)


def linear_beliefs(
    inputs: Float[Array, "*rows number"],
    goal: Int[Array, "*rows"],
    learned: Bool[Array, "*rows"],
    num_goals: int,
) -> Float[Array, "*rows goal"]:
    """Chances of goals by logistic regression, fitted where `learned` and a goal is known.

    Newton's steps with the largest curvature there can be in the place of the true one (Böhning's bound): it
    is the same for all goals and all steps, so that one small matrix is made and solved."""
    weight = (learned & (goal >= 0)).ravel().astype(jnp.float32)
    rows = _standardised(inputs.reshape(goal.size, -1), weight)
    target = jax.nn.one_hot(goal.ravel(), num_goals)
    count = jnp.maximum(jnp.sum(weight), 1.0)
    curve = 0.5 * (rows * weight[:, None]).T @ rows / count + RIDGE * jnp.eye(rows.shape[1])
    inverse = jnp.linalg.inv(curve)

    def one_step(_, reading: Float[Array, "number goal"]) -> Float[Array, "number goal"]:
        apart = (jax.nn.softmax(rows @ reading, axis=-1) - target) * weight[:, None]
        return reading - inverse @ (rows.T @ apart / count + RIDGE * reading)

    reading = jax.lax.fori_loop(0, STEPS, one_step, jnp.zeros((rows.shape[1], num_goals)))
    return jax.nn.softmax(rows @ reading, axis=-1).reshape(*goal.shape, num_goals)


def _standardised(rows: Float[Array, "row number"], weight: Float[Array, " row"]):
    """Numbers of one size, and a constant behind them."""
    count = jnp.maximum(jnp.sum(weight), 1.0)
    mean = jnp.sum(rows * weight[:, None], axis=0, keepdims=True) / count
    apart = rows - mean
    deviation = jnp.sqrt(jnp.sum(apart**2 * weight[:, None], axis=0, keepdims=True) / count)
    return jnp.concatenate([apart / jnp.maximum(deviation, 1e-6), jnp.ones((len(rows), 1))], axis=-1)


def steps_to_sure(
    chance: Float[Array, "row time agent"], counts: Bool[Array, "row time agent"], judged: Bool[Array, "row"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Over everyone's moves in an episode: after how many of them the true goal's chance is and stays at
    SURE, the median over lives with those who never get there counted as late as can be (infinity if that
    is most); and the share of those."""
    is_sure = (chance >= SURE) | ~counts
    stays = jnp.flip(jnp.cumprod(jnp.flip(is_sure, 1).astype(jnp.int32), 1), 1) == 1
    moves = jnp.cumsum(counts, axis=1) - 1  # made before this one
    first = jnp.min(jnp.where(stays & counts, moves.astype(jnp.float32), jnp.inf), axis=1)
    lives = jnp.any(counts, axis=1) & judged[:, None]
    never = mean_over(lives, jnp.isinf(first))
    return jnp.nanmedian(jnp.where(lives, first, jnp.nan)), never
