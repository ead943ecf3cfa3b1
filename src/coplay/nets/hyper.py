"""An actor whose weights a generator moves: theta_0 + s * delta(context).

```text
context (length 1) -> trunk -> length 1 -> heads = delta
own observation    -> actor with theta_0 + s * delta -> logits
```

`theta_0` is the plain actor, initialised as ever, and heads start at zero, so that every context starts with
the plain actor's policy. A fixed context (who one is) makes one set of weights per seat; any other makes one
per row, and then increments are applied and never added to the weights. A critic's last layer may be moved in
the same way (`CriticHeads`).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from coplay.nets.context import Context, ContextShape, unit
from coplay.nets.mlp import ACTIVATIONS, MLP, Linear
from coplay.types import Key, Memory

NEVER = -1e9  # logit of an illegal action
FACTORS = ("left", "right")  # of an increment that is a product


@dataclasses.dataclass(frozen=True)
class GeneratorShape:
    """What is generated, and how it enters."""

    context: ContextShape
    trunk: tuple[int, ...] = (64,)
    generate: str = "full"  # or last_layer, low_rank (of the last layer), scales
    rank: int = 4
    scale: float = 1.0  # s
    decay: float = 0.0  # above 0: increments add up within an episode and fade by this much a step
    moves_critic: bool = False  # the last layer of the critic is generated, too


class Piece(NamedTuple):
    """Some of the numbers that heads give: a part of one layer's increment."""

    layer: int
    part: str  # weight, bias, left, right, gain, shift
    shape: tuple[int, ...]


Delta = dict[tuple[int, str], Array]  # by layer and part, [group, *shape]


class Generator(eqx.Module):
    context: Context
    trunk: tuple[Linear, ...]
    heads: Linear
    gains: tuple[Float[Array, " width"], ...]  # of hidden layers where only the last is generated; start at 1
    shape: GeneratorShape = eqx.field(static=True)
    pieces: tuple[Piece, ...] = eqx.field(static=True)

    def __init__(self, key: Key, shape: GeneratorShape, actor: MLP):
        context_key, trunk_key, head_key = jax.random.split(key, 3)
        self.context = Context(context_key, shape.context)
        self.trunk = _trunk(trunk_key, self.context.size, shape.trunk)
        self.shape = shape
        self.pieces = _pieces(shape, _sizes(actor))
        self.heads = _silent(head_key, shape.trunk[-1], self.pieces)
        is_last_only = shape.generate in ("last_layer", "low_rank")
        hidden = actor.layers[:-1] if is_last_only else ()
        self.gains = tuple(jnp.ones(layer.weight.shape[1]) for layer in hidden)

    def empty(self, *shape: int) -> Memory:
        """Memory before anything has happened, for rows [env, seat]; () where none is needed."""
        memory = self.context.empty(*shape)
        if self.shape.decay:
            memory["added"] = jnp.zeros((*shape, self.heads.bias.shape[0]))
        return memory or ()

    def read(
        self,
        actor: MLP,
        memory: Memory,
        row: Float[Array, "column time seat feature"],
        first: Bool[Array, "column time"],
    ) -> "Spoken":
        remembered, context = self.contexts(actor, memory, row, first)
        numbers = _said(self.trunk, self.heads, context)
        if self.shape.decay:
            numbers = _added_up(memory["added"], numbers, first, self.shape.decay)
            remembered |= {"added": numbers}
        own = row[..., : self.shape.context.told.observation]
        logits = self.explored(row, self.speak(actor, own, numbers))
        return Spoken(remembered or (), logits, numbers)

    def is_moved(
        self, memory: Memory, first: Bool[Array, "column time"], seats: int
    ) -> Bool[Array, "column time seat"]:
        """Where increments may differ from those of the step before, and these are known."""
        if self.shape.decay:
            return jnp.broadcast_to(~first[:, :, None], (*first.shape, seats))
        fresh = self.context.is_fresh(memory, first, seats)
        return fresh.at[:, 0].set(False) if self.context.is_taken_each_step else fresh

    def before(
        self, memory: Memory, numbers: Float[Array, "column time seat number"]
    ) -> Float[Array, "column time seat number"]:
        """The numbers of the step before each; before the first step, what memory has kept, if it has."""
        start = numbers[:, 0]
        if self.shape.decay:
            start = memory["added"]
        elif not self.context.is_taken_each_step:
            start = _said(self.trunk, self.heads, memory["context"])
        return jnp.concatenate([start[:, None], numbers[:, :-1]], axis=1)

    def contexts(
        self,
        actor: MLP,
        memory: Memory,
        row: Float[Array, "column time seat feature"],
        first: Bool[Array, "column time"],
    ) -> tuple[Memory, Float[Array, "*rows context"]]:
        """Memory after each step, and contexts by seat or by row."""
        told = self.shape.context.told
        if self.shape.context.is_fixed:
            identity = told.split(row[0, 0])["identity"]
            return memory, self.context.of_seats(identity)

        def spoken(numbers: Float[Array, "column time seat number"]) -> Array:
            legal = told.split(row)["legal"] > 0
            logits = self.speak(actor, row[..., : told.observation], numbers)
            return jax.nn.log_softmax(jnp.where(legal, logits, NEVER), axis=-1)

        return self.context.read(memory, row, first, lambda x: _said(self.trunk, self.heads, x), spoken)

    def explored(self, row: Float[Array, "*rows feature"], logits: Float[Array, "*rows action"]) -> Array:
        """Logarithms of (1 - p) * policy + p * even over what is legal, where rows say what p is."""
        parts = self.shape.context.told.split(row)
        if not self.shape.context.told.exploring:
            return logits
        legal, share = parts["legal"] > 0, parts["exploring"]
        policy = jax.nn.softmax(jnp.where(legal, logits, NEVER), axis=-1)
        even = legal / jnp.maximum(jnp.sum(legal, axis=-1, keepdims=True), 1)
        return jnp.where(legal, jnp.log(jnp.maximum((1.0 - share) * policy + share * even, 1e-30)), NEVER)

    def speak(
        self,
        actor: MLP,
        own: Float[Array, "column time seat feature"],
        numbers: Float[Array, "*rows number"],
    ) -> Float[Array, "column time seat action"]:
        """Logits of an actor with these increments: one set per seat [seat, number], or one for each row."""
        return _moved(actor, own, numbers, self._delta, self.gains)

    def _delta(self, numbers: Float[Array, "group number"]) -> Delta:
        return _delta(self.pieces, self.shape.scale, numbers)

    def length(self, numbers: Float[Array, "*rows number"]) -> Float[Array, " group"]:
        """How long the increments are that these numbers stand for, all weights in a row."""
        return jnp.sqrt(_squares(self._delta(numbers.reshape(-1, numbers.shape[-1]))))

    def apart(
        self, numbers: Float[Array, "*rows number"], others: Float[Array, "*rows number"]
    ) -> Float[Array, "*rows"]:
        """The mean square by which weights differ under these numbers and those."""
        mine, theirs = (self._delta(x.reshape(-1, x.shape[-1])) for x in (numbers, others))
        return _squares(_less(mine, theirs)).reshape(numbers.shape[:-1]) / _reached(self.pieces)


class CriticHeads(eqx.Module):
    """Increments of a critic's last layer, from its player's context, by a trunk and heads of their own."""

    trunk: tuple[Linear, ...]
    heads: Linear
    scale: float = eqx.field(static=True)
    pieces: tuple[Piece, ...] = eqx.field(static=True)

    def __init__(self, key: Key, shape: GeneratorShape, context: int, critic: MLP):
        trunk_key, head_key = jax.random.split(key)
        self.trunk = _trunk(trunk_key, context, shape.trunk)
        self.scale = shape.scale
        self.pieces = _pieces(dataclasses.replace(shape, generate="last_layer"), _sizes(critic))
        self.heads = _silent(head_key, shape.trunk[-1], self.pieces)

    def value(
        self,
        critic: MLP,
        seen: Float[Array, "column time seat feature"],
        context: Float[Array, "*rows context"],
    ) -> Float[Array, "column time seat one"]:
        numbers = _said(self.trunk, self.heads, context)
        return _moved(critic, seen, numbers, lambda x: _delta(self.pieces, self.scale, x), ())


class Spoken(NamedTuple):
    """What an actor says, and the increments it said it with."""

    memory: Memory
    logits: Float[Array, "column time seat action"]
    numbers: Float[
        Array, "*rows number"
    ]  # [seat, number] of a fixed context, [column, time, seat, number] of others


def _trunk(key: Key, inputs: int, hidden: tuple[int, ...]) -> tuple[Linear, ...]:
    widths, keys = [inputs, *hidden], jax.random.split(key, len(hidden))
    return tuple(Linear(k, widths[i], widths[i + 1], math.sqrt(2.0)) for i, k in enumerate(keys))


def _said(
    trunk: tuple[Linear, ...], heads: Linear, context: Float[Array, "*rows context"]
) -> Float[Array, "*rows number"]:
    """What heads say, all pieces in a row."""
    rows = context.reshape(-1, context.shape[-1])
    for layer in trunk:
        rows = jnp.tanh(layer(rows))
    return heads(unit(rows)).reshape(*context.shape[:-1], -1)


def _delta(pieces: tuple[Piece, ...], scale: float, numbers: Float[Array, "group number"]) -> Delta:
    ends = np.cumsum([math.prod(piece.shape) for piece in pieces])
    each = jnp.split(numbers, ends[:-1].tolist(), axis=-1)
    return {
        (piece.layer, piece.part): x.reshape(-1, *piece.shape) * (1.0 if piece.part == "left" else scale)
        for piece, x in zip(pieces, each, strict=True)
    }


def _squares(delta: Delta) -> Float[Array, " group"]:
    """The sum of squares of what is added to weights; of a product, from its factors."""
    square = sum(
        jnp.sum(value.reshape(len(value), -1) ** 2, axis=-1)
        for (_, part), value in delta.items()
        if part not in FACTORS
    )
    for layer in (layer for layer, part in delta if part == "left"):
        left, right = (delta[layer, part] for part in FACTORS)
        square = square + jnp.einsum("gia,gib,gao,gbo->g", left, left, right, right)
    return jnp.asarray(square)


def _less(mine: Delta, theirs: Delta) -> Delta:
    """One increment less another. AB - CD is (A - C)B + C(B - D), a product of factors twice as wide."""
    found = {name: value - theirs[name] for name, value in mine.items()}
    for layer in (layer for layer, part in mine if part == "left"):
        left, right = (layer, "left"), (layer, "right")
        found[left] = jnp.concatenate([found[left], theirs[left]], axis=-1)
        found[right] = jnp.concatenate([mine[right], found[right]], axis=-2)
    return found


def _reached(pieces: tuple[Piece, ...]) -> int:
    """How many weights increments move."""
    factors = {piece.part: piece.shape for piece in pieces if piece.part in FACTORS}
    product = factors["left"][0] * factors["right"][1] if factors else 0
    return product + sum(math.prod(piece.shape) for piece in pieces if piece.part not in FACTORS)


def _moved(
    network: MLP,
    own: Float[Array, "column time seat feature"],
    numbers: Float[Array, "*rows number"],
    delta: Callable[[Array], Delta],
    gains: tuple[Array, ...],
) -> Float[Array, "column time seat output"]:
    """What a network says with these increments: one set per seat [seat, number], or one for each row."""
    columns, time, seats, features = own.shape
    if numbers.ndim == 2:
        rows = jnp.moveaxis(own, 2, 0).reshape(seats, columns * time, features)
        said = _through(network, rows, delta(numbers), gains, add_up=True)
        return jnp.moveaxis(said.reshape(seats, columns, time, -1), 0, 2)
    rows = own.reshape(-1, 1, features)
    increments = delta(numbers.reshape(-1, numbers.shape[-1]))
    return _through(network, rows, increments, gains, add_up=False).reshape(columns, time, seats, -1)


def _through(
    network: MLP,
    x: Float[Array, "group row feature"],
    delta: Delta,
    gains: tuple[Array, ...],
    add_up: bool,
) -> Array:
    """Layer by layer; `add_up` where few groups have many rows each, so that adding weights pays."""
    last = len(network.layers) - 1
    for index, layer in enumerate(network.layers):
        mine = {part: value for (place, part), value in delta.items() if place == index}
        x = (_added if add_up else _applied)(layer, x, mine)
        if index < last:
            x = _scaled(x, gains[index]) if gains else x
            x = ACTIVATIONS[network.activation](x)
    return x


def _scaled(x: Float[Array, "group row feature"], gain: Float[Array, " feature"]) -> Array:
    """Flat: with an axis of length 1 between, the gain's gradient takes the compiler fifty times as long."""
    return (x.reshape(-1, x.shape[-1]) * gain[None, :]).reshape(x.shape)


def _sizes(network: MLP) -> list[tuple[int, int]]:
    return [(layer.weight.shape[0], layer.weight.shape[1]) for layer in network.layers]


def _pieces(shape: GeneratorShape, sizes: list[tuple[int, int]]) -> tuple[Piece, ...]:
    last, (width, actions) = len(sizes) - 1, sizes[-1]
    if shape.generate == "low_rank":
        return (
            Piece(last, "left", (width, shape.rank)),
            Piece(last, "right", (shape.rank, actions)),
            Piece(last, "bias", (actions,)),
        )
    if shape.generate == "scales":
        parts = [(index, part) for index in range(last) for part in ("gain", "shift")]
        return tuple(Piece(index, part, (sizes[index][1],)) for index, part in parts)
    generated = range(len(sizes)) if shape.generate == "full" else [last]
    both = [(Piece(i, "weight", sizes[i]), Piece(i, "bias", sizes[i][1:])) for i in generated]
    return tuple(piece for pair in both for piece in pair)


def _silent(key: Key, width: int, pieces: tuple[Piece, ...]) -> Linear:
    """Heads that say nothing yet. The left of a low-rank product starts at a draw: with both at zero,
    neither would ever be moved."""
    spare, *keys = jax.random.split(key, 1 + len(pieces))
    draws = [
        jax.random.normal(k, (math.prod(p.shape),)) / math.sqrt(p.shape[0])
        if p.part == "left"
        else jnp.zeros(math.prod(p.shape))
        for k, p in zip(keys, pieces, strict=True)
    ]
    heads = Linear(spare, 1, 1, 0.0)
    zeros = jnp.zeros((width, sum(math.prod(piece.shape) for piece in pieces)))
    return eqx.tree_at(lambda head: (head.weight, head.bias), heads, (zeros, jnp.concatenate(draws)))


def _added(layer: Linear, x: Float[Array, "group row input"], delta: dict[str, Array]) -> Array:
    """A layer whose weights are moved before they are used, one set per group."""
    if "weight" not in delta:
        return _applied(layer, x, delta)
    y = _times(x, layer.weight[None] + delta["weight"])
    return y + (layer.bias[None] + delta["bias"])[:, None, :]


def _applied(layer: Linear, x: Float[Array, "group row input"], delta: dict[str, Array]) -> Array:
    """A layer as it is, and what its increment adds."""
    y = layer(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:2], -1)
    if "weight" in delta:
        y = y + _times(x, delta["weight"])
    if "left" in delta:
        y = y + _times(_times(x, delta["left"]), delta["right"])
    if "bias" in delta:
        y = y + delta["bias"][:, None, :]
    if "gain" in delta:
        y = y * (1.0 + delta["gain"])[:, None, :] + delta["shift"][:, None, :]
    return y


def _times(x: Float[Array, "group row input"], weight: Float[Array, "group input output"]) -> Array:
    return jnp.einsum("gri,gio->gro", x, weight)


def _added_up(before: Float[Array, "column seat number"], numbers, first, decay: float):
    """D_t = (1 - first) * decay * D_(t-1) + delta_t, along time."""

    def tick(added, now):
        numbers, first = now
        added = jnp.where(first[:, None, None], 0.0, decay * added) + numbers
        return added, added

    _, added = jax.lax.scan(tick, before, (jnp.moveaxis(numbers, 1, 0), first.T))
    return jnp.moveaxis(added, 0, 1)
