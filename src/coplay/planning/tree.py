"""The tree of a batch of searches: flat tables, a row for each node of each search.

Row `node * batch + search`. A simulation adds the node of its own number to every search at once, which is
one contiguous write; everything else is read and written by row. What selection compares (priors, visits,
Q of all actions) lies side by side in `edges`, the rest in tables of single numbers, because on a CPU a
gather costs by the number it moves. Nothing here knows a game or a network.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.planning.packing import Packing
from coplay.types import PyTree, pytree

NO_CHILD = -1


@pytree
class Nodes:
    """What selection reads of some nodes, with the nodes last: a CPU then compares many at once."""

    prior: Float[Array, "action node"]  # probabilities; -1 where an action is illegal
    visits: Float[Array, "action node"]  # N(s, a)
    q: Float[Array, "action node"]  # mean return of those visits
    count: Float[Array, " node"]  # N(s): visits, counting the one that made the node
    value: Float[Array, " node"]  # mean over those visits, the node's own estimate among them

    @property
    def legal(self) -> Bool[Array, "action node"]:
        return self.prior >= 0.0


@pytree
class Tree:
    edges: Float[Array, "row column"]  # prior, visits and q of every action
    child: Int[Array, " row_action"]  # number of the node behind every action, or NO_CHILD
    count: Float[Array, " row"]
    value: Float[Array, " row"]
    reward: Float[Array, " row"]  # earned on the way into the node
    mark: Int[Array, " row"]  # the action to be tried next and the node behind it, in one number
    states: Int[Array, "row word"]  # of the world, packed

    @property
    def num_actions(self) -> int:
        return self.edges.shape[1] // 3


def empty(num_nodes: int, batch: int, num_actions: int, packing: Packing) -> Tree:
    rows = num_nodes * batch
    numbers = jnp.zeros(rows)
    return Tree(
        edges=jnp.zeros((rows, 3 * num_actions)),
        child=jnp.full(rows * num_actions, NO_CHILD, jnp.int32),
        count=numbers,
        value=numbers,
        reward=numbers,
        mark=jnp.zeros(rows, jnp.int32),
        states=jnp.zeros((rows, packing.width), jnp.int32),
    )


def add(
    tree: Tree, number: Int[Array, ""], nodes: Nodes, reward, action, state: Int[Array, "search word"]
) -> Tree:
    """A new node of that number in every search; its row of children is empty as it was made."""

    def put(table: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(table, new, number * new.shape[0], axis=0)

    return dataclasses.replace(
        tree,
        edges=put(tree.edges, jnp.concatenate([nodes.prior, nodes.visits, nodes.q]).T),
        count=put(tree.count, nodes.count),
        value=put(tree.value, nodes.value),
        reward=put(tree.reward, reward),
        mark=put(tree.mark, marked(tree, action, jnp.full_like(action, NO_CHILD))),
        states=put(tree.states, state),
    )


def marked(tree: Tree, action: Int[Array, " node"], child: Int[Array, " node"]) -> Int[Array, " node"]:
    return (child + 1) * tree.num_actions + action


def read_mark(tree: Tree, row: Int[Array, " node"]) -> tuple[Int[Array, " node"], Int[Array, " node"]]:
    """The action to be tried next, and the node behind it."""
    mark = take(tree.mark, row)
    return mark % tree.num_actions, mark // tree.num_actions - 1


def nodes_at(tree: Tree, row: Int[Array, " node"]) -> Nodes:
    prior, visits, q = jnp.split(take(tree.edges, row).T, 3)
    return Nodes(prior, visits, q, take(tree.count, row), take(tree.value, row))


def children_at(tree: Tree, row: Int[Array, " node"], action: Int[Array, " node"]) -> Int[Array, " node"]:
    return tree.child.at[row * tree.num_actions + action].get(mode="clip")


def states_at(tree: Tree, packing: Packing, row: Int[Array, " node"]) -> PyTree:
    return packing.unpack(take(tree.states, row))


def take(table: Array, row: Int[Array, " node"]) -> Array:
    return table.at[row].get(mode="promise_in_bounds")


def put(table: Array, row: Int[Array, " node"], new: Array) -> Array:
    """Each row once; rows beyond the table are left out."""
    return table.at[row].set(new, mode="drop", unique_indices=True)


@pytree
class Path:
    """The way down of one simulation in every search."""

    row: Int[Array, "depth search"]
    returned: Float[Array, "depth search"]  # from there on, discounted
    length: Int[Array, " search"]  # how many actions were taken


def empty_path(most: int, batch: int) -> Path:
    return Path(jnp.zeros((most, batch), jnp.int32), jnp.zeros((most, batch)), jnp.zeros(batch, jnp.int32))
