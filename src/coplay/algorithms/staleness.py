"""How fast a model ages: by how much more what happens surprises it, some rounds after it last learned.

Model k is what round k made of it. The figure is its cross-entropy on a sample of round k + m, minus that on
the same sample of round k: for m = 1 in every round, and for m = 5, by a copy of the weights, in every fifth.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.training.devices import total
from coplay.types import Metrics, PyTree, pytree

ROUNDS = 5  # after which the copy is judged, and made anew


@pytree
class Age:
    """What is kept of a model from round to round."""

    rounds: Int[Array, "*group"]  # that it has learned from
    last: Float[Array, "*group"]  # its cross-entropy on the last round, once that was learned
    copied: Float[Array, "*group"]  # the same of the copy, on the round that it was made in
    copy: PyTree


def unborn(weights: PyTree) -> Age:
    """Before anything is learned; nothing is known of the copy, so nothing will be said of it."""
    unknown = jnp.float32(jnp.nan)
    return Age(jnp.int32(0), unknown, unknown, jax.tree.map(jnp.zeros_like, weights))


def aged(name: str, surprise: Callable, age: Age, before: PyTree, after: PyTree) -> tuple[Age, Metrics]:
    """With one round more. `surprise` is the cross-entropy of weights on a sample of it, one value for every
    group of seats; `before` and `after` are weights as the round found them and left them."""
    surprise = jax.jit(surprise, inline=True)  # traced once for all three
    since = jnp.max(age.rounds)  # who came later goes by who has been here longest
    is_due = since % ROUNDS == 0
    unknown = jnp.full_like(age.copied, jnp.nan)
    older = jax.lax.cond(is_due, lambda: surprise(age.copy) - age.copied, lambda: unknown)
    figures = {name: surprise(before) - age.last, f"{name}_{ROUNDS}": older}
    last = surprise(after)
    copied, copy = jax.tree.map(
        lambda new, old: jnp.where(is_due, new, old), (last, after), (age.copied, age.copy)
    )
    return Age(age.rounds + 1, last, copied, copy), figures


def mean_surprise(
    surprise: Float[Array, "*rows"], counts: Bool[Array, "*rows"], axes: tuple[int, ...]
) -> Array:
    """Over rows that count, on all devices; NaN where none does."""
    added, rows = total(
        (jnp.sum(jnp.where(counts, surprise, 0.0), axes), jnp.sum(counts, axes, dtype=jnp.float32))
    )
    return jnp.where(rows > 0, added / jnp.maximum(rows, 1.0), jnp.nan)
