"""The last few rows of an episode: kept from step to step, attended to, and mixed by how they make one play.

Laid out as [time, row, ...]. What is kept of one step for the next is a flat row of numbers, so that it is
stored like any other memory: rows, the newest first, then whether each is there.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.nets.mlp import Linear
from coplay.types import Key

NOWHERE = -1e9  # score of what is out of sight
HEADS = 4


class Recent(NamedTuple):
    """The rows of a sequence, behind those that came before it and may still be in sight."""

    rows: Float[Array, "before_and_time row feature"]
    episode: Int[Array, "before_and_time row"]  # 0: goes on from before; -1: there is no such row
    window: int  # rows in sight, the present one included

    def windows(self, x: Array) -> Array:
        """What each step sees of such numbers: [time, row, window, ...], the present first."""
        before = self.window - 1
        time = len(x) - before
        return jnp.stack([x[before - back : before - back + time] for back in range(self.window)], axis=2)

    def is_in_sight(self) -> Bool[Array, "time row window"]:
        """Only what belongs to the same episode."""
        return self.windows(self.episode) == self.episode[self.window - 1 :, :, None]

    def memory(self) -> Float[Array, "time row memory"]:
        """What the step after each may still see."""
        is_there = self.is_in_sight()[:, :, :-1]
        rows = jnp.where(is_there[..., None], self.windows(self.rows)[:, :, :-1], 0.0)
        flat = rows.reshape(*rows.shape[:2], -1)
        return jnp.concatenate([flat, is_there.astype(flat.dtype)], axis=-1)


def memory_width(window: int, width: int) -> int:
    return (window - 1) * (width + 1)


def recent(
    memory: Float[Array, "row memory"],
    rows: Float[Array, "time row feature"],
    first: Bool[Array, "time row"],
    window: int,
) -> Recent:
    before, width = window - 1, rows.shape[-1]
    kept = memory[:, : before * width].reshape(-1, before, width)[:, ::-1]
    is_there = memory[:, before * width :][:, ::-1] > 0
    episode = jnp.cumsum(first, axis=0, dtype=jnp.int32)
    return Recent(
        rows=jnp.concatenate([jnp.moveaxis(kept, 1, 0), rows]),
        episode=jnp.concatenate([jnp.where(is_there.T, 0, -1), episode]),
        window=window,
    )


class Window(eqx.Module):
    """A transformer of one layer: every row asks the last few of its episode, itself among them.

    How far back a row lies is told by a number per head and distance, which starts at zero.
    """

    enter: Linear
    asked: Linear
    offered: Linear
    heard: Linear
    distance: Float[Array, "window head"]
    thought: Linear
    said: Linear
    width: int = eqx.field(static=True)
    window: int = eqx.field(static=True)

    def __init__(self, key: Key, inputs: int, width: int, window: int):
        keys = jax.random.split(key, 6)
        self.enter = Linear(keys[0], inputs, width, 1.0)
        self.asked = Linear(keys[1], width, width, 1.0)
        self.offered = Linear(keys[2], width, 2 * width, 1.0)
        self.heard = Linear(keys[3], width, width, 1.0)
        self.distance = jnp.zeros((window, HEADS))
        self.thought = Linear(keys[4], width, width, math.sqrt(2.0))
        self.said = Linear(keys[5], width, width, 1.0)
        self.width, self.window = width, window

    @property
    def memory_width(self) -> int:
        return memory_width(self.window, self.width)

    def run(
        self,
        memory: Float[Array, "row memory"],
        inputs: Float[Array, "time row feature"],
        first: Bool[Array, "time row"],
    ) -> tuple[Float[Array, "time row memory"], Float[Array, "time row hidden"]]:
        x = self.enter(inputs)
        seen = recent(memory, x, first, self.window)
        x = x + self.heard(self._attended(x, seen))
        return seen.memory(), x + self.said(jnp.tanh(self.thought(x)))

    def _attended(self, x: Float[Array, "time row hidden"], seen: Recent) -> Float[Array, "time row hidden"]:
        key, value = (seen.windows(_by_head(part)) for part in jnp.split(self.offered(seen.rows), 2, axis=-1))
        query = _by_head(self.asked(x))
        fit = jnp.einsum("trhd,trwhd->trwh", query, key) / math.sqrt(query.shape[-1])
        in_sight = seen.is_in_sight()[..., None]
        share = jax.nn.softmax(jnp.where(in_sight, fit + self.distance[None, None], NOWHERE), axis=2)
        # Out of sight is out of the sum: a share of 0 alone would let a NaN through.
        value = jnp.where(in_sight[..., None], value, 0.0)
        return jnp.sum(share[..., None] * value, axis=2).reshape(x.shape)


def _by_head(x: Array) -> Array:
    return x.reshape(*x.shape[:-1], HEADS, -1)


def fused(
    seen: Recent,
    made: Callable[[Array], Array],
    spoken: Callable[[Array], Array],
    temperature: float,
) -> Float[Array, "time row feature"]:
    """States in sight, mixed by how alike they would have one play now:

        w_m = softmax_m(-KL(pi_now(.|o_t) || pi_(t-m)(.|o_t)) / temperature),  c_t = sum_m w_m h_(t-m)

    `made` gives the increments of states, `spoken` log-probabilities on the present observations with such
    increments, [time, row, number] -> [time, row, action]. Weights carry no gradient.
    """
    numbers = seen.windows(made(jax.lax.stop_gradient(seen.rows)))
    each = jax.lax.map(spoken, jnp.moveaxis(numbers, 2, 0))  # [window, time, row, action]
    apart = jnp.moveaxis(jnp.sum(jnp.exp(each[:1]) * (each[:1] - each), axis=-1), 0, 2)
    in_sight = seen.is_in_sight()
    weight = jax.nn.softmax(jnp.where(in_sight, -apart / temperature, NOWHERE), axis=2)
    states = jnp.where(in_sight[..., None], seen.windows(seen.rows), 0.0)
    return jnp.sum(jax.lax.stop_gradient(weight)[..., None] * states, axis=2)
