"""How a part is trained from recorded play: epochs over rows, a fifth of the episodes held out whole.

A part is several members trained side by side, each with weights, an order of rows and a choice of episodes
of its own. Training stops early once the held-out loss has not fallen by a hundredth for some epochs.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from coplay.errors import require
from coplay.types import Key, PyTree, stream


@dataclasses.dataclass(frozen=True)
class Training:
    epochs: int = 10  # at most
    batch: int | None = None  # rows in a step; none: as the part has it
    learning_rate: float = 3e-3  # falls to 0 along a cosine
    held_out: float = 0.2  # share of the episodes, whole
    patience: int = 5  # epochs without a gain of a hundredth, then it stops
    max_grad_norm: float = 10.0  # of all that shapes a part; what only reads it is clipped by itself
    seed: int = 0

    def __post_init__(self):
        require(self.epochs >= 1, f"epochs={self.epochs} must be at least 1")
        require(self.batch is None or self.batch >= 1, f"batch={self.batch} must be at least 1")
        require(self.learning_rate > 0, f"learning_rate={self.learning_rate} must be above 0")
        require(self.max_grad_norm > 0, f"max_grad_norm={self.max_grad_norm} must be above 0")
        require(0 <= self.seed < 2**31, f"seed={self.seed} must lie between 0 and {2**31 - 1}")
        require(0 < self.held_out < 1, f"held_out={self.held_out} must lie between 0 and 1")
        require(self.patience >= 1, f"patience={self.patience} must be at least 1")


class Epoch(NamedTuple):
    """Where training stands after one more time through the rows."""

    number: int
    weights: PyTree  # [member, ...]
    train_loss: float  # of rows that were learned from, by the same weights
    held_out_loss: float


def first_rows(rows: PyTree, most: int) -> PyTree:
    """To measure figures on; episodes are in no particular order, so the first will do."""
    return jax.tree.map(lambda x: x[:most], rows)


def apart(num_episodes: int, settings: Training) -> tuple[np.ndarray, np.ndarray]:
    """Episodes to learn from, and those that are held out."""
    order = np.random.default_rng(settings.seed).permutation(num_episodes)
    held = max(1, round(settings.held_out * num_episodes))
    require(held < num_episodes, f"{num_episodes} episodes are too few to hold some out")
    return np.sort(order[held:]), np.sort(order[:held])


Loss = Callable[[PyTree, PyTree, Key], Float[Array, " row"]]  # weights, rows, key -> what each row costs


def epochs(
    loss: Loss,
    weights: PyTree,
    rows: PyTree,
    episode: Int[np.ndarray, " row"],
    held_out: PyTree,
    settings: Training,
    batch: int,
    most: int,
    score: Loss | None = None,
    beside: tuple[str, ...] = (),
) -> Iterator[Epoch]:
    """Descend the mean loss of `rows` [row, ...], each from some `episode`, `batch` of them at a time; losses
    are measured on `most` rows, by `score` where that is another. `weights` are [member, ...]; those named in
    `beside` change no step of the others."""
    count, members = len(episode), len(jax.tree.leaves(weights)[0])
    steps = max(1, count // batch)
    optimiser = _optimiser(settings, steps, beside)
    state = jax.vmap(optimiser.init)(weights)
    learn, measure = _one_epoch(loss, optimiser), jax.jit(functools.partial(_mean_loss, score or loss))
    times = jnp.asarray(_drawn(settings.seed, members, episode))
    learned = first_rows((rows, times.T), most)
    held_out = first_rows((held_out, jnp.ones((len(jax.tree.leaves(held_out)[0]), members), int)), most)
    key, best, waited = stream(jax.random.key(settings.seed), "pretrain"), np.inf, 0
    for number in range(1, settings.epochs + 1):
        now = jax.random.fold_in(key, number)
        order = _orders(stream(now, "order"), members, count, steps, batch)
        weights, state = learn(weights, state, rows, times, order, stream(now, "learn"))
        each = [float(measure(weights, *one, stream(key, "score"))) for one in (learned, held_out)]
        train_loss, held_out_loss = each
        waited = 0 if held_out_loss < 0.99 * best else waited + 1
        best = min(best, held_out_loss)
        yield Epoch(number, weights, train_loss, held_out_loss)
        if waited >= settings.patience:
            return


def _drawn(seed: int, members: int, episode: Int[np.ndarray, " row"]) -> Int[np.ndarray, "member row"]:
    """How often each member counts a row: as if it had drawn its episodes with replacement. One alone
    counts all of them once."""
    if members == 1:
        return np.ones((1, len(episode)), np.int32)
    times = np.random.default_rng([seed, members]).poisson(1.0, (members, episode.max() + 1))
    return times[:, episode].astype(np.int32)


def _optimiser(settings: Training, steps: int, beside: tuple[str, ...]) -> optax.GradientTransformation:
    rate = optax.cosine_decay_schedule(settings.learning_rate, settings.epochs * steps)
    return optax.chain(_clip(settings.max_grad_norm, beside), optax.adam(rate))


def _clip(norm: float, beside: tuple[str, ...]) -> optax.GradientTransformation:
    """By one norm for all weights but those named `beside`, which have another each: a steep slope of theirs
    would shorten everyone's steps."""
    clip = optax.clip_by_global_norm(norm)
    if not beside:
        return clip
    groups: dict[Hashable, optax.GradientTransformation] = dict.fromkeys(("", *beside), clip)
    return optax.multi_transform(groups, lambda weights: {n: n if n in beside else "" for n in weights})


def _orders(key: Key, members: int, rows: int, steps: int, batch: int) -> Int[Array, "step member row"]:
    """Every member's own order of the rows, cut into steps; the rest that fills no step waits."""
    keys = jax.random.split(key, members)
    size = min(batch, rows)
    order = jax.vmap(lambda k: jax.random.permutation(k, rows)[: steps * size])(keys)
    return jnp.swapaxes(order.reshape(members, steps, size), 0, 1)


def _one_epoch(loss: Loss, optimiser: optax.GradientTransformation) -> Callable:
    def one_member(weights, state, rows, times, key):
        gradient = jax.grad(lambda w: _counted_mean(loss(w, rows, key), times))(weights)
        updates, state = optimiser.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state

    @jax.jit
    def epoch(weights, state, rows, times, order, key):
        members = order.shape[1]

        def one_step(carry, step):
            index, number = step
            keys = jax.random.split(jax.random.fold_in(key, number), members)
            batch = jax.tree.map(lambda x: x[index], rows)
            counted = jnp.take_along_axis(times, index, axis=1)
            return jax.vmap(one_member)(carry[0], carry[1], batch, counted, keys), None

        steps = (order, jnp.arange(len(order)))
        return jax.lax.scan(one_step, (weights, state), steps)[0]

    return epoch


def _counted_mean(cost: Float[Array, " row"], times: Int[Array, " row"]) -> Float[Array, ""]:
    return jnp.sum(cost * times) / jnp.maximum(jnp.sum(times), 1)


def _mean_loss(loss: Loss, weights: PyTree, rows: PyTree, times: Int[Array, "row member"], key: Key):
    """Every member's over what it counts, then the mean of all; one member after the other, for memory."""
    each = jax.lax.map(lambda one: _counted_mean(loss(one[0], rows, key), one[1]), (weights, times.T))
    return jnp.mean(each)
