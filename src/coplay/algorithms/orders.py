"""Orders: which seats of a game follow one while learning, and which goal they are to go after.

An order is kept until new company comes, and exchanged when its goal is gone. Some are to act on a whim, so
that everyone has been among those who want nothing. Draws of a game are common to
its seats, draws of a seat go by who sits there, so that nothing depends on a seat's number.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.types import Goals, Key

FREE = -1  # no order
WHIM = -2  # the order to do anything
WITH_GOAL = 4  # orders with a goal for one that is a whim
DRAWS = 5  # numbers a game's orders take


def drawn_orders(
    goals: Goals,
    share: float,
    has_whims: bool,
    identity: Int[Array, " seat"],
    draws: Float[Array, "env 5"],
    key: Key,
) -> Int[Array, "env seat"]:
    """Orders for a share of the games: in half of those for all seats but one, in the rest for any number,
    and in half of either the same for all.

    So every player meets every kind of company often enough to learn from it. With two goals, four seats and
    no whims it is alone among followers of the second in 0.75 * 5/8 * 1/4 * 0.3125, one game of 27; if each
    seat were ordered with chance 1/2 and a goal of its own, it would be one of 170.
    """
    num_envs, seats = draws.shape[0], identity.shape[0]
    if seats == 1:  # one learner among others is never ordered about
        return jnp.full((num_envs, 1), FREE, jnp.int32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, identity)
    units = jax.vmap(lambda k: jax.random.uniform(k, (num_envs, 2)), out_axes=1)(keys)
    count = jnp.where(draws[:, 4] < 0.5, seats - 1, 1 + _whole(draws[:, 1], seats))
    count = jnp.where(draws[:, 0] < share, count, 0)
    place = jnp.sum(units[:, :, None, 0] > units[:, None, :, 0], axis=2)  # 0 for the lowest draw of a game
    aimless = list(goals.aimless)
    errands = [k for k in range(len(goals.names)) if k not in aimless]
    choice = errands + aimless * len(errands)  # half of them idle, where that is a goal
    if has_whims:
        choice = choice * WITH_GOAL + [WHIM] * len(choice)
    unit = jnp.where((draws[:, 2] < 0.5)[:, None], draws[:, 3, None], units[..., 1])
    goal = jnp.asarray(choice, jnp.int32)[_whole(unit, len(choice))]
    return jnp.where(place < count[:, None], goal, FREE)


def renewed(
    goals: Goals,
    identity: Int[Array, " seat"],
    order: Int[Array, "env seat"],
    possible: Bool[Array, "env seat goal"],
    key: Key,
) -> Int[Array, "env seat"]:
    """Whose goal is gone gets another that can be had; if there is none, it is free."""
    is_gone = (order >= 0) & ~jnp.any(jax.nn.one_hot(order, len(goals.names), dtype=bool) & possible, -1)
    errands = possible & ~np.isin(np.arange(len(goals.names)), goals.aimless)[None, None]
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, identity)
    unit = jax.vmap(lambda k: jax.random.uniform(k, order.shape[:1]), out_axes=1)(keys)
    place = jnp.cumsum(errands, axis=-1) > _whole(unit * jnp.sum(errands, axis=-1), 1)[..., None]
    another = jnp.where(jnp.any(errands, axis=-1), jnp.argmax(place, axis=-1), FREE)
    return jnp.where(is_gone, another, order).astype(jnp.int32)


def _whole(unit: Float[Array, "*shape"], below: int) -> Int[Array, "*shape"]:
    return jnp.floor(unit * below).astype(jnp.int32)
