"""How far imagination is allowed to teach: rungs that are climbed while tests hold, and fallen from at once.

Rung 0: nothing is imagined, the critic settles. Rung 1: the critic is sound. Rung 2: the models are good
enough for the actor to learn from one imagined step. Rung 3: from several. The rung is a number in the
learner's state, one for each run, not a shape: nothing is compiled again when it changes.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from coplay.types import pytree

PATIENCE = 3  # rounds in a row in which all tests up to the next rung must hold
PENANCE = 5  # rounds without climbing after a fall
RUNGS = 3  # above the ground


@pytree
class Gate:
    rung: Int[Array, ""]
    held: Int[Array, ""]  # rounds in a row in which the next rung's tests held
    waits: Int[Array, ""]  # rounds still to wait after a fall


def at(rung: int) -> Gate:
    zero = jnp.int32(0)
    return Gate(jnp.int32(rung), zero, zero)


def climbed(gate: Gate, holds: Bool[Array, " rung"]) -> Gate:
    """After one round; `holds[i]` is the test to stand on rung i + 1."""
    up_to = jnp.cumprod(holds.astype(jnp.int32))  # a rung needs all tests below it
    highest = jnp.sum(up_to).astype(jnp.int32)
    falls = highest < gate.rung
    may_climb = (gate.waits == 0) & (highest > gate.rung)
    held = jnp.where(may_climb & ~falls, gate.held + 1, 0)
    climbs = held >= PATIENCE
    return Gate(
        rung=jnp.where(falls, highest, gate.rung + climbs).astype(jnp.int32),
        held=jnp.where(climbs, 0, held).astype(jnp.int32),
        waits=jnp.where(falls, PENANCE, jnp.maximum(gate.waits - 1, 0)).astype(jnp.int32),
    )
