"""What a player will be paid next, told in hindsight: whoever foretells that knows what it is after.

Nobody declares goals for it, and it can be had in any game whose rewards are known. A step's prospect is the
next reward other than 0 that its player gets in the same game, or that there is none to come.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.types import pytree

NO_PAY = 1e-6  # rewards nearer to 0 than this are none


@pytree
class Prospect:
    paid: Int[Array, "*batch agent"]  # a place among the game's rewards; after the last of them: none to come
    is_known: Bool[Array, "*batch agent"]  # false where the rows end before it shows: what comes late less


def num_prospects(values: tuple[float, ...]) -> int:
    return len(values) + 1


def prospects(
    reward: Float[Array, "time *batch"],
    is_over: Bool[Array, "time *batch"],
    is_cut: Bool[Array, "time *batch"],
    values: tuple[float, ...],
) -> Prospect:
    """`is_over`: with this step the player left, or the game ended; `is_cut`: nobody watched on, so that what
    would have come is not known."""
    apart = jnp.abs(reward[..., None] - jnp.asarray(values).reshape((1,) * reward.ndim + (-1,)))
    is_paid, place = jnp.abs(reward) > NO_PAY, jnp.argmin(apart, axis=-1).astype(jnp.int32)

    def one_step(following: Prospect, step):
        is_paid, place, is_over, is_cut = step
        later = jnp.where(is_over, len(values), following.paid)
        told = Prospect(jnp.where(is_paid, place, later), is_paid | is_over | (following.is_known & ~is_cut))
        return told, told

    unknown = Prospect(jnp.full(reward.shape[1:], len(values), jnp.int32), jnp.zeros(reward.shape[1:], bool))
    return jax.lax.scan(one_step, unknown, (is_paid, place, is_over, is_cut), reverse=True)[1]
