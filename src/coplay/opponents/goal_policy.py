"""Models of co-players that are told a goal: what would this one do, if it wanted that?

Every player has one network for each co-player, in the order they sit after it. A network reads the
co-player's own row (full observability is assumed), what it may do, and a goal's description as seen from
its seat.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from coplay.nets.mlp import MLP
from coplay.types import Environment, Goals, Key, PyTree, TimeStep, pytree, stacked

NEVER = -1e9  # logit of an illegal action


@pytree
class Wishes:
    """What each player could be after: for every player and goal, whether it can be had and how it looks."""

    possible: Bool[Array, "*batch agent goal"]
    description: Float[Array, "*batch agent goal feature"]


class Models(NamedTuple):
    """The shape of all networks; weights come separately, [seat, other, ...]."""

    network: PyTree  # without arrays
    goals: Goals  # as the models are told of them
    others: np.ndarray  # [seat, other]: who sits after each of our seats


def models_of(env: Environment, seats: tuple[int, ...], hidden: tuple[int, ...], is_told: bool = True):
    """The models, and a function that initialises one player's networks.

    Models that are not `is_told` the goal see a blank in its place: plain models of what each does.
    """
    inputs = env.observation_size + env.num_actions + env.goals.features

    def init(key: Key) -> PyTree:
        keys = jax.random.split(key, env.num_agents - 1)
        each = [eqx.filter(MLP(k, inputs, hidden, env.num_actions, 0.01), eqx.is_array) for k in keys]
        return stacked(each)

    network = eqx.partition(MLP(jax.random.key(0), inputs, hidden, env.num_actions, 0.01), eqx.is_array)[1]
    others = those_after(seats, env.num_agents)
    return Models(network, env.goals if is_told else _untold(env.goals), others), init


def those_after(seats: tuple[int, ...], num_agents: int) -> np.ndarray:
    """[seat, other]: everyone else, in the order they sit after each of the seats."""
    return (np.array(seats)[:, None] + np.arange(1, num_agents)[None]) % num_agents


def _untold(goals: Goals) -> Goals:
    """The same goals, of which nothing is said but whether they can be had."""
    look = goals.look
    assert look is not None, "algorithms with goals are refused for games that do not show them"

    def silent(row):
        possible, description = look(row)
        return possible, jnp.zeros_like(description)

    return dataclasses.replace(goals, look=silent, aimless=())


def wishes(goals: Goals, timestep: TimeStep) -> Wishes:
    look = goals.look
    assert look is not None, "algorithms with goals are refused for games that do not show them"
    for _ in range(timestep.active.ndim):
        look = jax.vmap(look)
    return Wishes(*look(timestep.observation))


def sights(timestep: TimeStep, wished: Wishes) -> Float[Array, "*batch agent row"]:
    """What a player goes by when it chooses for itself: its row, what it may do, how each goal looks."""
    goals = wished.description.reshape(*wished.description.shape[:-2], -1)
    return jnp.concatenate([timestep.observation, timestep.legal.astype(jnp.float32), goals], axis=-1)


def policies(
    models: Models, weights: PyTree, timestep: TimeStep, wished: Wishes
) -> Float[Array, "env seat other goal action"]:
    """What every co-player of every seat would do for each of its goals."""
    rows = jnp.concatenate([timestep.observation, timestep.legal.astype(jnp.float32)], axis=-1)
    num_goals = wished.possible.shape[-1]
    rows = jnp.broadcast_to(rows[:, :, None], (*rows.shape[:2], num_goals, rows.shape[-1]))
    seen = jnp.concatenate([rows, wished.description], axis=-1)  # [env, agent, goal, feature]
    by_pair = jnp.moveaxis(seen[:, models.others], 0, 2)  # [seat, other, env, goal, feature]
    logits = jax.vmap(jax.vmap(lambda w, x: logits_of(models, w, x)))(weights, by_pair)
    legal = timestep.legal[:, models.others][:, :, :, None]
    policy = jax.nn.softmax(jnp.where(legal, jnp.moveaxis(logits, 2, 0), NEVER), axis=-1)
    return with_aimless(models.goals, policy, legal)


def logits_of(models: Models, weights: PyTree, seen: Float[Array, "*batch feature"]):
    return eqx.combine(models.network, weights)(seen)


def with_aimless(
    goals: Goals, policy: Float[Array, "*batch goal action"], legal: Bool[Array, "*batch one action"]
):
    """Goals that ask for nothing are not learned: whoever has one idles."""
    if not goals.aimless:
        return policy
    alike = idling(goals, legal)
    is_aimless = np.isin(np.arange(len(goals.names)), goals.aimless)
    return jnp.where(is_aimless.reshape((1,) * (policy.ndim - 2) + (-1, 1)), alike, policy)


def idling(goals: Goals, legal: Bool[Array, "*batch action"]) -> Float[Array, "*batch action"]:
    """Alike over the legal actions that ask for nothing."""
    idle = np.isin(np.arange(legal.shape[-1]), goals.idle)
    allowed = legal & idle.reshape((1,) * (legal.ndim - 1) + (-1,))
    return allowed / jnp.maximum(jnp.sum(allowed, axis=-1, keepdims=True), 1)


def log_chances(
    models: Models,
    weights: PyTree,
    seen: Float[Array, "*rows feature"],
    legal: Bool[Array, "*rows action"],
) -> Float[Array, "*rows action"]:
    """Log probabilities of every action, by a model that was told the goal."""
    logits = jnp.where(legal, logits_of(models, weights, seen), NEVER)
    return jax.nn.log_softmax(logits, axis=-1)
