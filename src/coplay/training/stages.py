"""How learning is put together: `fit` descends a loss, `in_order` runs stages one after the other.

`fit` is the one place that shuffles, takes minibatches and descends. It works on columns: a batch's
leaves are [column, time, ...], a column being one stretch of one environment, because minibatches cut
columns and keep time whole. Columns are shuffled once per round, and every epoch goes over the same
minibatches. The gradient of a minibatch is summed over chunks of a few hundred rows,
so that activations stay in the cache; that is worth a third of the time on a CPU.
"""

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from coplay.taps import tap
from coplay.training.devices import total
from coplay.types import Key, Metrics, Params, PyTree, Stage, Trajectory, pytree, stream


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


def silent(stage: Stage) -> Stage:
    """The same, without figures."""
    return stage._replace(update=lambda *arguments: (*stage.update(*arguments)[:2], {}))


class Fit(NamedTuple):
    """How often a batch is gone over, and in which pieces."""

    epochs: int
    minibatches: int  # at most: as many as cut the columns evenly
    chunk_rows: int
    goes_on: Callable[[Metrics], jax.Array] | None = None  # figures of a whole epoch -> is another one begun?


DESCENT = "fit/"  # how names begin of taps that tell a descent, ended by the names of the networks it moves


class Descent(NamedTuple):
    """What one call of `fit`'s function goes over. Plain numbers, which may leave any loop and any map."""

    epochs: int
    minibatches: int
    chunk_rows: int
    columns: int
    rows: int  # of each column


def descent_name(networks: Iterable[str]) -> str:
    return DESCENT + "+".join(sorted(networks))


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
        columns, rows = jax.tree.leaves(batch)[0].shape[:2]
        tap(descent_name(weights), lambda: Descent(*plan[:3], columns, rows))
        chunks, minibatches, per_minibatch = _cut(batch, plan, key)

        def one_minibatch(carry, index):
            weights, optimiser_state = carry
            first = index * per_minibatch
            gradient, sums = _summed_gradient(loss, count, weights, chunks, first, per_minibatch)
            updates, optimiser_state = optimiser.update(gradient, optimiser_state, weights)
            sums |= {f"grad_norm/{name}": optax.global_norm(part) for name, part in gradient.items()}
            return (optax.apply_updates(weights, updates), optimiser_state), sums

        if plan.goes_on:
            return _until(plan.goes_on, one_minibatch, (weights, optimiser_state), minibatches, plan.epochs)
        indices = jnp.tile(jnp.arange(minibatches), plan.epochs)
        (weights, optimiser_state), sums = jax.lax.scan(one_minibatch, (weights, optimiser_state), indices)
        return weights, optimiser_state, jax.tree.map(jnp.mean, sums)

    return descend


def _until(goes_on: Callable, one_minibatch: Callable, start: tuple, minibatches: int, epochs: int):
    """The same, with no further epoch once one's figures say so; figures are of the epochs that counted."""

    def one_epoch(carry, _):
        now, going = carry
        after, sums = jax.lax.scan(one_minibatch, now, jnp.arange(minibatches))
        sums = jax.tree.map(jnp.mean, sums)
        now = jax.tree.map(lambda new, old: jnp.where(going, new, old), after, now)
        return (now, going & goes_on(sums)), (sums, going)

    (now, _), (sums, counted) = jax.lax.scan(one_epoch, (start, jnp.bool_(True)), None, length=epochs)
    share = counted / jnp.sum(counted)
    figures = jax.tree.map(lambda x: jnp.sum(jnp.where(counted, x, 0.0) * share), sums)
    return *now, figures | {"epochs": jnp.sum(counted, dtype=jnp.float32)}


def _cut(batch: PyTree, plan: Fit, key: Key) -> tuple[PyTree, int, int]:
    """Columns in a drawn order, as [chunk, column, time, ...]; how many minibatches, and chunks in each.

    Chunks are later read by their number, which is the same for every agent: scanning over them instead
    would make a mapped program turn the whole batch round once per minibatch.
    """
    columns, time = jax.tree.leaves(batch)[0].shape[:2]
    minibatches = _largest_divisor(columns, plan.minibatches)
    per_minibatch = columns // minibatches
    per_chunk = chunk_columns(per_minibatch, time, plan.chunk_rows)
    order = jax.random.permutation(key, columns)
    shape = (columns // per_chunk, per_chunk)
    chunks = jax.tree.map(lambda x: jnp.take(x, order, axis=0).reshape(*shape, *x.shape[1:]), batch)
    return chunks, minibatches, per_minibatch // per_chunk


def chunk_columns(columns: int, rows_per_column: int, most_rows: int) -> int:
    """The largest divisor of `columns` whose rows stay within `most_rows` (at least one column)."""
    return _largest_divisor(columns, max(1, most_rows // rows_per_column))


def _largest_divisor(number: int, most: int) -> int:
    return max(divisor for divisor in range(1, most + 1) if number % divisor == 0)


def _summed_gradient(loss, count, weights, chunks, first, number):
    """Gradient and figures of `number` chunks from `first` on, averaged over counted rows on all devices."""

    @functools.partial(jax.jit, inline=True)  # traced once, though asked for its shapes before it is summed
    def one_chunk(index):
        chunk = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, index, keepdims=False), chunks)
        (_, figures), gradient = jax.value_and_grad(loss, has_aux=True)(weights, chunk)
        return gradient, figures, count(chunk)

    def add(sums, index):
        return jax.tree.map(jnp.add, sums, one_chunk(index)), None

    nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(one_chunk, first))
    sums, _ = jax.lax.scan(add, nothing, first + jnp.arange(number))
    gradient, figures, counted = total(sums)
    counted = jnp.maximum(counted, 1.0)
    return jax.tree.map(lambda x: x / counted, (gradient, figures))


def on(name: str, stage: Stage) -> Stage:
    """A stage that trains one part of the weights, by its name."""

    def update(params: dict[str, Params], learner: PyTree, trajectory: Trajectory, key: Key):
        part, learner, metrics = stage.update(params[name], learner, trajectory, key)
        return params | {name: part}, learner, metrics

    return Stage(lambda params: stage.init(params[name]), update)


@pytree
class PerEnv:
    """Learner state that belongs to single environments, [env, ...]: it is split over devices with them."""

    per_env: PyTree
