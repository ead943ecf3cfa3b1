"""Company to learn in: in a share of the games some seats follow orders, and go after a drawn goal.

Whoever learns only among players like itself meets no stranger. Orders (`orders.py`) are carried out by what
`pursuit.py` learns from everyone's steps, so that no scripted player is needed. A company stays together for
some episodes; then others are drawn, and what was known of the former ones is forgotten.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from coplay.algorithms.actor_critic import draw_actions
from coplay.algorithms.orders import DRAWS, FREE, WHIM, drawn_orders, renewed
from coplay.algorithms.pursuit import Pursuit, ordered_policy
from coplay.algorithms.targets import in_the_game
from coplay.opponents.belief import evenly
from coplay.opponents.goal_policy import idling, wishes
from coplay.types import Decision, Environment, Key, Seated, TimeStep, Transition, pytree, stream


class Company(NamedTuple):
    """How company is drawn."""

    env: Environment
    seats: tuple[int, ...]
    share: float  # of games in which some follow orders
    new: float  # chance that an episode begins with others
    has_whims: bool  # some are ordered to do anything


@pytree
class Orders:
    order: Int[Array, "env seat"]  # the goal each is told to pursue, FREE or WHIM
    met: Bool[Array, " env"]  # false before the first game


def no_orders(company: Company, num_envs: int) -> Orders:
    order = jnp.full((num_envs, len(company.seats)), FREE, jnp.int32)
    return Orders(order, jnp.zeros(num_envs, bool))


def all_free(orders: Orders) -> Orders:
    """When it counts nobody follows orders."""
    return dataclasses.replace(orders, order=jnp.full_like(orders.order, FREE))


def greeted(
    company: Company, identity: Int[Array, " seat"], orders: Orders, timestep: TimeStep, key: Key
) -> tuple[Orders, Bool[Array, " env"]]:
    """New company in the games where an episode begins and chance says so; and which games those are."""
    first, goals = timestep.first, company.env.goals
    draws = jax.random.uniform(stream(key, "game"), (first.shape[0], 1 + DRAWS))
    is_new = first & (~orders.met | (draws[:, 0] < company.new))
    drawn = drawn_orders(goals, company.share, company.has_whims, identity, draws[:, 1:], stream(key, "seat"))
    order = jnp.where(is_new[:, None], drawn, orders.order)
    possible = wishes(goals, timestep).possible[:, np.array(company.seats)]
    order = renewed(goals, identity, order, possible, stream(key, "renew"))
    return Orders(order, orders.met | first), is_new


def obeying(
    company: Company,
    pursuit: Pursuit,
    weights: Seated,
    identity: Int[Array, " seat"],
    free: Decision,
    order: Int[Array, "env seat"],
    timestep: TimeStep,
    key: Key,
) -> Decision:
    """What is done: by those under orders what they are told, by the others what they decided. Who is ordered
    to be after nothing idles, who is on a whim does anything."""
    policy = ordered_policy(pursuit, weights, timestep, order)
    goals, legal = company.env.goals, timestep.legal[:, np.array(company.seats)]
    if goals.aimless:
        aimless = jnp.asarray(np.isin(np.arange(len(goals.names)), goals.aimless))
        policy = jnp.where(aimless[jnp.maximum(order, 0)][..., None], idling(goals, legal), policy)
    policy = jnp.where((order == WHIM)[..., None], evenly(legal), policy)
    action = draw_actions(key, identity, policy)
    is_free = order == FREE
    return dataclasses.replace(
        free,
        action=jnp.where(is_free, free.action, action),
        policy=jnp.where(is_free[..., None], free.policy, policy),
    )


def is_free(steps: Transition, seats: tuple[int, ...]) -> Bool[Array, "time env seat"]:
    """Rows of a player in the game that decided for itself."""
    return in_the_game(steps, seats) & (steps.decision.notes["order"] == FREE)


def has_aim(steps: Transition, seats: tuple[int, ...]) -> Bool[Array, "time env seat"]:
    """Rows of a player in the game that was after something, its own choice or ordered."""
    return in_the_game(steps, seats) & (steps.decision.notes["order"] != WHIM)
