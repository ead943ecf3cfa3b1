"""The parts of HOP+, how their weights begin, and what is remembered, noted and read while it plays."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from coplay.algorithms import actor_critic
from coplay.algorithms.actor_critic import ActorCritic
from coplay.algorithms.company import Company, no_orders
from coplay.algorithms.hindsight import Selector
from coplay.algorithms.hop_plus_config import HOPPlusConfig
from coplay.algorithms.pursuit import Pursuit, pursuit_of
from coplay.algorithms.readers import OTHERS, Readers, Reading, blank, read_others, readers
from coplay.algorithms.views import own_view
from coplay.nets import world as worlds
from coplay.nets.world import World
from coplay.opponents.goal_policy import those_after, wishes
from coplay.opponents.prior import prior_model
from coplay.opponents.prospects import num_prospects
from coplay.opponents.subgoals import Subgoal
from coplay.types import Environment, Goals, Key, PyTree, Seated, TimeStep, pytree, stacked, stream


class Parts(NamedTuple):
    """What acting and learning share; a part that is switched off is None."""

    env: Environment
    seats: tuple[int, ...]
    config: HOPPlusConfig
    policy: ActorCritic
    reader: Readers | None
    world: World | None
    selector: Selector | None
    company: Company | None
    pursuit: Pursuit | None


@pytree
class HOPPlusMemory:
    """() for a part that is switched off."""

    read: PyTree  # Read: what is remembered of the others
    orders: PyTree  # Orders: who follows which


def parts_of(env: Environment, seats: tuple[int, ...], config: HOPPlusConfig):
    """The parts, and a function that initialises the weights of all of them."""
    reads = config.subgoals == "inferred" and config.policy_reads
    view = _subgoal_view(env, seats, config) if reads else own_view
    # Where rows are mixed, the critic learns from others than the policy does.
    views = {"policy": view, "critic": _another(view) if config.prior else view}
    notes = jax.eval_shape(lambda: {"reading": _empty_reading(env, seats, config)})
    policy, init_policy = actor_critic.actor_critic(env, seats, config, views, notes=notes)
    inits: dict[str, Any] = {"policy": init_policy}
    reader, world, selector, company, pursuit = None, None, None, None, None
    if config.subgoals == "inferred":
        reader, init_reader = readers(env, seats, config, policy.sharing)
        inits["policy"] = _with_readers(policy, init_policy, init_reader, len(seats))
    if config.world == "learned":
        world, inits["world"] = _world_of(env, config)
    if config.prior:
        prior, init_prior = prior_model(env, config.subgoal_size, config.prior_hidden, "action")
        selector = Selector(prior, config)
        inits["prior"] = lambda key: Seated(own={}, common={"prior": init_prior(stream(key, "prior"))})
    if config.ordered_games > 0:
        company = Company(env, seats, config.ordered_games, config.new_company, has_whims=True)
        pursuit, init_pursuit = pursuit_of(env, seats, config, policy.sharing)
        inits["pursuit"] = lambda key: init_pursuit(stream(key, "pursuit"))
    parts = Parts(env, seats, config, policy, reader, world, selector, company, pursuit)

    def notice(params: Seated, memory: HOPPlusMemory, timestep: TimeStep) -> PyTree:
        return noted(parts, params, memory, timestep)[1]

    parts = parts._replace(policy=policy._replace(notice=notice))
    return parts, lambda key: {name: init(key) for name, init in inits.items()}


def _another(view):
    return lambda *seen: view(*seen)


def _empty_reading(env: Environment, seats: tuple[int, ...], config: HOPPlusConfig) -> Reading:
    pairs = (len(seats), env.num_agents - 1)
    numbers = jnp.zeros((*pairs, config.subgoal_size))
    chances = num_prospects(env.reward_values) if config.reads == "pay" and env.reward_values else 0
    return Reading(Subgoal(numbers, numbers), (), jnp.zeros((*pairs, chances)))  # views do not read `kept`


def _with_readers(policy: ActorCritic, init_policy, init_reader, num_seats: int):
    """Readers live among their seat's other weights."""

    def init(key: Key) -> Seated:
        params = init_policy(key)
        weights = policy.sharing.init(init_reader, stream(key, "opponents"), num_seats)
        merged = policy.sharing.weights(params) | {OTHERS: weights}
        return policy.sharing.pack(merged, params.own["seat"])

    return init


def _world_of(env: Environment, config: HOPPlusConfig):
    assert env.entities is not None, "the game has been refused otherwise"
    assert env.reward_values is not None, "the game has been refused otherwise"
    world, init_one = worlds.world_model(
        env.entities, env.num_agents, env.num_actions, env.reward_values, config.world_hidden
    )

    def init(key: Key) -> Seated:
        members = [init_one(k) for k in jax.random.split(stream(key, "world"), config.world_members)]
        return Seated(own={}, common={"members": stacked(members)})

    return world, init


# --- while it plays ------------------------------------------------------------------------------


def open_minded(parts: Parts, num_envs: int) -> HOPPlusMemory:
    return HOPPlusMemory(
        read=blank(parts.reader, num_envs) if parts.reader else (),
        orders=no_orders(parts.company, num_envs) if parts.company else (),
    )


def noted(parts: Parts, params: Seated, memory: HOPPlusMemory, timestep: TimeStep):
    """What is remembered after this moment, and what decisions are based on beside the timestep."""
    notes: dict[str, PyTree] = {}
    if parts.reader is not None:
        read, notes["reading"] = read_others(parts.reader, params, memory.read, timestep)
        memory = HOPPlusMemory(read, memory.orders)
    if parts.company is not None:
        notes["order"] = memory.orders.order
    return memory, notes


def _subgoal_view(env: Environment, seats: tuple[int, ...], config: HOPPlusConfig):
    """What one sees oneself, and what the others seem to be up to, or to be paid next; nothing of those who
    have left and, if it goes by distance, little of those who are far from anything they could be after."""
    others = those_after(seats, env.num_agents)

    def view(timestep: TimeStep, notes: PyTree, seats: tuple[int, ...]) -> Float[Array, "*batch seat row"]:
        is_here = timestep.active[..., others]
        reading = notes["reading"]
        read = reading.pay if config.reads == "pay" else reading.subgoal.mean
        read = jnp.where(is_here[..., None], read, 0.0)
        if config.goal_gate == "distance":
            read = read * closeness(env.goals, timestep)[..., others][..., None]
        flat = read.reshape(*read.shape[:-2], -1)
        return jnp.concatenate([own_view(timestep, (), seats), flat], axis=-1)

    return view


def closeness(goals: Goals, timestep: TimeStep) -> Float[Array, "*batch agent"]:
    """Of every player to the nearest thing it could be after: near 1 on it, one half three steps off."""
    assert goals.away is not None, "the game has been refused otherwise"
    number, steps = goals.away
    wished = wishes(goals, timestep)
    errands = jnp.array([goal for goal in range(len(goals.names)) if goal not in goals.aimless])
    possible, away = wished.possible[..., errands], wished.description[..., errands, number] * steps
    away = jnp.min(jnp.where(possible, away, jnp.inf), axis=-1)
    return jax.nn.sigmoid(3.0 - away)
