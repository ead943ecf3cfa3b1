"""A batch of tree searches in lockstep. It is given a model of the world and knows no game and no network.

One simulation: walk down by the actions that selection has marked, take the marked action in the world at
the end of the way, look at what comes of it, add that as a node, and walk back up. Only nodes on the way
change, so each is marked anew on the way up, and walking down is nothing but following marks.
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
    TIE,
    best_action,
    estimated_q,
    gumbel_scores,
    halving_schedule,
    puct_scores,
)
from coplay.planning.tree import NO_CHILD, Nodes, Path, Table, Tree, row_of
from coplay.types import Key, PyTree, pytree


class Model(NamedTuple):
    """The world of a search, for a whole batch at once. States are pytrees of plain arrays."""

    look: Callable  # state, key -> state, Outlook; may note in the state what it drew for this node
    step: Callable  # state, action [search], key -> state, reward [search], is_over [search]


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
    q_mode: Literal["value", "reference"] = "value"  # of actions not tried yet: their node's value, or 0

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


@pytree
class Chance:
    """Draws that hold for a whole search."""

    tie: Float[Array, "search action"]
    gumbel: Float[Array, "search action"]


def search(model: Model, config: SearchConfig, state: PyTree, key: Key) -> Searched:
    """`config.simulations` walks from `state`, in every search of the batch."""
    root_key, tie_key, gumbel_key, walk_key = jax.random.split(key, 4)
    state, outlook = model.look(state, root_key)
    batch, num_actions = outlook.prior.shape
    chance = Chance(
        tie=TIE * jax.random.uniform(tie_key, (batch, num_actions)),
        gumbel=jax.random.gumbel(gumbel_key, (batch, num_actions)),
    )
    frame = Frame(model, config, Table(num_actions), packing_of(state), chance)
    tree = frame.planted(state, outlook)

    def one_simulation(index, carry):
        tree, depth = carry
        tree, length = frame.simulate(tree, index + 1, jax.random.fold_in(walk_key, index))
        return tree, depth + length

    tree, depth = jax.lax.fori_loop(0, config.simulations, one_simulation, (tree, jnp.zeros(batch, jnp.int32)))
    root = frame.table.split(tree.rows[:batch])
    return Searched(root.visits, estimated_q(root), root.value, root.prior, depth / config.simulations)


class Frame(NamedTuple):
    """What stays the same through all simulations of a search."""

    model: Model
    config: SearchConfig
    table: Table
    packing: Packing
    chance: Chance

    def planted(self, state: PyTree, outlook: Outlook) -> Tree:
        """A tree that is only its root."""
        batch = outlook.value.shape[0]
        tree = trees.empty(self.table, self.packing, self.config.simulations + 1, batch)
        root = self.fresh(outlook, jnp.zeros(batch))
        return self.added(tree, jnp.int32(0), self.marked_root(root, jnp.int32(0)), state)

    def simulate(self, tree: Tree, number: Int[Array, ""], key: Key) -> tuple[Tree, Int[Array, " search"]]:
        """One walk down, one new node called `number`, one walk back."""
        step_key, look_key = jax.random.split(key)
        path, end, action = self.walk(tree)
        state = trees.states_at(tree, self.packing, end)
        state, reward, is_over = self.model.step(state, action, step_key)
        state, outlook = self.model.look(state, look_key)
        tree = self.added(tree, number, self.fresh(outlook, reward), state)
        value = jnp.where(is_over, 0.0, outlook.value)
        tree = self.back_up(tree, path, number, reward, is_over, value)
        root = self.table.split(tree.rows[: value.shape[0]])
        marked = self.table.join(self.marked_root(root, number))
        return dataclasses.replace(tree, rows=trees.put_node(tree.rows, jnp.int32(0), marked)), path.length

    # --- nodes ---

    def fresh(self, outlook: Outlook, reward: Float[Array, " search"]) -> Nodes:
        """A node at its first visit."""
        zeros = jnp.zeros_like(outlook.prior)
        one = jnp.ones_like(reward)
        prior = jnp.where(outlook.legal, outlook.prior, -1.0)
        child = jnp.full_like(prior, NO_CHILD)
        node = Nodes(prior, zeros, zeros, child, one, outlook.value, reward, 0.0 * one, NO_CHILD * one)
        return self.marked(node)

    def marked(self, nodes: Nodes) -> Nodes:
        """With the action that pUCT tries next."""
        scores = puct_scores(nodes, self.config.exploration, self.config.q_mode)
        return _with_best(nodes, best_action(scores, self.chance.tie))

    def marked_root(self, nodes: Nodes, made: Int[Array, ""]) -> Nodes:
        """The root after `made` simulations."""
        if self.config.root == "puct":
            return self.marked(nodes)
        schedule = jnp.asarray(halving_schedule(self.config.simulations + 1, self.table.num_actions))
        scores = gumbel_scores(nodes, self.chance.gumbel, schedule[made])
        return _with_best(nodes, best_action(scores, self.chance.tie))

    def added(self, tree: Tree, number: Int[Array, ""], nodes: Nodes, state: PyTree) -> Tree:
        return Tree(
            rows=trees.put_node(tree.rows, number, self.table.join(nodes)),
            states=trees.put_node(tree.states, number, self.packing.pack(state)),
        )

    # --- ways ---

    def walk(self, tree: Tree) -> tuple[Path, Int[Array, " search"], Int[Array, " search"]]:
        """Follow the marks from the root: the path, and the node and untried action where it ends."""
        batch = self.chance.tie.shape[0]
        most = self.config.max_depth
        nothing = jnp.zeros((most, batch), jnp.int32)
        path = Path(nothing, nothing, jnp.zeros((most, batch)), jnp.zeros(batch, jnp.int32))
        start = (path, jnp.zeros(batch, jnp.int32), jnp.ones(batch, bool), jnp.int32(0))

        def goes_on(carry):
            _, _, is_walking, depth = carry
            return (depth < most) & jnp.any(is_walking)

        def one_step(carry):
            path, node, is_walking, depth = carry
            rows = tree.rows[:, self.table.pointer]
            reward, action, child = trees.take_rows(rows, row_of(node)).T
            path = _noted(path, depth, node, action.astype(jnp.int32), reward, is_walking)
            is_walking = is_walking & (child >= 0)
            return path, jnp.where(is_walking, child.astype(jnp.int32), node), is_walking, depth + 1

        path, _, _, _ = jax.lax.while_loop(goes_on, one_step, start)
        last = path.length - 1
        return path, _at(path.node, last), _at(path.action, last)

    def back_up(
        self,
        tree: Tree,
        path: Path,
        number: Int[Array, ""],
        reward: Float[Array, " search"],
        is_over: Bool[Array, " search"],
        value: Float[Array, " search"],
    ) -> Tree:
        """Add the walk's discounted return to every node on the way, from the end to the root."""
        # An ended game has no node to go on from: the action stays without a child and is taken anew.
        child = jnp.where(is_over, NO_CHILD, number.astype(jnp.float32))
        start = (tree.rows, reward + self.config.discount * value, jnp.max(path.length) - 1)

        def goes_on(carry):
            return carry[2] >= 0

        def one_step(carry):
            rows, returned, depth = carry
            is_on = depth < path.length
            row = row_of(path.node[depth])
            nodes = self.table.split(trees.take_rows(rows, row))
            new = self.marked(_visited(nodes, path.action[depth], returned, depth == path.length - 1, child))
            joined = jnp.where(is_on[:, None], self.table.join(new), self.table.join(nodes))
            earlier = path.reward[depth] + self.config.discount * returned
            return trees.put_rows(rows, row, joined), jnp.where(is_on, earlier, returned), depth - 1

        rows, _, _ = jax.lax.while_loop(goes_on, one_step, start)
        return dataclasses.replace(tree, rows=rows)


def _with_best(nodes: Nodes, action: Int[Array, " search"]) -> Nodes:
    taken = action[:, None] == jnp.arange(nodes.prior.shape[1])[None, :]
    following = jnp.sum(jnp.where(taken, nodes.child, 0.0), axis=1)
    return dataclasses.replace(nodes, best=action.astype(jnp.float32), next=following)


def _visited(nodes: Nodes, action, returned, is_last, child) -> Nodes:
    """One more visit: of the node, and of its `action`, which returned so much."""
    taken = action[:, None] == jnp.arange(nodes.prior.shape[1])[None, :]
    visits = nodes.visits + taken
    gain = (returned[:, None] - nodes.q) / jnp.maximum(visits, 1.0)
    count = nodes.count + 1.0
    return dataclasses.replace(
        nodes,
        visits=visits,
        q=jnp.where(taken, nodes.q + gain, nodes.q),
        child=jnp.where(taken & is_last[:, None], child[:, None], nodes.child),
        count=count,
        value=nodes.value + (returned - nodes.value) / count,
    )


def _noted(path: Path, depth: Int[Array, ""], node, action, reward, is_walking) -> Path:
    return Path(
        node=path.node.at[depth].set(node),
        action=path.action.at[depth].set(action),
        reward=path.reward.at[depth].set(reward),
        length=path.length + is_walking,
    )


def _at(rows: Int[Array, "depth search"], depth: Int[Array, " search"]) -> Int[Array, " search"]:
    return jnp.take_along_axis(rows, depth[None], axis=0)[0]
