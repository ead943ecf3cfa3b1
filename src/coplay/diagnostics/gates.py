"""How far imagination is allowed to teach: rungs that are climbed while tests hold, and fallen from at once.

Rung 0: nothing is imagined, the critic settles. Rung 1: the critic is sound. Rung 2: the models are good
enough for the actor to learn from one imagined step. Rung 3: from several. The rung is a number in the
learner's state, one for each run, not a shape: nothing is compiled again when it changes.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.types import Metrics, pytree

SOUND, ONE, SEVERAL = 1, 2, 3  # the rungs
PATIENCE = 3  # rounds in a row in which all tests up to the next rung must hold
PENANCE = 5  # rounds without climbing after a fall
LATELY = 0.9  # how much of what is known of a critic stays when a round is added


@pytree
class Gate:
    rung: Int[Array, ""]
    held: Int[Array, ""]  # rounds in a row in which the next rung's tests held
    waits: Int[Array, ""]  # rounds still to wait after a fall


def at(rung: int) -> Gate:
    zero = jnp.int32(0)
    return Gate(jnp.int32(rung), zero, zero)


def in_force(gate: Gate, models_hold: Bool[Array, " rung"]) -> Int[Array, ""]:
    """The rung that counts in this round: models that fail their tests now are not asked, whatever they did
    before. `models_hold` are the tests of the second rung and those above it."""
    return jnp.minimum(gate.rung, SOUND + jnp.sum(jnp.cumprod(models_hold.astype(jnp.int32))))


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


# --- critics -------------------------------------------------------------------------------------


@pytree
class Lately:
    """Sums over the newest rounds, the older the less: a round alone holds too few episodes to tell a small
    bias from chance."""

    rounds: Float[Array, "*group"]
    error: Float[Array, "*group"]  # mean of value - return
    unexplained: Float[Array, "*group"]  # variance of that
    variance: Float[Array, "*group"]  # of returns


def not_yet() -> Lately:
    return Lately(*[jnp.float32(0.0)] * 4)


def lately(known: Lately, figures: Metrics) -> Lately:
    """With one round more, by PPO's figures."""
    deviation = figures["value/return_std"]
    variance = deviation**2
    unexplained = (1.0 - figures["value/explained_variance"]) * variance
    new = Lately(jnp.ones_like(deviation), figures["value/bias"] * deviation, unexplained, variance)
    return jax.tree.map(lambda old, new: LATELY * old + new, known, new)


def is_sound(known: Lately, barely: float) -> Bool[Array, ""]:
    """No critic is off by a tenth of the deviation of returns, and all explain more than a tenth of their
    variance; or anything, where returns vary by less than `barely`."""
    means = jax.tree.map(lambda x: x / known.rounds, known)
    deviation = jnp.sqrt(jnp.maximum(means.variance, 1e-9))
    explained = 1.0 - means.unexplained / deviation**2
    is_unbiased = jnp.abs(means.error) < 0.1 * deviation
    return jnp.all(is_unbiased & (explained > jnp.where(deviation > barely, 0.1, 0.0)))
