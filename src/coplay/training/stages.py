"""How learning is put together: `fit` descends a loss, `in_order` runs stages one after the other.

`fit` is the one place that shuffles, takes minibatches and descends. It works on columns: a batch's
leaves are [column, time, ...], a column being one stretch of one environment, because minibatches cut
columns and keep time whole. The gradient of a minibatch is summed over chunks of a few hundred rows,
so that activations stay in the cache; that is worth a third of the time on a CPU.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from coplay.training.devices import total
from coplay.types import Key, Metrics, Params, PyTree, Stage, Trajectory, stream


def in_order(stages: dict[str, Stage]) -> Stage:
    """Each stage in turn, with a learner and a random stream of its own name."""

    def init(params: Params) -> dict[str, PyTree]:
        return {name: stage.init(params) for name, stage in stages.items()}

    def update(params: Params, learner: dict[str, PyTree], trajectory: Trajectory, key: Key):
        metrics: Metrics = {}
        learner = dict(learner)
        for name, stage in stages.items():
            params, learner[name], more = stage.update(params, learner[name], trajectory, stream(key, name))
            metrics |= more
        return params, learner, metrics

    return Stage(init, update)


no_learning = Stage(
    init=lambda params: {}, update=lambda params, learner, trajectory, key: (params, learner, {})
)


class Fit(NamedTuple):
    """How often a batch is gone over, and in which pieces."""

    epochs: int
    minibatches: int
    chunk_rows: int


def fit(
    loss: Callable[[Params, PyTree], tuple[jax.Array, Metrics]],
    optimiser: optax.GradientTransformation,
    plan: Fit,
) -> Callable:
    """A function (weights, optimiser state, batch, count, key) -> weights, state, metrics.

    Weights are a dict of networks by name. `loss` gives sums over a chunk's counted rows: the loss itself,
    and figures by name. Both are divided by the number of counted rows of the whole minibatch, over all
    devices; `count(chunk)` tells it.
    """

    def descend(weights, optimiser_state, batch, count, key):
        minibatches = _cut(batch, plan, key)

        def one_minibatch(carry, minibatch):
            weights, optimiser_state = carry
            gradient, sums = _summed_gradient(loss, count, weights, minibatch)
            updates, optimiser_state = optimiser.update(gradient, optimiser_state, weights)
            sums |= {f"grad_norm/{name}": optax.global_norm(part) for name, part in gradient.items()}
            return (optax.apply_updates(weights, updates), optimiser_state), sums

        def one_epoch(carry, _):
            carry, sums = jax.lax.scan(one_minibatch, carry, minibatches)
            return carry, jax.tree.map(jnp.mean, sums)

        carry = (weights, optimiser_state)
        (weights, optimiser_state), sums = jax.lax.scan(one_epoch, carry, length=plan.epochs)
        return weights, optimiser_state, jax.tree.map(jnp.mean, sums)

    return descend


def _cut(batch: PyTree, plan: Fit, key: Key) -> PyTree:
    """Columns in a drawn order, as [minibatch, chunk, column, time, ...]."""
    columns, time = jax.tree.leaves(batch)[0].shape[:2]
    per_minibatch = columns // plan.minibatches
    per_chunk = chunk_columns(per_minibatch, time, plan.chunk_rows)
    order = jax.random.permutation(key, columns)
    shape = (plan.minibatches, per_minibatch // per_chunk, per_chunk)
    return jax.tree.map(lambda x: jnp.take(x, order, axis=0).reshape(*shape, *x.shape[1:]), batch)


def chunk_columns(columns: int, rows_per_column: int, most_rows: int) -> int:
    """The largest divisor of `columns` whose rows stay within `most_rows` (at least one column)."""
    most = max(1, most_rows // rows_per_column)
    return max(divisor for divisor in range(1, columns + 1) if columns % divisor == 0 and divisor <= most)


def _summed_gradient(loss, count, weights, minibatch):
    """Gradient and figures of a whole minibatch, averaged over its counted rows on all devices."""

    def one_chunk(chunk):
        (_, figures), gradient = jax.value_and_grad(loss, has_aux=True)(weights, chunk)
        return gradient, figures, count(chunk)

    shapes = jax.eval_shape(one_chunk, jax.tree.map(lambda x: x[0], minibatch))
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    sums, _ = jax.lax.scan(
        lambda sums, chunk: (jax.tree.map(jnp.add, sums, one_chunk(chunk)), None), nothing, minibatch
    )
    gradient, figures, counted = total(sums)
    counted = jnp.maximum(counted, 1.0)
    return jax.tree.map(lambda x: x / counted, (gradient, figures))
