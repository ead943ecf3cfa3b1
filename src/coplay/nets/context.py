"""What a generator of weights is told: who a player is, what it has seen, or what all have, as a unit vector.

```text
row [own observation | last action | last reward | active | seen | legal | identity | exploring]
  -> encoder (mlp, or cnn for a board) -> attention over fellows -> history -> mixed with earlier states
  -> joined by identity -> length 1 -> kept for some steps
```

Everything is laid out as [column, time, seat, ...], a column being one stretch of one game. What a context
does not read is left out of its rows, and what it does not need is left out of the network.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.nets.mlp import CNN, MLP, Linear, orthogonal
from coplay.nets.recurrent import Cell
from coplay.nets.window import Window, fused, memory_width, recent
from coplay.types import Key, Memory

SIGHTS = ("observation", "seen")  # parts of a row that begin with a board, where the game has one
EACH_STEP, EACH_EPISODE = 1, 0  # how often a context is taken anew; any other number: every so many steps


class Told(NamedTuple):
    """The parts of a row in their order, and how many numbers each has."""

    observation: int
    action: int = 0  # the player's last one, one-hot; zeros at first
    reward: int = 0
    active: int = 0
    seen: int = 0  # what the context is made from, where that is not the player's own observation
    legal: int = 0
    identity: int = 0
    exploring: int = 0  # share of moves that are drawn evenly from what is legal

    def split(self, row: Float[Array, "*rows feature"]) -> dict[str, Array]:
        ends = [sum(self[: place + 1]) for place in range(len(self))]
        return dict(zip(self._fields, jnp.split(row, ends[:-1], axis=-1), strict=True))


@dataclasses.dataclass(frozen=True)
class ContextShape:
    """What a context is made of."""

    told: Told
    reads: tuple[str, ...] = ()  # parts of a row that are encoded; none: who one is says it all
    encoder: int = 64
    planes: tuple[int, int, int] | None = None  # of the board that is read by convolutions; None: by none
    heads: int = 0  # of attention; 0: one's own row only
    history: str = "none"  # or gru, lstm, transformer
    history_width: int = 64
    history_window: int = 16  # rows that a transformer sees
    fusion_window: int = 0  # states that are mixed by how alike they make play; 0: the present one alone
    fusion_temperature: float = 1.0
    identity: str = "embedding"  # or one_hot, none
    embedding: int = 16
    every: int = EACH_STEP  # steps between contexts
    together: bool = False  # one context for all fellows, their mean

    @property
    def is_fixed(self) -> bool:
        """It depends on who one is and on nothing that happens."""
        return not self.reads

    @property
    def read_in_turn(self) -> tuple[str, ...]:
        """Parts as they are encoded: with convolutions, what begins with the board comes first."""
        return tuple(sorted(self.reads, key=lambda name: name not in SIGHTS)) if self.planes else self.reads


class Context(eqx.Module):
    encoder: MLP | CNN | None
    attention: "Attention | None"
    history: Cell | Window | None
    names: Float[Array, "identity embedding"] | None
    shape: ContextShape = eqx.field(static=True)

    def __init__(self, key: Key, shape: ContextShape):
        encoder_key, attention_key, history_key, name_key = jax.random.split(key, 4)
        self.encoder = _encoder(encoder_key, shape) if shape.reads else None
        self.attention = Attention(attention_key, shape.encoder, shape.heads) if shape.heads else None
        self.history = _history(history_key, shape)
        is_embedded = shape.identity == "embedding" and shape.told.identity
        self.names = orthogonal(name_key, shape.told.identity, shape.embedding, 1.0) if is_embedded else None
        self.shape = shape

    @property
    def size(self) -> int:
        shape = self.shape
        who = {"embedding": shape.embedding, "one_hot": shape.told.identity, "none": 0}[shape.identity]
        seen = shape.history_width if self.history else shape.encoder
        return who * bool(shape.told.identity) + seen * bool(shape.reads)

    def empty(self, *shape: int) -> Memory:
        """Memory before anything has happened, for rows [env, seat]."""
        memory: dict[str, Array] = {}
        if self.history:
            memory["history"] = jnp.zeros((*shape, self.history.memory_width))
        if self.shape.fusion_window:
            kept = memory_width(self.shape.fusion_window, self.shape.history_width)
            memory["states"] = jnp.zeros((*shape, kept))
        if self.shape.every != EACH_STEP:
            memory |= {"context": jnp.zeros((*shape, self.size)), "age": jnp.zeros(shape, jnp.int32)}
        return memory

    def of_seats(self, identity: Float[Array, "seat name"]) -> Float[Array, "seat context"]:
        """A fixed context: who one is."""
        return unit(self._who(identity))

    def read(
        self,
        memory: Memory,
        row: Float[Array, "column time seat feature"],
        first: Bool[Array, "column time"],
        made: Callable[[Array], Array],
        spoken: Callable[[Array], Array],
    ) -> tuple[Memory, Float[Array, "column time seat context"]]:
        """Memory after each step, and contexts.

        `made` and `spoken` say what contexts lead to: increments, and log-probabilities on these rows with
        increments of theirs."""
        parts = self.shape.told.split(row)
        remembered, seen = self._seen(memory, parts, first)
        if self.shape.fusion_window:
            states, seen = self._fused(memory, parts, seen, first, made, spoken)
            remembered |= {"states": states}
        context = unit(jnp.concatenate([seen, *self._names(parts)], axis=-1))
        if self.shape.together:
            context = unit(_mean_of_active(context, parts["active"]))
        if self.shape.every != EACH_STEP:
            age = _steps_since_first(memory["age"], first)
            context = _kept(memory, context, age, self.shape.every)
            remembered |= {"context": context, "age": age}
        return remembered, context

    def is_fresh(self, memory: Memory, first: Bool[Array, "column time"], seats: int) -> Array:
        """Where, within an episode, a context is taken that may not be the last: [column, time, seat]."""
        if self.shape.is_fixed:
            return jnp.zeros((*first.shape, seats), bool)
        if self.is_taken_each_step:
            return jnp.broadcast_to(~first[:, :, None], (*first.shape, seats))
        age = _steps_since_first(memory["age"], first)
        return (age > 0) & _is_due(age, self.shape.every)

    @property
    def is_taken_each_step(self) -> bool:
        return self.shape.every == EACH_STEP

    def _seen(self, memory: Memory, parts: dict[str, Array], first: Bool[Array, "column time"]):
        assert self.encoder is not None
        read = jnp.concatenate([parts[name] for name in self.shape.read_in_turn], axis=-1)
        seen = jnp.tanh(self.encoder(read))
        if self.attention is not None:
            seen = self.attention(seen, parts["active"][..., 0] > 0)
        if self.history is None:
            return {}, seen
        out = self.history.run(_rows(memory["history"]), in_time(seen), _each_seats(first, seen))
        remembered, said = (in_columns(x, seen) for x in out)
        return {"history": remembered}, said

    def _fused(self, memory: Memory, parts: dict[str, Array], seen: Array, first, made, spoken):
        """Kept states, and the present one mixed with those that would have one play as it does."""
        shape = self.shape
        states = recent(_rows(memory["states"]), in_time(seen), _each_seats(first, seen), shape.fusion_window)

        def increments(rows: Float[Array, "before_and_time row feature"]) -> Array:
            names = [_as_before(in_time(x), len(rows)) for x in self._names(parts)]
            return made(unit(jnp.concatenate([rows, *names], axis=-1)))

        def log_policy(numbers: Float[Array, "time row number"]) -> Array:
            return in_time(spoken(in_columns(numbers, seen)))

        mixed = fused(states, increments, log_policy, shape.fusion_temperature)
        return in_columns(states.memory(), seen), in_columns(mixed, seen)

    def _names(self, parts: dict[str, Array]) -> list[Array]:
        return [] if self.shape.identity == "none" else [self._who(parts["identity"])]

    def _who(self, identity: Float[Array, "*rows name"]) -> Float[Array, "*rows who"]:
        return identity if self.names is None else identity @ self.names


def _encoder(key: Key, shape: ContextShape) -> MLP | CNN:
    inputs = sum(getattr(shape.told, name) for name in shape.reads)
    if shape.planes is None:
        return MLP(key, inputs, (), shape.encoder, math.sqrt(2.0))
    return CNN(key, inputs, (), shape.encoder, math.sqrt(2.0), shape.planes)


def _history(key: Key, shape: ContextShape) -> Cell | Window | None:
    if shape.history == "transformer":
        return Window(key, shape.encoder, shape.history_width, shape.history_window)
    return None if shape.history == "none" else Cell(key, shape.history, shape.encoder, shape.history_width)


class Attention(eqx.Module):
    """Every seat asks, all that are active answer (oneself always), and what they say is added."""

    asked: Linear
    offered: Linear
    said: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, key: Key, width: int, heads: int):
        asked_key, offered_key, said_key = jax.random.split(key, 3)
        self.asked = Linear(asked_key, width, width, 1.0)
        self.offered = Linear(offered_key, width, 2 * width, 1.0)
        self.said = Linear(said_key, width, width, 1.0)
        self.heads = heads

    def __call__(
        self, seen: Float[Array, "column time seat width"], active: Bool[Array, "column time seat"]
    ) -> Float[Array, "column time seat width"]:
        def heads(x: Array) -> Array:
            return x.reshape(*x.shape[:-1], self.heads, -1)

        key, value = (heads(x) for x in jnp.split(self.offered(seen), 2, axis=-1))
        query = heads(self.asked(seen))
        fit = jnp.einsum("ctihd,ctjhd->ctihj", query, key) / math.sqrt(query.shape[-1])
        here = active[:, :, None, None, :] | jnp.eye(active.shape[-1], dtype=bool)[None, None, :, None, :]
        share = jax.nn.softmax(jnp.where(here, fit, -1e9), axis=-1)
        heard = jnp.einsum("ctihj,ctjhd->ctihd", share, value)
        return seen + self.said(heard.reshape(seen.shape))


def in_time(x: Float[Array, "column time seat feature"]) -> Float[Array, "time row feature"]:
    columns, time, seats = x.shape[:3]
    return jnp.moveaxis(x, 1, 0).reshape(time, columns * seats, -1)


def in_columns(x: Array, like: Array) -> Array:
    """The way back, to [column, time, seat, feature]."""
    columns, time, seats = like.shape[:3]
    return jnp.moveaxis(x.reshape(time, columns, seats, -1), 0, 1)


def _as_before(names: Float[Array, "time row who"], length: int) -> Float[Array, "before_and_time row who"]:
    """Who a player was before a sequence: who it is when that begins."""
    before = jnp.broadcast_to(names[:1], (length - len(names), *names.shape[1:]))
    return jnp.concatenate([before, names])


def _rows(memory: Float[Array, "column seat memory"]) -> Float[Array, "row memory"]:
    return memory.reshape(-1, memory.shape[-1])


def _each_seats(first: Bool[Array, "column time"], like: Array) -> Bool[Array, "time row"]:
    return jnp.repeat(first.T, like.shape[2], axis=1)


def unit(x: Float[Array, "*rows feature"]) -> Float[Array, "*rows feature"]:
    """The same direction, length 1."""
    return x * jax.lax.rsqrt(jnp.sum(x**2, axis=-1, keepdims=True) + 1e-12)


def _mean_of_active(
    x: Float[Array, "column time seat feature"], active: Float[Array, "column time seat one"]
):
    added = jnp.sum(jnp.where(active > 0, x, 0.0), axis=2, keepdims=True)
    mean = added / jnp.maximum(jnp.sum(active, axis=2, keepdims=True), 1.0)
    return jnp.broadcast_to(mean, x.shape)


def _kept(
    memory: Memory,
    context: Float[Array, "column time seat feature"],
    age: Int[Array, "column time seat"],
    every: int,
) -> Float[Array, "column time seat feature"]:
    """Contexts as they are used: the last due one until the next is.

    A context is picked by a product with 0s and a 1: several times faster than going through time."""
    time = age.shape[1]
    at = jnp.arange(1, time + 1)[None, :, None]  # place 0 is what was kept from before
    last_due = jax.lax.cummax(jnp.where(_is_due(age, every), at, 0), axis=1)
    is_picked = last_due[..., None] == jnp.arange(time + 1)[None, None, None, :]
    choices = jnp.concatenate([memory["context"][:, None], context], axis=1)
    return jnp.einsum("ctsp,cpsf->ctsf", is_picked.astype(context.dtype), choices)


def _steps_since_first(
    age: Int[Array, "column seat"], first: Bool[Array, "column time"]
) -> Int[Array, "column time seat"]:
    """0 where an episode begins, else one more than before; `age` is that of the step before these."""
    at = jnp.arange(first.shape[1])[None, :]
    begun = jax.lax.cummax(jnp.where(first, at, -1), axis=1)[..., None]
    return jnp.where(begun >= 0, at[..., None] - begun, age[:, None, :] + 1 + at[..., None])


def _is_due(age: Array, every: int) -> Array:
    return age == 0 if every == EACH_EPISODE else age % every == 0
