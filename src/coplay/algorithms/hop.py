"""HOP: know what the others want, and plan with it.

Every player keeps a belief about the goal of every other (`opponents`), read from models of what each would
do for each goal. Its policy and critic read those beliefs beside its own row. So that there is something to
infer, some seats follow orders in a share of the games: they go after a drawn goal (`pursuit.py`) and nothing
else. Nothing here has met a scripted player.

Learning, in order: `opponents` (the models, on goals labelled in hindsight), `pursuit` (carrying out orders),
`policy` (PPO: the policy on free rows, the critic on all; in some games a search decided, and it is
followed). When it is scored, a player searches (`planning`).
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms import actor_critic
from coplay.algorithms.actor_critic import ActorCritic
from coplay.algorithms.company import (
    Company,
    Orders,
    all_free,
    greeted,
    has_aim,
    is_free,
    no_orders,
    obeying,
)
from coplay.algorithms.hop_config import HOPConfig
from coplay.algorithms.hop_search import Planner, plan
from coplay.algorithms.opponent_stage import opponent_stage
from coplay.algorithms.orders import FREE
from coplay.algorithms.ppo import Plan, ppo_stage
from coplay.algorithms.pursuit import (
    Pursuit,
    ordered_goal,
    pursuit_of,
    pursuit_stage,
    q_values,
)
from coplay.algorithms.search_table import CHOICES, Plans, Table
from coplay.algorithms.targets import Lesson, usual_lesson
from coplay.errors import BadInput
from coplay.opponents.belief import evenly
from coplay.opponents.between import BETWEEN
from coplay.opponents.goal_policy import Models, models_of, policies, sights, wishes
from coplay.opponents.goals import UNKNOWN, shown_goals
from coplay.opponents.minds import Habits, Mind, beliefs, chosen, open_mind, watched
from coplay.planning.search import SearchConfig
from coplay.training.stages import in_order, on
from coplay.types import (
    ACT,
    PLAY,
    SEES_ALL,
    Algorithm,
    Decision,
    Environment,
    Key,
    PyTree,
    Seated,
    Thoughts,
    TimeStep,
    Transition,
    pytree,
    stream,
)


@pytree
class HOPMemory:
    mind: Mind
    orders: Orders
    told: Int[Array, "env seat other"]  # what somebody says the others are after, or UNKNOWN


class Parts(NamedTuple):
    """What acting, watching and learning share."""

    env: Environment
    seats: tuple[int, ...]
    config: HOPConfig
    models: Models
    habits: Habits
    policy: ActorCritic
    pursuit: Pursuit
    company: Company


def hop(env: Environment, seats: tuple[int, ...], config: HOPConfig, run: Plan) -> Algorithm:
    if env.goals.look is None:
        raise BadInput(f"hop needs a game that shows goals; set observation='entities' for {env.name}")
    if config.between == "removal_count" and env.goals.aimless != (len(env.goals.names) - 1,):
        raise BadInput(
            f"between='removal_count' is for games whose last goal is to do no more, not {env.name}"
        )
    parts, inits = _parts(env, seats, config)
    return Algorithm(
        init=lambda key: {name: init(stream(key, name)) for name, init in inits.items()},
        remember=lambda num_envs: _remember(parts, num_envs),
        act=lambda *arguments: _act(parts, *arguments),
        watch=lambda params, memory, transition: _watch(parts, params, memory, transition),
        learn=_learn(parts, run),
        play=lambda *arguments: _play(parts, *arguments),
        told=lambda memory, goals: _told(parts, memory, goals),
        needs=SEES_ALL,
        reaches=(
            *[(f"policy/{name}", where) for name, where in actor_critic.reach_of(parts.policy)],
            ("opponents", PLAY),
            *([("pursuit/q", ACT)] if config.ordered_games > 0 else []),
        ),
    )


def _parts(env: Environment, seats: tuple[int, ...], config: HOPConfig):
    models, init_models = models_of(env, seats, config.model_hidden, config.models == "goals")
    num_goals, others = len(env.goals.names), env.num_agents - 1
    notes = {
        "belief": jax.ShapeDtypeStruct((len(seats), others, num_goals), jnp.float32),
        "whim": jax.ShapeDtypeStruct((len(seats), others), jnp.float32),
        "order": jax.ShapeDtypeStruct((len(seats),), jnp.int32),
    }

    views = {"policy": _belief_view(env, models), "critic": _worth_view(env, models)}
    policy, init_policy = actor_critic.actor_critic(
        env, seats, config, views, notice=lambda *_: {}, notes=notes
    )
    pursuit, init_pursuit = pursuit_of(env, seats, config, policy.sharing)
    company = Company(env, seats, config.ordered_games, config.new_company, has_whims=config.whim > 0)
    parts = Parts(env, seats, config, models, _habits(config, num_goals), policy, pursuit, company)

    def notice(params, memory: HOPMemory, timestep: TimeStep):
        return _notes(parts, memory, timestep)

    parts = parts._replace(policy=policy._replace(notice=notice))

    def init_opponents(key: Key) -> Seated:
        return policy.sharing.pack(policy.sharing.init(init_models, key, len(seats)), {})

    return parts, {"opponents": init_opponents, "policy": init_policy, "pursuit": init_pursuit}


def _habits(config: HOPConfig, num_goals: int) -> Habits:
    remembers = {"whim_stays": 0.0} if config.between == "none" else {}
    between = BETWEEN[config.between](num_goals)
    return Habits(between, within=config.within == "bayes", whim=config.whim, **remembers)


# --- what networks read --------------------------------------------------------------------------


def _belief_view(env: Environment, models: Models):
    """What one sees oneself, and what the others are believed to want; nothing of those who have left."""

    def view(timestep: TimeStep, notes: PyTree, seats: tuple[int, ...]) -> Float[Array, "*batch seat row"]:
        is_here = timestep.active[..., models.others]
        belief = jnp.where(is_here[..., None], _that_it_wants(notes["belief"], notes["whim"]), 0.0)
        flat = belief.reshape(*belief.shape[:-2], -1)
        own = sights(timestep, wishes(env.goals, timestep))[..., jnp.array(seats), :]
        return jnp.concatenate([own, flat], axis=-1)

    return view


def _that_it_wants(belief: Float[Array, "*pair goal"], whim: Float[Array, "*pair"]):
    """The chance of every goal; what is missing to 1 is the chance that there is none."""
    return (1.0 - whim[..., None]) * belief


def _worth_view(env: Environment, models: Models):
    """The same, and the order one is under: what is it worth to be free here, what to be after that?"""
    believed = _belief_view(env, models)

    def view(timestep: TimeStep, notes: PyTree, seats: tuple[int, ...]) -> Float[Array, "*batch seat row"]:
        order = ordered_goal(env.goals, timestep, notes["order"], seats)
        return jnp.concatenate([believed(timestep, notes, seats), order], axis=-1)

    return view


# --- acting --------------------------------------------------------------------------------------


def _remember(parts: Parts, num_envs: int) -> HOPMemory:
    seats, others = parts.models.others.shape
    return HOPMemory(
        mind=open_mind(parts.habits, num_envs, seats, others),
        orders=no_orders(parts.company, num_envs),
        told=jnp.full((num_envs, seats, others), UNKNOWN, jnp.int32),
    )


def _notes(parts: Parts, memory: HOPMemory, timestep: TimeStep) -> dict[str, Array]:
    believed = beliefs(parts.models, memory.mind, wishes(parts.env.goals, timestep))
    is_told = memory.told != UNKNOWN
    certain = jax.nn.one_hot(memory.told, believed.shape[-1])
    return {
        "belief": jnp.where(is_told[..., None], certain, believed),
        "whim": jnp.where(is_told, 0.0, memory.mind.whim),
        "order": memory.orders.order,
    }


def _act(parts: Parts, params: PyTree, memory: HOPMemory, timestep: TimeStep, state, key: Key):
    """While learning: some seats follow orders, the others are free; in some games moves are planned."""
    memory = _greeted(parts, params, memory, timestep, stream(key, "company"))
    _, free = actor_critic.act(parts.policy, params["policy"], memory, timestep, stream(key, "free"))
    free = _with_searched(parts, params, free, timestep, state, stream(key, "search"))
    identity, order = params["policy"].own["seat"]["identity"], memory.orders.order
    told = stream(key, "told")
    return memory, obeying(
        parts.company, parts.pursuit, params["pursuit"], identity, free, order, timestep, told
    )


def _with_searched(parts: Parts, params: PyTree, free: Decision, timestep: TimeStep, state, key: Key):
    """The same decisions, but planned in the first few games; notes say where."""
    config, num_envs = parts.config, timestep.first.shape[0]
    games = round(num_envs * config.searched_games)
    searched = jnp.broadcast_to((jnp.arange(num_envs) < games)[:, None], free.action.shape)
    free = dataclasses.replace(free, notes=free.notes | {"searched": searched})
    if games == 0:
        return free
    plan_key, draw_key = stream(key, "plan"), stream(key, "draw")
    believed = free.notes["belief"], free.notes["whim"]
    believed, timestep, state = jax.tree.map(lambda x: x[:games], (believed, timestep, state))
    settings = dataclasses.replace(config.search, simulations=config.searched_simulations)
    planner = _planner(parts, params, config.searched_trees, config.searched_errand_prior)
    plans = _planned(planner, params, settings, believed, timestep, state, plan_key)
    policy = plans.visits / jnp.sum(plans.visits, axis=-1, keepdims=True)
    action = actor_critic.draw_actions(draw_key, params["policy"].own["seat"]["identity"], policy)
    chance = jnp.sum(jnp.where(jax.nn.one_hot(action, policy.shape[-1], dtype=bool), policy, 0.0), axis=-1)
    return dataclasses.replace(
        free,
        action=free.action.at[:games].set(action),
        log_prob=free.log_prob.at[:games].set(jnp.log(jnp.maximum(chance, 1e-9))),
        policy=free.policy.at[:games].set(policy),
    )


def _play(parts: Parts, params: PyTree, memory: HOPMemory, timestep: TimeStep, state, key: Key):
    """When it counts: nobody follows orders, and moves are planned."""
    config = parts.config
    memory = dataclasses.replace(memory, orders=all_free(memory.orders))
    _, decision = actor_critic.act(parts.policy, params["policy"], memory, timestep, stream(key, "free"))
    believed = decision.notes["belief"], decision.notes["whim"]
    thoughts = _thoughts(parts, params, *believed, timestep)
    is_searched = jnp.full(decision.action.shape, config.acts == "search")
    notes = decision.notes | {"searched": is_searched}
    if config.acts == "network":
        return memory, dataclasses.replace(decision, notes=notes, thoughts=thoughts)
    planner = _planner(parts, params, config.trees, config.errand_prior)
    plans = _planned(planner, params, config.search, believed, timestep, state, stream(key, "search"))
    action = CHOICES[config.choose](plans, config.trees)
    policy = jax.nn.one_hot(action, plans.q.shape[-1])
    notes |= {"search/q": plans.q, "search/visits": plans.visits}
    return memory, Decision(action, jnp.zeros(action.shape), policy, notes, thoughts)


def _thoughts(
    parts: Parts,
    params: PyTree,
    belief: Float[Array, "env seat other goal"],
    whim: Float[Array, "env seat other"],
    timestep: TimeStep,
) -> Thoughts:
    """What each co-player is thought to want, and what it is expected to do, whatever it is after."""
    weights = parts.policy.sharing.weights(params["opponents"])
    wished = wishes(parts.models.goals, timestep)
    for_goals = jnp.sum(belief[..., None] * policies(parts.models, weights, timestep, wished), axis=-2)
    by_whim = evenly(timestep.legal[:, parts.models.others])
    return Thoughts(
        belief=_that_it_wants(belief, whim),
        prediction=(1.0 - whim[..., None]) * for_goals + whim[..., None] * by_whim,
    )


def _told(parts: Parts, memory: HOPMemory, goals: Int[Array, "env agent"]) -> HOPMemory:
    """For the next move, as if sure of every goal that is named; UNKNOWN ones are left to belief."""
    return dataclasses.replace(memory, told=goals[:, parts.models.others])


def _planned(planner: Planner, params, settings: SearchConfig, believed, timestep, state, key: Key) -> Plans:
    """`believed`: what the others want, and the chance that they want nothing."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, params["policy"].own["seat"]["identity"])
    belief, whim = believed
    return plan(planner, settings, belief, whim, timestep, state, keys)


def _planner(parts: Parts, params: PyTree, trees: int, errand_prior: float) -> Planner:
    config = parts.config
    return Planner(
        env=parts.env,
        table=Table(np.array(parts.seats), parts.models.others, trees),
        models=parts.models,
        networks=lambda *seen: _think(parts, params["policy"], *seen),
        pursue=lambda rows: q_values(parts.pursuit, params["pursuit"], rows),
        pursuit=parts.pursuit,
        weights=parts.policy.sharing.weights(params["opponents"]),
        rollout=config.rollout_steps if config.leaf == "rollout" else 0,
        open_prior=config.open_prior,
        errand_prior=errand_prior,
        company=config.company,
    )


def _think(
    parts: Parts,
    params: Seated,
    rows: Float[Array, "seat row feature"],
    possible: Bool[Array, "seat row goal"],
    description: Float[Array, "seat row goal detail"],
):
    """Logits, value and errand (the goal worth most, or FREE) of every row, by its seat's networks.

    The value is the best of what it is worth to be free and to be after each goal that can still be had:
    what no free player has done lately, somebody under orders has.
    """

    def one_seat(weights, rows, possible, description):
        read = {n: eqx.combine(net, weights[n]) for n, net in parts.policy.networks.items()}
        orders = jnp.concatenate([jnp.zeros_like(description[:, :1]), description], axis=1)
        repeated = jnp.broadcast_to(rows[:, None], (*orders.shape[:2], rows.shape[-1]))
        worth = read["critic"](jnp.concatenate([repeated, orders], axis=-1))[..., 0]
        has_sense = jnp.concatenate([jnp.ones_like(possible[:, :1]), possible], axis=1)
        worth = jnp.where(has_sense, worth, -jnp.inf)
        return read["policy"](rows), jnp.max(worth, axis=1), jnp.argmax(worth, axis=1) + FREE

    return jax.vmap(one_seat)(parts.policy.sharing.weights(params), rows, possible, description)


def _greeted(parts: Parts, params: PyTree, memory: HOPMemory, timestep: TimeStep, key: Key):
    """Where new company comes, minds are open."""
    identity = params["policy"].own["seat"]["identity"]
    orders, is_new = greeted(parts.company, identity, memory.orders, timestep, key)
    fresh = _remember(parts, timestep.first.shape[0])
    return HOPMemory(chosen(is_new, fresh.mind, memory.mind), orders, memory.told)


def _watch(parts: Parts, params: PyTree, memory: HOPMemory, transition: Transition) -> HOPMemory:
    weights = parts.policy.sharing.weights(params["opponents"])
    shown = shown_goals(parts.env, transition)
    mind = watched(parts.models, weights, parts.habits, memory.mind, transition, shown)
    return dataclasses.replace(memory, mind=mind)


# --- learning ------------------------------------------------------------------------------------


def _teachers(parts: Parts):
    """Whose steps co-players' models learn from; None for everyone's."""
    config, own = parts.config, np.array(parts.seats)
    if config.model_rows == "everyone" or config.ordered_games == 0 or len(own) == 1:
        return None

    def ordered(steps: Transition) -> Bool[Array, "time env agent"]:
        everyone = jnp.ones_like(steps.before.active)
        return everyone.at[..., own].set(steps.decision.notes["order"] >= 0)

    return ordered


def _learn(parts: Parts, run: Plan):
    config = parts.config
    usual = usual_lesson(config)

    def was_searched(steps: Transition, seats: tuple[int, ...]) -> Array:
        return steps.decision.notes["searched"]

    lesson = Lesson(is_free, usual.reward, was_searched, has_aim)
    stages = {
        "opponents": opponent_stage(
            parts.env, parts.models, parts.policy.sharing, config, run, _teachers(parts)
        ),
        "pursuit": pursuit_stage(parts.pursuit, config),
        "policy": ppo_stage(parts.env, parts.policy, config, run, lesson),
    }
    return in_order({name: on(name, stage) for name, stage in stages.items()})
