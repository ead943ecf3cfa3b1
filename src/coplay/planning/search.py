"""A batch of tree searches in lockstep. It is given a model of the world and knows no game and no network.

One simulation: walk down by the actions that selection has marked, take the marked action in the world at
the end of the way, look at what comes of it, add that as a node, and count the walk's return at every node
on the way. Only those nodes change, so only they are marked anew, and walking down is nothing but following
marks. Ways differ in length: the nodes of all of them are counted as one list, in pieces of equal size.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.planning import tree as trees
from coplay.planning.packing import Packing, packing_of
from coplay.planning.selection import (
    best_action,
    estimated_q,
    gumbel_scores,
    halving_schedule,
    most_visited,
    noisy_scores,
    puct_scores,
)
from coplay.planning.tree import NO_CHILD, Nodes, Path, Tree
from coplay.types import Key, PyTree, pytree


class Model(NamedTuple):
    """The world of a search, for a whole batch at once. States are pytrees of plain arrays."""

    look: Callable  # state, keys [group] -> state, Outlook; may note in the state what it drew for this node
    step: Callable  # state, action [search], keys [group] -> state, reward [search], is_over [search]


@pytree
class Outlook:
    """What the planner thinks of a state before it searches."""

    prior: Float[Array, "search action"]  # probabilities
    legal: Bool[Array, "search action"]
    value: Float[Array, " search"]


@dataclasses.dataclass(frozen=True)
class SearchConfig:
    simulations: int = 32
    exploration: float = 1.0  # c of pUCT
    discount: float = 0.95
    max_depth: int = 32  # a walk ends here with the value of what it sees
    root: Literal["puct", "gumbel"] = "puct"
    q_mode: Literal["value", "reference"] = "value"  # untried: the node's value; or total / (N + 1)

    def __post_init__(self):
        for name in ("simulations", "max_depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount={self.discount} must lie between 0 and 1")


@pytree
class Searched:
    """What a search found at its root."""

    visits: Float[Array, "search action"]
    q: Float[Array, "search action"]  # of actions not tried: the root's value
    value: Float[Array, " search"]
    prior: Float[Array, "search action"]
    depth: Float[Array, " search"]  # mean length of the walks
    choice: Int[Array, " search"]  # the action visited most


@pytree
class Chance:
    """Draws that hold for a whole search."""

    tie: Float[Array, "action search"]
    gumbel: Float[Array, "action search"]


def search(model: Model, config: SearchConfig, state: PyTree, keys: Key) -> Searched:
    """`config.simulations` walks from `state`, in every search of the batch.

    `keys` [group] are for equal parts of the batch, in order: a part's draws go with its key.
    """
    root_keys, tie_keys, gumbel_keys, walk_keys = _split(keys, 4)
    state, outlook = model.look(state, root_keys)
    batch, num_actions = outlook.prior.shape
    shape = (num_actions, batch)
    chance = Chance(
        tie=drawn(jax.random.uniform, tie_keys, shape, axis=1),
        gumbel=drawn(jax.random.gumbel, gumbel_keys, shape, axis=1),
    )
    frame = Frame(model, config, packing_of(state), chance, jnp.arange(batch, dtype=jnp.int32))
    tree = frame.planted(state, outlook)

    def one_simulation(index, carry):
        tree, path, depth = carry
        keys = jax.vmap(jax.random.fold_in, (0, None))(walk_keys, index)
        tree, path = frame.simulate(tree, path, index + 1, keys)
        return tree, path, depth + path.length

    start = (tree, trees.empty_path(config.max_depth, batch), jnp.zeros(batch, jnp.int32))
    tree, _, depth = jax.lax.fori_loop(0, config.simulations, one_simulation, start)
    root = trees.nodes_at(tree, frame.searches)
    return Searched(
        visits=root.visits.T,
        q=estimated_q(root).T,
        value=root.value,
        prior=jnp.maximum(root.prior, 0.0).T,
        depth=depth / config.simulations,
        choice=most_visited(root, frame.preference(root)),
    )


def _split(keys: Key, count: int) -> list[Key]:
    split = jax.vmap(lambda key: jax.random.split(key, count), out_axes=1)(keys)
    return [split[index] for index in range(count)]


def drawn(draw: Callable, keys: Key, shape: tuple[int, ...], axis: int = 0) -> Array:
    """Draws of that shape, whose axis of searches is made of equal parts, one for each key."""
    part = list(shape)
    part[axis] = shape[axis] // keys.shape[0]
    each = jax.vmap(lambda key: draw(key, tuple(part)), out_axes=axis)(keys)
    return each.reshape(shape)


class Frame(NamedTuple):
    """What stays the same through all simulations of a search."""

    model: Model
    config: SearchConfig
    packing: Packing
    chance: Chance
    searches: Int[Array, " search"]  # their numbers, which are also the rows of their roots

    @property
    def batch(self) -> int:
        return self.searches.shape[0]

    def planted(self, state: PyTree, outlook: Outlook) -> Tree:
        """A tree that is only its root."""
        num_nodes, num_actions = self.config.simulations + 1, outlook.prior.shape[1]
        tree = trees.empty(num_nodes, self.batch, num_actions, self.packing)
        tree = self.grown(tree, jnp.int32(0), outlook, jnp.zeros(self.batch), state)
        return self.with_root_marked(tree, jnp.int32(0))

    def simulate(self, tree: Tree, path: Path, number: Int[Array, ""], keys: Key) -> tuple[Tree, Path]:
        """One walk down, one new node called `number`, and the walk's return counted on its way."""
        step_keys, look_keys = _split(keys, 2)
        path = self.walk(tree, path)
        row = trees.take(path.row.ravel(), (path.length - 1) * self.batch + self.searches)
        action, _ = trees.read_mark(tree, row)
        state = trees.states_at(tree, self.packing, row)
        state, reward, is_over = self.model.step(state, action, step_keys)
        state, outlook = self.model.look(state, look_keys)
        tree = self.grown(tree, number, outlook, reward, state)
        # An ended game has no node to go on from: the action stays without a child and is taken anew.
        child = jnp.where(is_over, NO_CHILD, number)
        tree = dataclasses.replace(tree, child=trees.put(tree.child, row * tree.num_actions + action, child))
        value = jnp.where(is_over, 0.0, outlook.value)
        path = self.with_returns(tree, path, reward + self.config.discount * value)
        return self.with_root_marked(self.counted(tree, path), number), path

    def grown(self, tree: Tree, number: Int[Array, ""], outlook: Outlook, reward, state: PyTree) -> Tree:
        prior = jnp.where(outlook.legal, outlook.prior, -1.0).T
        zeros = jnp.zeros_like(prior)
        nodes = Nodes(prior, zeros, zeros, jnp.ones_like(reward), outlook.value)
        return trees.add(
            tree, number, nodes, reward, self.choice(nodes, self.chance.tie), self.packing.pack(state)
        )

    # --- marks ---

    def choice(self, nodes: Nodes, tie: Float[Array, "action node"]) -> Int[Array, " node"]:
        """What pUCT tries next."""
        return best_action(puct_scores(nodes, self.config.exploration, self.config.q_mode), tie)

    def with_root_marked(self, tree: Tree, made: Int[Array, ""]) -> Tree:
        """Gumbel's choice at the root after so many simulations; pUCT's is marked as anywhere else."""
        if self.config.root == "puct":
            return tree
        schedule = jnp.asarray(halving_schedule(self.config.simulations + 1, tree.num_actions))
        root = trees.nodes_at(tree, self.searches)
        action = best_action(gumbel_scores(root, self.chance.gumbel, schedule[made]), self.chance.tie)
        return self.marked(tree, self.searches, action)

    def preference(self, root: Nodes) -> Float[Array, "action search"]:
        """What tells equally visited actions apart."""
        return noisy_scores(root, self.chance.gumbel) if self.config.root == "gumbel" else self.chance.tie

    def marked(self, tree: Tree, row: Int[Array, " node"], action: Int[Array, " node"]) -> Tree:
        mark = trees.marked(tree, action, trees.children_at(tree, row, action))
        return dataclasses.replace(tree, mark=trees.put(tree.mark, row, mark))

    # --- ways ---

    def walk(self, tree: Tree, path: Path) -> Path:
        """Follow the marks from the root to an action that has not been tried, or as deep as allowed.

        It is written over the last walk's path, of which nothing beyond the new length is read.
        """
        path = dataclasses.replace(path, length=jnp.zeros_like(path.length))
        start = (path, self.searches, jnp.ones(self.batch, bool), jnp.int32(0))

        def goes_on(carry):
            _, _, is_walking, depth = carry
            return (depth < self.config.max_depth) & jnp.any(is_walking)

        def one_step(carry):
            path, row, is_walking, depth = carry
            _, child = trees.read_mark(tree, row)
            path = dataclasses.replace(path, row=path.row.at[depth].set(row), length=path.length + is_walking)
            is_walking = is_walking & (child != NO_CHILD)
            row = jnp.where(is_walking, child * self.batch + self.searches, row)
            return path, row, is_walking, depth + 1

        return jax.lax.while_loop(goes_on, one_step, start)[0]

    def with_returns(self, tree: Tree, path: Path, at_end: Float[Array, " search"]) -> Path:
        """The discounted return of the walk from every node on, each reward once."""
        start = (path.returned, at_end, jnp.max(path.length) - 1)

        def one_step(carry):
            returned, following, depth = carry
            returned = returned.at[depth].set(following)
            earlier = trees.take(tree.reward, path.row[depth]) + self.config.discount * following
            return returned, jnp.where(depth < path.length, earlier, following), depth - 1

        returned, _, _ = jax.lax.while_loop(lambda carry: carry[2] >= 0, one_step, start)
        return dataclasses.replace(path, returned=returned)

    def counted(self, tree: Tree, path: Path) -> Tree:
        """One more visit for every node on every way. All are different rows, so any order will do."""
        ends = jnp.cumsum(path.length)

        def one_piece(carry):
            tree, first = carry
            place = first + self.searches
            is_real = place < ends[-1]
            search = jnp.minimum(jnp.searchsorted(ends, place, side="right"), self.batch - 1)
            depth = jnp.where(is_real, place - (ends[search] - path.length[search]), 0)
            at = depth * self.batch + search
            row, returned = trees.take(path.row.ravel(), at), trees.take(path.returned.ravel(), at)
            return self.visited(tree, search, row, returned, is_real), first + self.batch

        start = (tree, jnp.int32(0))
        return jax.lax.while_loop(lambda carry: carry[1] < ends[-1], one_piece, start)[0]

    def visited(self, tree: Tree, search, row, returned, is_real: Bool[Array, " node"]) -> Tree:
        """One more visit of some nodes and of the action marked there; then they are marked anew."""
        action, _ = trees.read_mark(tree, row)
        old = trees.nodes_at(tree, row)
        taken = action[None] == jnp.arange(tree.num_actions, dtype=jnp.int32)[:, None]
        visits, count = old.visits + taken, old.count + 1.0
        q = jnp.where(taken, old.q + (returned[None] - old.q) / jnp.maximum(visits, 1.0), old.q)
        value = old.value + (returned - old.value) / count
        new = Nodes(old.prior, visits, q, count, value)
        row = jnp.where(is_real, row, tree.count.shape[0])  # beyond the table: left out
        tree = dataclasses.replace(
            tree,
            edges=_with_edge(tree, row, action, new, taken),
            count=trees.put(tree.count, row, count),
            value=trees.put(tree.value, row, value),
        )
        return self.marked(tree, row, self.choice(new, self.chance.tie[:, search]))


def _with_edge(tree: Tree, row, action, new: Nodes, taken: Bool[Array, "action node"]) -> Array:
    """The two numbers that a visit changes in a row of edges."""
    flat, at = tree.edges.ravel(), row * tree.edges.shape[1] + tree.num_actions + action
    flat = trees.put(flat, at, jnp.sum(jnp.where(taken, new.visits, 0.0), axis=0))
    flat = trees.put(flat, at + tree.num_actions, jnp.sum(jnp.where(taken, new.q, 0.0), axis=0))
    return flat.reshape(tree.edges.shape)
