"""Loss terms, as sums over the rows that count, and how a loss is put together from them. `fit` divides by
how many rows there are."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.types import Metrics, PyTree, pytree

NEVER = -1e9  # logit of an illegal action
TRIED, FALLS = 1e-3, 0.1  # a step on one term alone: of the weights' length, or of the term's value at most
STRIDES = (1.0, 0.25)  # of that step: what a clip makes of a longer one is less after a shorter one
WHOLE = "the loss"
Terms = dict[str, Array]  # by name: sums, or one number for each row


def weighed(terms: Terms, weights: dict[str, float]) -> Array:
    """The loss: every term that is there, times its weight; what has no weight is left out."""
    return jnp.asarray(sum(weight * terms[name] for name, weight in weights.items() if name in terms))


@pytree
class ToldTerms:
    """A loss and what it is made of, for who audits it; slopes are in all weights, one after the other."""

    loss: Float[Array, "*group"]
    loss_slope: Float[Array, "*group weight"]
    values: dict[str, Float[Array, "*group"]]
    slopes: dict[str, Float[Array, "*group weight"]]
    fell: dict[str, Float[Array, "*group stride"]]  # by how much each is less after a step down its own slope
    falls: dict[str, Float[Array, "*group stride"]]  # by how much it should be


def told_terms(loss: Callable, terms: Callable, weights: PyTree, batch: PyTree) -> ToldTerms:
    """Of `loss(weights, batch) -> sum, figures`, which descends, and `terms(weights, batch) -> Terms`."""

    def all_of(weights: PyTree) -> tuple[Terms, Terms]:
        found = {WHOLE: loss(weights, batch)[0]} | terms(weights, batch)
        return found, found

    slopes, values = jax.jacrev(all_of, has_aux=True)(weights)
    steep = {name: jnp.linalg.norm(_in_a_row(slope)) for name, slope in slopes.items()}
    length = TRIED * jnp.linalg.norm(_in_a_row(weights))
    falls = {name: jnp.minimum(length * steep[name], FALLS * jnp.abs(x)) for name, x in values.items()}

    def stepped(slope: PyTree, fall: Array) -> Terms:
        by = fall / jnp.maximum(jnp.sum(_in_a_row(slope) ** 2), 1e-30)
        return terms(jax.tree.map(lambda w, x: w - by * x, weights, slope), batch)

    names = [name for name in values if name != WHOLE]
    slope_of = jax.tree.map(lambda *x: jnp.stack(x), *[slopes[name] for name in names])
    fall_of = jnp.stack([falls[name] for name in names])

    def fallen(stride: float) -> Terms:
        down, up = (jax.vmap(stepped)(slope_of, way * stride * fall_of) for way in (0.5, -0.5))
        return {name: up[name][place] - down[name][place] for place, name in enumerate(names)}

    strides = [fallen(stride) for stride in STRIDES]  # to either side, so that curves cancel out
    return ToldTerms(
        loss=values[WHOLE],
        loss_slope=_in_a_row(slopes[WHOLE]),
        values={name: values[name] for name in names},
        slopes={name: _in_a_row(slopes[name]) for name in names},
        fell={name: jnp.stack([each[name] for each in strides]) for name in names},
        falls={name: falls[name] * jnp.array(STRIDES) for name in names},
    )


def _in_a_row(tree: PyTree) -> Float[Array, " number"]:
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


@pytree
class PolicyRows:
    """What a policy loss reads, [..., action] or [...]; any leading axes."""

    legal: Bool[Array, "*rows action"]
    action: Int[Array, "*rows"]
    log_prob: Float[Array, "*rows"]  # when it was taken
    advantage: Float[Array, "*rows"]
    counts: Bool[Array, "*rows"]


@pytree
class TaughtRows:
    """Rows that a search decided, and how."""

    is_taught: Bool[Array, "*rows"]
    policy: Float[Array, "*rows action"]  # how often the search went each way


def taught_loss(
    logits: Float[Array, "*rows action"], legal: Bool[Array, "*rows action"], taught: TaughtRows
) -> Float[Array, ""]:
    """Cross-entropy of the search's policy and the network's, as a sum over the rows that were searched."""
    surprise = -jnp.sum(jnp.where(legal, taught.policy * log_policy(logits, legal), 0.0), axis=-1)
    return jnp.sum(jnp.where(taught.is_taught, surprise, 0.0))


def log_policy(
    logits: Float[Array, "*rows action"], legal: Bool[Array, "*rows action"]
) -> Float[Array, "*rows action"]:
    return jax.nn.log_softmax(jnp.where(legal, logits, NEVER), axis=-1)


def clipped_policy_loss(
    logits: Float[Array, "*rows action"], rows: PolicyRows, clip: float, floor: float | None = None
) -> tuple[Float[Array, ""], Float[Array, ""], Metrics]:
    """PPO's surrogate and the entropy: -min(ratio * A, clip(ratio) * A), both as sums.

    With a floor, what a negative advantage costs ends at `floor * A`: a policy that was not the one that
    played may have ratios without bound. kl is the estimator E[(ratio - 1) - log ratio], never negative.
    """
    log_all = log_policy(logits, rows.legal)
    taken = rows.action[..., None] == jnp.arange(logits.shape[-1]).reshape((1,) * rows.action.ndim + (-1,))
    log_ratio = jnp.sum(jnp.where(taken, log_all, 0.0), axis=-1) - rows.log_prob
    ratio = jnp.exp(jnp.where(rows.counts, log_ratio, 0.0))
    bounded = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    surrogate = jnp.minimum(ratio * rows.advantage, bounded * rows.advantage)
    if floor is not None:
        least = floor * rows.advantage
        surrogate = jnp.where(rows.advantage < 0, jnp.maximum(surrogate, least), surrogate)
    entropy = -jnp.sum(jnp.where(rows.legal, jnp.exp(log_all) * log_all, 0.0), axis=-1)

    def add(x: Array) -> Array:
        return jnp.sum(jnp.where(rows.counts, x, 0.0))

    figures = {
        "policy/loss": -add(surrogate),
        "policy/entropy": add(entropy),
        "policy/kl": add(ratio - 1.0 - jnp.where(rows.counts, log_ratio, 0.0)),
        "policy/ratio": add(ratio),
        "policy/clip_share": add(jnp.abs(ratio - 1.0) > clip),
    }
    return figures["policy/loss"], figures["policy/entropy"], figures


def clipped_value_loss(
    value: Float[Array, "*rows"],
    old_value: Float[Array, "*rows"],
    target: Float[Array, "*rows"],
    counts: Bool[Array, "*rows"],
    clip: float | None,
    huber: float | None,
) -> Float[Array, ""]:
    return jnp.sum(jnp.where(counts, value_errors(value, old_value, target, clip, huber), 0.0))


def value_errors(
    value: Float[Array, "*rows"],
    old_value: Float[Array, "*rows"],
    target: Float[Array, "*rows"],
    clip: float | None,
    huber: float | None,
) -> Float[Array, "*rows"]:
    """The worse of the plain error and the error of a prediction kept within `clip` of the old one."""
    error = pointwise_error(value - target, huber)
    if clip is None:
        return error
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    return jnp.maximum(error, pointwise_error(near - target, huber))


def pointwise_error(difference: Float[Array, "*rows"], huber: float | None) -> Float[Array, "*rows"]:
    """Half the square; beyond `huber` it grows in proportion instead."""
    square = 0.5 * difference**2
    if huber is None:
        return square
    size = jnp.abs(difference)
    return jnp.where(size <= huber, square, huber * (size - 0.5 * huber))
