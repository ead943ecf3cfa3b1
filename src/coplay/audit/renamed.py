"""A moment of training with its players renamed: weights, learners, games and memories with them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from coplay.types import Environment, PyTree, Seated, TimeStep, TrainState


def circle(agents: int) -> Int[np.ndarray, " agent"]:
    """Everyone is called what its neighbour was."""
    return (np.arange(agents) + 1) % agents


def renamed_state(env: Environment, state: TrainState, order: Int[np.ndarray, " agent"]) -> TrainState:
    """Seat i is what seat order[i] was; leaves are [seed, ...]."""
    actor = state.actor
    return dataclasses.replace(
        state,
        params=_rows(state.params, order),
        learner=_rows(state.learner, order),
        actor=dataclasses.replace(
            actor,
            env_state=jax.vmap(jax.vmap(lambda s: env.rename(s, jnp.asarray(order))))(actor.env_state),
            timestep=_timestep(actor.timestep, order),
            episode_return=actor.episode_return[:, :, order],
            memory=jax.tree.map(lambda x: x[:, :, order] if x.ndim > 2 else x, actor.memory),
        ),
    )


def _rows(tree: PyTree, order: Int[np.ndarray, " agent"]) -> PyTree:
    def one(seated: PyTree) -> PyTree:
        if not isinstance(seated, Seated):
            return seated
        common = dict(seated.common)
        if "last" in common:  # the round that co-players' models learn from, [seed, env, time, agent, ...]
            common["last"] = jax.tree.map(lambda x: x[:, :, :, order] if x.ndim > 3 else x, common["last"])
        return Seated(own=jax.tree.map(lambda x: x[:, order], seated.own), common=common)

    return jax.tree.map(one, tree, is_leaf=lambda x: isinstance(x, Seated))


def _timestep(timestep: TimeStep, order: Int[np.ndarray, " agent"]) -> TimeStep:
    by_seat = ("observation", "legal", "reward", "active", "terminated")
    return dataclasses.replace(timestep, **{name: getattr(timestep, name)[:, :, order] for name in by_seat})
