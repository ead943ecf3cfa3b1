"""The tree of a batch of searches: one table, a row per node and search, that is read and written by number.

Row `node * batch + search` holds everything selection needs of a node, side by side, so that a step down or
up the tree is one gather and one scatter for the whole batch. A simulation adds the node with its own number
to every search at once, which is one contiguous write. Nothing here knows a game or a network.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.planning.packing import Packing
from coplay.types import PyTree, pytree

NO_CHILD = -1.0  # children are numbered in the same float32 row, exactly up to 2**24


@pytree
class Nodes:
    """Some rows of the table, by the names of their columns."""

    prior: Float[Array, "search action"]  # probabilities; -1 where an action is illegal
    visits: Float[Array, "search action"]  # N(s, a)
    q: Float[Array, "search action"]  # mean return of those visits
    child: Float[Array, "search action"]  # its number, or NO_CHILD
    count: Float[Array, " search"]  # N(s): visits, counting the one that made the node
    value: Float[Array, " search"]  # mean over those visits, the node's own estimate among them
    reward: Float[Array, " search"]  # earned on the way into the node
    best: Float[Array, " search"]  # the action to be tried next
    next: Float[Array, " search"]  # its child

    @property
    def legal(self) -> Bool[Array, "search action"]:
        return self.prior >= 0.0


class Table(NamedTuple):
    """Nodes as an array [node * batch + search, column]."""

    num_actions: int

    @property
    def width(self) -> int:
        return 4 * self.num_actions + 5

    def join(self, nodes: Nodes) -> Float[Array, "search column"]:
        ends = [nodes.count, nodes.value, nodes.reward, nodes.best, nodes.next]
        wide = [nodes.prior, nodes.visits, nodes.q, nodes.child]
        return jnp.concatenate([*wide, jnp.stack(ends, axis=1)], axis=1)

    def split(self, rows: Float[Array, "search column"]) -> Nodes:
        a = self.num_actions
        wide = [rows[:, k * a : (k + 1) * a] for k in range(4)]
        return Nodes(*wide, *[rows[:, 4 * a + k] for k in range(5)])

    @property
    def pointer(self) -> slice:
        """The columns that a step down reads: reward, best, next."""
        return slice(4 * self.num_actions + 2, 4 * self.num_actions + 5)


@pytree
class Tree:
    rows: Float[Array, "row column"]
    states: Int[Array, "row word"]  # of the world at each node, packed


@pytree
class Path:
    """The way down of one simulation in every search."""

    node: Int[Array, "depth search"]
    action: Int[Array, "depth search"]
    reward: Float[Array, "depth search"]  # earned on the way into `node`
    length: Int[Array, " search"]  # how many actions were taken


def row_of(node: Int[Array, " search"]) -> Int[Array, " search"]:
    """The table's row of each search's node."""
    batch = node.shape[0]
    return node * batch + jnp.arange(batch, dtype=jnp.int32)


def take_rows(table: Array, row: Int[Array, " search"]) -> Array:
    return table.at[row].get(mode="promise_in_bounds", unique_indices=True)


def put_rows(table: Array, row: Int[Array, " search"], new: Array) -> Array:
    return table.at[row].set(new, mode="promise_in_bounds", unique_indices=True)


def put_node(table: Array, number: Int[Array, ""], new: Array) -> Array:
    """All searches' rows of one node, which lie side by side."""
    return jax.lax.dynamic_update_slice_in_dim(table, new, number * new.shape[0], axis=0)


def empty(table: Table, packing: Packing, num_nodes: int, batch: int) -> Tree:
    rows = jnp.zeros((num_nodes * batch, table.width))
    return Tree(rows, jnp.zeros((num_nodes * batch, packing.width), jnp.int32))


def states_at(tree: Tree, packing: Packing, node: Int[Array, " search"]) -> PyTree:
    return packing.unpack(take_rows(tree.states, row_of(node)))
