"""What a network reads of a TimeStep, and of what its player noted, for each of its seats.

`own_view` is a player's own row. `joint_view` lays everybody's rows side by side, its own first and the
others in cyclic order, with zeros for those who have left (death masking): the critic's view in MAPPO.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coplay.types import PyTree, TimeStep

View = Callable[[TimeStep, PyTree, tuple[int, ...]], Array]


def own_view(
    timestep: TimeStep, notes: PyTree, seats: tuple[int, ...]
) -> Float[Array, "*batch seat feature"]:
    if len(seats) == timestep.observation.shape[-2]:
        return timestep.observation
    return timestep.observation[..., np.array(seats), :]


def joint_view(
    timestep: TimeStep, notes: PyTree, seats: tuple[int, ...]
) -> Float[Array, "*batch seat joint"]:
    num_agents = timestep.observation.shape[-2]
    shown = jnp.where(timestep.active[..., None], timestep.observation, 0.0)
    order = (np.array(seats)[:, None] + np.arange(num_agents)[None, :]) % num_agents
    rows = shown[..., order, :]
    return rows.reshape(*rows.shape[:-2], -1)


def with_identity(
    seen: Float[Array, "*batch seat feature"], identity: Int[Array, " seat"], num_agents: int
) -> Float[Array, "*batch seat feature_and_name"]:
    """The view followed by a one-hot of who is looking, so that one set of weights can tell seats apart.

    Identity is data, not the place in the row: it moves with the weights when seats are renamed.
    """
    names = (identity[:, None] == jnp.arange(num_agents)[None, :]).astype(jnp.float32)
    names = jnp.broadcast_to(
        names.reshape((1,) * (seen.ndim - 2) + names.shape), (*seen.shape[:-1], num_agents)
    )
    return jnp.concatenate([seen, names], axis=-1)
