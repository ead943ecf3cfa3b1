"""Memory that restarts with each episode: cells, and a network of an encoder, a GRU and a linear head."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from coplay.nets.mlp import CNN, MLP, Linear, orthogonal
from coplay.types import Key


class GRU(eqx.Module):
    """`encoder` reads a row, the gates mix it with what is remembered, `head` speaks."""

    encoder: MLP | CNN
    from_input: Linear
    from_memory: Float[Array, "hidden gates"]
    head: Linear

    def __init__(self, key: Key, encoder: MLP | CNN, width: int, outputs: int, output_gain: float):
        keys = jax.random.split(key, 5)
        self.encoder = encoder
        self.from_input = Linear(keys[0], width, 3 * width, 1.0)
        square = [orthogonal(k, width, width, 1.0) for k in keys[1:4]]
        self.from_memory = jnp.concatenate(square, axis=1)
        self.head = Linear(keys[4], width, outputs, output_gain)

    def empty(self, *shape: int) -> Float[Array, "*shape hidden"]:
        """Memory before anything has happened."""
        return jnp.zeros((*shape, self.from_memory.shape[0]))

    def run(
        self,
        memory: Float[Array, "row hidden"],
        inputs: Float[Array, "time row feature"],
        first: Bool[Array, "time row"],
    ):
        """Memory after every step, and outputs; what needs no memory is computed for all times at once."""
        drive = self.from_input(jnp.tanh(self.encoder(inputs)))
        remembered = remember(self.from_memory, memory, drive, first)
        return remembered, self.head(remembered)


# --- a GRU's memory along time -------------------------------------------------------------------
# Its gradient is written out, because the one that is derived adds up the weights' gradient tick by tick:
# here that is one product after the last (docs/decisions/0006).


@jax.custom_vjp
def remember(
    from_memory: Float[Array, "hidden gates"],
    memory: Float[Array, "row hidden"],
    drive: Float[Array, "time row gates"],
    first: Bool[Array, "time row"],
) -> Float[Array, "time row hidden"]:
    """A GRU's memory after every step, from what the rows say to its gates (reset, update, new)."""
    return _remember(from_memory, memory, drive, first)[0]


class _Gates(NamedTuple):
    """What the gates said at every step, [time, row, hidden]."""

    reset: Array
    update: Array
    proposal: Array
    new_kept: Array  # what the memory said to the proposal, before `reset`


def _remember(from_memory: Array, memory: Array, drive: Array, first: Array) -> tuple[Array, _Gates]:
    def tick(memory, now):
        (reset_in, update_in, new_in), first = now
        memory = jnp.where(first[:, None], 0.0, memory)
        reset_kept, update_kept, new_kept = jnp.split(memory @ from_memory, 3, axis=-1)
        reset = jax.nn.sigmoid(reset_in + reset_kept)
        update = jax.nn.sigmoid(update_in + update_kept)
        proposal = jnp.tanh(new_in + reset * new_kept)
        memory = (1.0 - update) * proposal + update * memory
        return memory, (memory, _Gates(reset, update, proposal, new_kept))

    # Split before the loop: slices of wide rows within it take longer than the product.
    return jax.lax.scan(tick, memory, (jnp.split(drive, 3, axis=-1), first))[1]


def _remember_forward(from_memory: Array, memory: Array, drive: Array, first: Array):
    remembered, gates = _remember(from_memory, memory, drive, first)
    return remembered, (from_memory, memory, first, remembered, gates)


def _remember_backward(kept, gradient: Float[Array, "time row hidden"]):
    from_memory, memory, first, remembered, gates = kept
    before = jnp.where(first[..., None], 0.0, jnp.concatenate([memory[None], remembered[:-1]]))
    # By how much the new memory moves with what each gate was told.
    new = (1.0 - gates.update) * (1.0 - gates.proposal**2)
    update = (before - gates.proposal) * gates.update * (1.0 - gates.update)
    reset = new * gates.new_kept * gates.reset * (1.0 - gates.reset)
    to_memory = from_memory.T

    def tick(later, now):
        gradient, (reset, update, new_kept), passed_on, first = now
        whole = gradient + later
        gated = jnp.concatenate([reset * whole, update * whole, new_kept * whole], axis=-1)
        return jnp.where(first[:, None], 0.0, passed_on * whole + gated @ to_memory), whole

    moves = (reset, update, new * gates.reset)
    at_start, whole = jax.lax.scan(
        tick, jnp.zeros_like(memory), (gradient, moves, gates.update, first), reverse=True
    )
    to_drive = jnp.concatenate([reset * whole, update * whole, new * whole], axis=-1)
    to_kept = jnp.concatenate([move * whole for move in moves], axis=-1)
    flat = before.reshape(-1, before.shape[-1])
    return flat.T @ to_kept.reshape(flat.shape[0], -1), at_start, to_drive, None


remember.defvjp(_remember_forward, _remember_backward)


# --- cells ---------------------------------------------------------------------------------------


def gru(key: Key, inputs: int, hidden: tuple[int, ...], outputs: int, output_gain: float,
        planes: tuple[int, int, int] | None = None, activation: str = "tanh") -> GRU:  # fmt: skip
    """A GRU as wide as the last hidden layer, after an MLP (or, given planes, a CNN) encoder."""
    encoder_key, gru_key = jax.random.split(key)
    width, gain = hidden[-1], math.sqrt(2.0)
    if planes is None:
        encoder: MLP | CNN = MLP(encoder_key, inputs, hidden[:-1], width, gain, activation)
    else:
        encoder = CNN(encoder_key, inputs, hidden[:-1], width, gain, planes, activation)
    return GRU(gru_key, encoder, width, outputs, output_gain)


class Cell(eqx.Module):
    """A GRU or an LSTM by itself: rows in, what it says of them out. An LSTM's memory is hidden | cell."""

    from_input: Linear
    from_memory: Float[Array, "hidden gates"]
    width: int = eqx.field(static=True)
    kind: str = eqx.field(static=True)  # gru or lstm

    def __init__(self, key: Key, kind: str, inputs: int, width: int):
        gates = {"gru": 3, "lstm": 4}[kind]
        input_key, *memory_keys = jax.random.split(key, 1 + gates)
        self.from_input = Linear(input_key, inputs, gates * width, 1.0)
        self.from_memory = jnp.concatenate([orthogonal(k, width, width, 1.0) for k in memory_keys], axis=1)
        self.width, self.kind = width, kind

    @property
    def memory_width(self) -> int:
        return self.width if self.kind == "gru" else 2 * self.width

    def run(
        self,
        memory: Float[Array, "row memory"],
        inputs: Float[Array, "time row feature"],
        first: Bool[Array, "time row"],
    ) -> tuple[Float[Array, "time row memory"], Float[Array, "time row hidden"]]:
        drive = self.from_input(inputs)
        if self.kind == "gru":
            remembered = remember(self.from_memory, memory, drive, first)
            return remembered, remembered

        def tick(memory, now):
            drive, first = now
            memory = self._remember_long(jnp.where(first[:, None], 0.0, memory), drive)
            return memory, memory

        _, remembered = jax.lax.scan(tick, memory, (drive, first))
        return remembered, remembered[..., : self.width]

    def _remember_long(self, memory: Array, drive: Array) -> Array:
        """An LSTM's next memory."""
        kept = memory[:, : self.width] @ self.from_memory
        write, forget, new, speak = jnp.split(drive + kept, 4, axis=-1)
        # Forgetting starts slowly: a bias of 1, as is usual.
        cell = jax.nn.sigmoid(forget + 1.0) * memory[:, self.width :] + jax.nn.sigmoid(write) * jnp.tanh(new)
        return jnp.concatenate([jax.nn.sigmoid(speak) * jnp.tanh(cell), cell], axis=-1)
