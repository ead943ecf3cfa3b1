"""HOP+'s plan for one move: a search, or a look one step on, in the game as it is imagined, or as it is.

For every tree the co-players' subgoals are drawn once from what has been read of them; inside the tree they
act by their models, and only the planner's own moves branch. Policy and critic go on reading what was noted
when the plan began: a plan changes nobody's mind.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coplay.algorithms.imagination import Imagination, company, own_games, values
from coplay.algorithms.search_table import Plans, Table
from coplay.planning.search import Model, Outlook, SearchConfig, drawn, search
from coplay.types import EnvState, Key, PyTree, TimeStep, pytree


@pytree
class Arrived:
    """Where a walk has come to, and what everyone was thought to be up to when it began."""

    state: EnvState  # [search, ...]
    timestep: TimeStep
    guess: PyTree  # [search, other, number], or nothing where policies are known
    notes: PyTree  # [search, seat, ...]


@pytree
class Node:
    """What a tree keeps: the game, its company, and what the others do next."""

    state: EnvState
    guess: PyTree
    notes: PyTree
    moves: Int[Array, "search agent"]  # of everyone; the planner's own entry is filled in on the way


class Planner(NamedTuple):
    imagination: Imagination
    params: PyTree
    table: Table
    open_prior: float  # share of what is tried first that is alike for every legal move


def plan(
    planner: Planner, config: SearchConfig, notes: PyTree, timestep: TimeStep, state: EnvState, keys: Key
) -> Plans:
    """Search for every seat of every game. `keys` are the seats' own."""
    guess_keys, search_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
    world = Model(
        look=lambda arrived, keys: _look(planner, arrived, keys),
        step=lambda node, action, keys: _step(planner, node, action, keys),
    )
    start = _start(planner, notes, timestep, state, guess_keys)
    return planner.table.plans(search(world, config, start, search_keys))


def one_step(
    planner: Planner, discount: float, notes: PyTree, timestep: TimeStep, state: EnvState, keys: Key
) -> Plans:
    """What every legal move brings at once and is worth after it, over as many drawn guesses as there are
    trees; chance is the same for every move."""
    table = planner.table
    guess_keys, look_keys, step_keys = jax.vmap(lambda k: jax.random.split(k, 3), out_axes=1)(keys)
    node, outlook = _look(planner, _start(planner, notes, timestep, state, guess_keys), look_keys)

    def brings(action: Int[Array, ""]) -> Float[Array, " search"]:
        everywhere = jnp.full(outlook.value.shape, action, jnp.int32)
        arrived, reward, is_over = _step(planner, node, everywhere, step_keys)
        return reward + discount * jnp.where(is_over, 0.0, _worth(planner, arrived))

    actions = jnp.arange(outlook.legal.shape[-1])
    q = table.gathered(jax.vmap(brings, out_axes=-1)(actions))
    tried = jnp.sum(table.gathered(outlook.legal), axis=2, dtype=jnp.float32)
    return Plans(visits=tried, q=jnp.mean(q, axis=2))


def _start(planner: Planner, notes: PyTree, timestep: TimeStep, state: EnvState, keys: Key) -> Arrived:
    state, timestep, notes = jax.tree.map(planner.table.spread, (state, timestep, notes))
    guess = planner.imagination.guess(notes, own_games(planner.imagination.model), keys)
    return Arrived(state, timestep, jax.tree.map(_as_searches, guess), notes)


def _as_searches(x: Array) -> Array:
    """[seat, row, ...] as [search, ...]."""
    return x.reshape(-1, *x.shape[2:])


def _look(planner: Planner, arrived: Arrived, keys: Key) -> tuple[Node, Outlook]:
    """What the planner thinks of a moment, and what the others do in it."""
    table, timestep = planner.table, arrived.timestep
    guess = jax.tree.map(table.by_seat, arrived.guess)
    inputs = _seen(planner, "policy", arrived)
    log_own, of_others = company(planner.imagination, planner.params, inputs, timestep, guess)
    of_others = _as_searches(of_others)
    moves = jnp.argmax(of_others + drawn(jax.random.gumbel, keys, of_others.shape), axis=-1)
    legal = table.own(timestep.legal)
    alike = legal / jnp.sum(legal, axis=-1, keepdims=True)
    prior = (1.0 - planner.open_prior) * jnp.exp(_as_searches(log_own)) + planner.open_prior * alike
    node = Node(arrived.state, arrived.guess, arrived.notes, table.everyone(moves.astype(jnp.int32)))
    return node, Outlook(prior, legal, _worth(planner, arrived))


def _seen(planner: Planner, name: str, arrived: Arrived) -> Float[Array, "search seat feature"]:
    model = planner.imagination.model
    return model.views[name](arrived.timestep, arrived.notes, model.seats, planner.params["policy"])


def _worth(planner: Planner, arrived: Arrived) -> Float[Array, " search"]:
    model = planner.imagination.model
    rows = own_games(model)(_seen(planner, "critic", arrived))
    return _as_searches(values(model, planner.params["policy"], rows))


def _step(planner: Planner, node: Node, action: Int[Array, " search"], keys: Key):
    table = planner.table
    joint = table.with_own(node.moves, action)
    count = action.shape[0] // len(table.seats)
    step_keys = jax.vmap(lambda key: jax.random.split(key, count))(keys).ravel()
    first = jnp.asarray(np.repeat(table.seats, count), jnp.int32)
    state, after, _ = jax.vmap(planner.imagination.move, (None, 0, 0, 0, 0))(
        planner.params, node.state, joint, step_keys, first
    )
    arrived = Arrived(state, after, node.guess, node.notes)
    return arrived, table.own(after.reward), table.own(after.terminated)
