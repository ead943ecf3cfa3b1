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
LATELY, LONG = 0.9, 0.98  # how much of what is known of a critic stays when a round is added
HELD_OUT = 0.2  # share of a round's games


def held_out(games: int) -> int:
    """How many games models do not learn from, so that they can be tested on them: the first ones."""
    return max(1, round(HELD_OUT * games))


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
    earned: Float[Array, "*group"]  # mean of returns
    variance: Float[Array, "*group"]  # of returns


@pytree
class Judged:
    """What is known of a critic: from about ten rounds, and from about fifty."""

    lately: Lately
    long: Lately


def not_yet() -> Judged:
    nothing = Lately(*[jnp.float32(0.0)] * 5)
    return Judged(nothing, nothing)


def judged(known: Judged, figures: Metrics) -> Judged:
    """With one round more, by PPO's figures."""
    deviation = figures["value/return_std"]
    error = figures["value/bias"] * deviation
    new = Lately(
        rounds=jnp.ones_like(deviation),
        error=error,
        unexplained=(1.0 - figures["value/explained_variance"]) * deviation**2,
        earned=figures["value/prediction_mean"] - error,
        variance=deviation**2,
    )

    def added(old: Lately, stays: float) -> Lately:
        return jax.tree.map(lambda old, new: stays * old + new, old, new)

    return Judged(added(known.lately, LATELY), added(known.long, LONG))


def is_sound(known: Judged, barely: float) -> Bool[Array, ""]:
    """What every critic says lies within a tenth of the deviation of returns of what was earned lately or, as
    critics lag behind players who learn, of something between that and what they earned before; and it
    explains some of the variance, unless returns vary by less than `barely`."""
    lately, long = (jax.tree.map(lambda x, n=one.rounds: x / n, one) for one in (known.lately, known.long))
    deviation = jnp.sqrt(jnp.maximum(lately.variance, 1e-9))
    explained = 1.0 - lately.unexplained / deviation**2
    said, margin = lately.earned + lately.error, 0.1 * deviation
    is_too_low = said < jnp.minimum(lately.earned, long.earned) - margin
    is_too_high = said > jnp.maximum(lately.earned, long.earned) + margin
    return jnp.all(~is_too_low & ~is_too_high & ((explained > 0.0) | (deviation < barely)))
