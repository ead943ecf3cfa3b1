"""What a decision turned out to be worth: generalised advantages, or plain returns.

Targets bootstrap through `truncated` and stop at `terminated`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def advantages(
    reward: Float[Array, "time *batch"],
    value: Float[Array, "time *batch"],
    next_value: Float[Array, "time *batch"],
    ends: Bool[Array, "time *batch"],
    cut: Bool[Array, "time *batch"],
    discount: float,
    trace: float,
) -> Float[Array, "time *batch"]:
    """Generalised advantage estimates (GAE).

    surprise_t = r_t + discount * V(after_t) - V(before_t), without V(after_t) where the game `ends`;
    A_t = surprise_t + discount * trace * A_{t+1}, without A_{t+1} where it ends or is `cut`.
    """
    surprise = reward + discount * jnp.where(ends, 0.0, next_value) - value
    carried = jnp.where(ends | cut, 0.0, discount * trace)

    def backward(later, now):
        surprise, carried = now
        advantage = surprise + carried * later
        return advantage, advantage

    return jax.lax.scan(backward, jnp.zeros_like(value[0]), (surprise, carried), reverse=True)[1]


def monte_carlo(
    reward: Float[Array, "time *batch"],
    value: Float[Array, "time *batch"],
    next_value: Float[Array, "time *batch"],
    ends: Bool[Array, "time *batch"],
    cut: Bool[Array, "time *batch"],
    discount: float,
    trace: float,
) -> Float[Array, "time *batch"]:
    """Discounted return minus the value: advantages with trace 1, whatever `trace` says.

    Where a rollout stops in the middle of an episode the critic stands in for the rest.
    """
    return advantages(reward, value, next_value, ends, cut, discount, 1.0)


def lambda_returns(
    reward: Float[Array, "time *batch"],
    next_value: Float[Array, "time *batch"],
    goes_on: Float[Array, "time *batch"],
    cut: Bool[Array, "time *batch"],
    discount: float,
    trace: float,
) -> Float[Array, "time *batch"]:
    """Returns of imagined steps, which bootstrap where they are `cut`.

    G_t = r_t + discount * goes_on_t * [(1 - trace) * V(after_t) + trace * G_{t+1}], with V(after_t) in place
    of G_{t+1} at a cut; `goes_on` is the chance that the game does. V(after_t) need not be what is thought of
    that moment one step later, so this is not `advantages` plus value.
    """

    def backward(later, now):
        reward, next_value, goes_on, cut = now
        follows = (1.0 - trace) * next_value + trace * jnp.where(cut, next_value, later)
        total = reward + discount * goes_on * follows
        return total, total

    rows = (reward, next_value, goes_on, cut)
    return jax.lax.scan(backward, jnp.zeros_like(reward[0]), rows, reverse=True)[1]


RETURNS = {"gae": advantages, "monte_carlo": monte_carlo}
