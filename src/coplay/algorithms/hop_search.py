"""HOP's plan for one move: many walks through the true game, against co-players as they are believed to be.

For every tree the co-players' goals are drawn once from the beliefs; inside the tree they act by their models
towards those goals, or on a whim, and only the planner's own moves branch. Searches of all seats, games and
trees are one batch. The planner steps the game's own state, so it sees everything.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms.losses import log_policy
from coplay.algorithms.pursuit import Pursuit, boltzmann_logits
from coplay.algorithms.search_table import Plans, Table
from coplay.opponents.belief import NEVER
from coplay.opponents.goal_policy import NEVER as ILLEGAL
from coplay.opponents.goal_policy import Models, idling, logits_of, sights, wishes
from coplay.planning.search import Model, Outlook, SearchConfig, drawn, search
from coplay.types import Environment, EnvState, Key, PyTree, TimeStep, pytree

Pursue = Any  # own rows with a goal's description [seat, row, feature] -> Q of going after it
Networks = Any  # own rows, own goals: possible and description, all [seat, row, ...] -> logits, value, errand


@pytree
class Guess:
    """What a tree takes the co-players for, drawn once."""

    wants: Float[Array, "search other goal"]  # the higher, the sooner
    whim: Bool[Array, "search other"]  # wants nothing, does anything


@pytree
class Arrived:
    """Where a walk has come to: the game as it is now, and whom it is played with."""

    state: EnvState  # [search, ...]
    timestep: TimeStep
    guess: Guess


@pytree
class Node:
    """What a tree keeps: the game, its company, and what the others do next."""

    state: EnvState
    guess: Guess
    moves: Int[Array, "search agent"]  # of everyone; the planner's own entry is filled in on the way


class Planner(NamedTuple):
    """Whoever plans, with networks of its own and models of the others."""

    env: Environment
    table: Table
    models: Models
    networks: Networks
    pursue: Pursue
    pursuit: Pursuit
    weights: PyTree  # of the models
    rollout: int  # steps that a leaf is played on for; 0: the critic says what it is worth
    open_prior: float  # share that is alike for every legal move, in what the policy would try first
    errand_prior: float  # share of going after the goal worth most, before that
    company: str  # the co-players act by their models, at random, or by the planner's own policy


def plan(
    planner: Planner,
    config: SearchConfig,
    belief: Float[Array, "env seat other goal"],
    whim: Float[Array, "env seat other"],
    timestep: TimeStep,
    state: EnvState,
    keys: Key,
) -> Plans:
    """Search for every seat of every game. `keys` are the seats' own."""
    table = planner.table
    guess_keys, search_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
    guess = _guess(table.spread_seats(belief), table.spread_seats(whim), guess_keys)
    state, timestep = jax.tree.map(table.spread, (state, timestep))
    world = Model(
        look=lambda arrived, keys: _look(planner, config.discount, arrived, keys),
        step=lambda node, action, keys: _step(planner, node, action, keys),
    )
    found = search(world, config, Arrived(state, timestep, guess), search_keys)
    return table.plans(found)


def _guess(belief: Float[Array, "search other goal"], whim: Float[Array, "search other"], keys: Key) -> Guess:
    want_keys, whim_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
    # The greatest of log probability + Gumbel noise is a draw; the order of the rest is a draw without it.
    wants = jnp.log(jnp.maximum(belief, 1e-9)) + drawn(jax.random.gumbel, want_keys, belief.shape)
    return Guess(wants, drawn(jax.random.uniform, whim_keys, whim.shape) < whim)


def _look(planner: Planner, discount: float, arrived: Arrived, keys: Key):
    """What the planner thinks of a moment, and what the others do in it."""
    table, timestep = planner.table, arrived.timestep
    is_wanted = _wanted(planner, arrived)
    has_goal = table.of_others(timestep.active) & ~arrived.guess.whim
    told = jnp.where(has_goal[..., None], is_wanted, 0.0).reshape(has_goal.shape[0], -1)
    own_legal = table.own(timestep.legal)
    errands = wishes(planner.env.goals, timestep)
    possible, description = table.own(errands.possible), table.own(errands.description)
    inputs = jnp.concatenate([table.own(sights(timestep, errands)), told], axis=-1)
    logits, value, errand = planner.networks(*map(table.by_seat, (inputs, possible, description)))
    logits, value, errand = logits.reshape(-1, logits.shape[-1]), value.reshape(-1), errand.reshape(-1)
    if planner.rollout:
        split = jax.vmap(jax.random.split, out_axes=1)(keys)
        keys, value = split[0], _rolled_out(planner, discount, arrived, possible, split[1])
    prior = _prior(planner, timestep, own_legal, logits, errand)
    return _node(planner, arrived, is_wanted, keys), Outlook(prior, own_legal, value)


def _prior(planner: Planner, timestep: TimeStep, legal: Bool[Array, "search action"], logits, errand):
    """What to try first: by the policy, by chance, and by going after the goal that is worth most.

    Far from everything neither a policy nor a few walks by chance find the way; an errand does.
    """
    policy = jnp.exp(log_policy(logits, legal))
    alike = legal / jnp.sum(legal, axis=-1, keepdims=True)
    prior = (1.0 - planner.open_prior) * policy + planner.open_prior * alike
    if planner.errand_prior == 0:
        return prior
    leads_nowhere = (errand < 0) | jnp.isin(errand, jnp.asarray(planner.env.goals.aimless, jnp.int32))
    goes = jax.nn.softmax(_errand_logits(planner, timestep, errand), axis=-1)
    goes = jnp.where(leads_nowhere[:, None], prior, goes)
    return (1.0 - planner.errand_prior) * prior + planner.errand_prior * goes


def _node(planner: Planner, arrived: Arrived, is_wanted: Bool[Array, "search other goal"], keys: Key) -> Node:
    moves = planner.table.everyone(_moves(planner, arrived, is_wanted, keys))
    return Node(arrived.state, arrived.guess, moves)


def _moves(planner: Planner, arrived: Arrived, is_wanted: Bool[Array, "search other goal"], keys: Key):
    """What the co-players do now, drawn once for all that the planner might do."""
    table, timestep = planner.table, arrived.timestep
    legal = table.of_others(timestep.legal)
    logits = {
        "models": lambda: _by_models(planner, timestep, legal, is_wanted),
        "random": lambda: jnp.zeros(legal.shape),
        "self": lambda: _as_planner(planner, timestep, table.of_others(timestep.active)),
    }[planner.company]()
    logits = jnp.where(arrived.guess.whim[..., None], 0.0, logits)
    noise = drawn(jax.random.gumbel, keys, logits.shape)
    return jnp.argmax(jnp.where(legal, logits, ILLEGAL) + noise, axis=-1).astype(jnp.int32)


# --- leaves that are played on -------------------------------------------------------------------


def _rolled_out(
    planner: Planner, discount: float, arrived: Arrived, possible: Bool[Array, "search goal"], keys: Key
) -> Float[Array, " search"]:
    """The best that pursuing one goal after the other brings within so many steps: no critic is asked."""
    goals = range(len(planner.env.goals.names))
    brings = jnp.stack([_pursued(planner, discount, arrived, goal, keys) for goal in goals], axis=1)
    return jnp.max(jnp.where(possible, brings, 0.0), axis=1)


def _pursued(
    planner: Planner, discount: float, arrived: Arrived, goal: int, keys: Key
) -> Float[Array, " search"]:
    """What going after `goal` brings, discounted, the others being what they are thought to be."""

    def one_step(time, carry: tuple[Arrived, Array, Array]):
        arrived, total, weight = carry
        key_sets = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, time), 3), out_axes=1)(keys)
        timestep = arrived.timestep
        node = _node(planner, arrived, _wanted(planner, arrived), key_sets[0])
        logits = _errand_logits(planner, timestep, jnp.full(timestep.first.shape, goal))
        noise = drawn(jax.random.gumbel, key_sets[1], logits.shape)
        action = jnp.argmax(logits + noise, axis=-1).astype(jnp.int32)
        arrived, reward, is_over = _step(planner, node, action, key_sets[2])
        return arrived, total + weight * reward, jnp.where(is_over, 0.0, weight * discount)

    searches = arrived.guess.whim.shape[0]
    start = (arrived, jnp.zeros(searches), jnp.ones(searches))
    return jax.lax.fori_loop(0, planner.rollout, one_step, start)[1]


def _errand_logits(
    planner: Planner, timestep: TimeStep, goal: Int[Array, " search"]
) -> Float[Array, "search action"]:
    """How the planner would go after a goal of its own; what is said for no goal means nothing."""
    table = planner.table
    looks = table.own(wishes(planner.env.goals, timestep).description)
    looks = jnp.take_along_axis(looks, jnp.maximum(goal, 0)[:, None, None], axis=1)[:, 0]
    seen, legal = table.own(timestep.observation), table.own(timestep.legal)
    rows = jnp.concatenate([seen, legal.astype(jnp.float32), looks], axis=-1)
    q = planner.pursue(table.by_seat(rows))
    return boltzmann_logits(planner.pursuit, q.reshape(-1, q.shape[-1]), legal)


# --- co-players ----------------------------------------------------------------------------------


def _wanted(planner: Planner, arrived: Arrived) -> Bool[Array, "search other goal"]:
    """The first goal in each one's order that can still be had."""
    wished = wishes(planner.models.goals, arrived.timestep)
    wants = jnp.where(planner.table.of_others(wished.possible), arrived.guess.wants, NEVER)
    return jax.nn.one_hot(jnp.argmax(wants, axis=-1), wants.shape[-1], dtype=bool)


def _by_models(planner: Planner, timestep: TimeStep, legal: Array, is_wanted: Array) -> Array:
    """Logits of each co-player's actions, by its model."""
    table = planner.table
    goals = planner.models.goals
    description = table.of_others(wishes(goals, timestep).description)
    goal = jnp.sum(jnp.where(is_wanted[..., None], description, 0.0), axis=-2)
    seen = jnp.concatenate([table.of_others(timestep.observation), legal.astype(jnp.float32), goal], axis=-1)
    by_pair = jnp.swapaxes(table.by_seat(seen), 1, 2)  # [seat, other, row, feature]
    logits = jax.vmap(jax.vmap(lambda w, x: logits_of(planner.models, w, x)))(planner.weights, by_pair)
    logits = jnp.swapaxes(logits, 1, 2).reshape(*seen.shape[:2], -1)
    if goals.aimless:
        idles = jnp.any(is_wanted[..., np.array(goals.aimless)], axis=-1, keepdims=True)
        logits = jnp.where(idles, jnp.where(idling(goals, legal) > 0, 0.0, ILLEGAL), logits)
    return logits


def _as_planner(planner: Planner, timestep: TimeStep, is_here: Bool[Array, "search other"]) -> Array:
    """Logits by the planner's own policy in each co-player's place, with an open mind about everyone else."""
    table = planner.table
    rows = table.of_others(sights(timestep, wishes(planner.env.goals, timestep)))
    num_others, num_goals = is_here.shape[1], len(planner.env.goals.names)
    after_it = (np.arange(num_others)[:, None] + np.arange(1, num_others + 1)[None]) % (num_others + 1)
    everyone = jnp.concatenate([is_here, jnp.ones_like(is_here[:, :1])], axis=1)  # the planner sits last
    open_mind = jnp.repeat(everyone[:, after_it] / num_goals, num_goals, axis=-1)
    asked = jnp.concatenate([rows, open_mind], axis=-1)
    flat = table.by_seat(asked).reshape(len(table.seats), -1, asked.shape[-1])
    nothing = jnp.zeros((*flat.shape[:2], num_goals, planner.env.goals.features))
    logits, *_ = planner.networks(flat, jnp.zeros(nothing.shape[:-1], bool), nothing)
    return logits.reshape(*is_here.shape, -1)


def _step(planner: Planner, node: Node, action: Int[Array, " search"], keys: Key):
    table = planner.table
    joint = table.with_own(node.moves, action)
    step_keys = jax.vmap(lambda key: jax.random.split(key, action.shape[0] // keys.shape[0]))(keys).ravel()
    state, after = jax.vmap(planner.env.step)(node.state, joint, step_keys)
    return Arrived(state, after, node.guess), table.own(after.reward), table.own(after.terminated)
