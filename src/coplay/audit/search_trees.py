"""Does a search find what a slow one finds, and break ties by chance?

`planning` is asked on worlds that are tables; a walk through a table can be redone in a few lines of NumPy.
Whether a tree's co-players do what is believed of them is asked in `tree_company.py`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array, Bool, Float, Int

from coplay.audit.captured import quick
from coplay.audit.finding import Check, Effect, Outcome, exact, not_run
from coplay.audit.subject import Budget, Subject
from coplay.experiment import Experiment, algorithms_in_play
from coplay.planning import search as planning
from coplay.planning.search import Model, Outlook, SearchConfig, Searched
from coplay.types import Key, PyTree

STATES, ACTIONS, DEPTH, WALKS, DISCOUNT = 24, 4, 3, 24, 0.5
CLOSE = 1e-5
NEARLY_TIED = 1e-4  # scores nearer than this are left to chance and to rounding, and their trees left out
TIED, UNEVEN = 16_384, 0.02
WORTH = 5.0  # of what is tied
NO_SEARCH = "nobody searches here"


def searchers(experiment: Experiment | None) -> dict[str, Any]:
    """Settings of whoever plans its moves by search, by name."""
    playing = [] if experiment is None else algorithms_in_play(experiment)
    found = {name: getattr(experiment, name) for name in playing if name in ("hop", "hop_plus")}
    return {
        name: config
        for name, config in found.items()
        if config.acts == "search" or getattr(config, "searched_games", 0.0) > 0
    }


# --- trees of tables -----------------------------------------------------------------------------


class World(NamedTuple):
    """A world as tables. The last three states are a chain: one legal move each, which pays 1, 2 and 4."""

    following: Int[np.ndarray, "state action"]
    reward: Float[np.ndarray, "state action"]
    is_over: Bool[np.ndarray, "state action"]
    legal: Bool[np.ndarray, "state action"]
    prior: Float[np.ndarray, "state action"]
    value: Float[np.ndarray, " state"]


def search(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does a search find what a slow one finds?"""
    statistic = "roots of small trees whose visits, Q or value are not those of a slow search"
    settings = searchers(subject.experiment)
    if not settings:
        return not_run(statistic, NO_SEARCH)
    world, wrong, seen = a_world(key), [], 0
    for config in {_own_manner(config) for config in settings.values()}:
        roots = np.array([*range(STATES), STATES])
        found = jax.tree.map(np.asarray, _searched(world, config, roots, key))
        wrong += _broken_rules(world, config, roots, found) + _wrong_sums(found)
        seen += len(roots) + 1
        if config.root == "puct":
            compared, differing = _other_than_slow(world, config, roots[:-1], found)
            seen, wrong = seen + compared, wrong + differing
    return exact(statistic, len(wrong), seen, "; ".join(wrong[:3]))


def _own_manner(config: Any) -> SearchConfig:
    """How this player searches, but small and in a hurry."""
    return SearchConfig(WALKS, config.exploration, DISCOUNT, DEPTH, config.root, config.q_mode)


def a_world(key: Key) -> World:
    """Illegal moves pay best, and what lies beyond an end is worth most: whoever looks there is found out."""
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    shape = (STATES + DEPTH, ACTIONS)
    legal = random.random(shape) < 0.7
    legal[np.arange(STATES), random.integers(0, ACTIONS, STATES)] = True
    legal[STATES:] = np.arange(ACTIONS) == 1
    reward = random.normal(size=shape) + np.where(legal, 0.0, 9.0)
    reward[STATES:, 1] = 1.0, 2.0, 4.0
    is_over = random.random(shape) < 0.25
    is_over[STATES:, 1] = False, False, True
    following = random.integers(0, STATES, shape)
    following[STATES:, 1] = STATES + 1, STATES + 2, 0
    value = random.normal(size=shape[0])
    value[0], value[STATES:] = 9.0, 0.0
    following = np.where(is_over, 0, following)
    return World(following, reward, is_over, legal, random.dirichlet(np.ones(ACTIONS), shape[0]), value)


def _searched(world: World, config: SearchConfig, roots: Int[np.ndarray, " search"], key: Key) -> Searched:
    tables = jax.tree.map(lambda x: jnp.asarray(x, _PLAIN[x.dtype.kind]), world)

    def look(state: PyTree, keys: Key):
        at = state["at"]
        return state, Outlook(tables.prior[at], tables.legal[at], tables.value[at])

    def step(state: PyTree, action: Int[Array, " search"], keys: Key):
        at = state["at"], action
        return {"at": tables.following[at]}, tables.reward[at], tables.is_over[at]

    def run(roots: Int[Array, " search"], key: Key) -> Searched:
        return planning.search(Model(look, step), config, {"at": roots}, key[None])

    return quick(run)(jnp.asarray(roots, jnp.int32), key)


_PLAIN = {"i": jnp.int32, "f": jnp.float32, "b": jnp.bool_}


def _broken_rules(world: World, config: SearchConfig, roots, found: Searched) -> list[str]:
    """Every walk is counted at the root, and none begins with an illegal move."""
    wrong = []
    for place, root in enumerate(roots):
        if found.visits[place].sum() != config.simulations:
            wrong.append(f"{found.visits[place].sum():g} visits at the root after {config.simulations} walks")
        if found.visits[place][~world.legal[root]].any():
            wrong.append("an illegal move was tried at the root")
    return wrong


def _wrong_sums(found: Searched) -> list[str]:
    """Along the chain, discounted by a half: 1, then 1 + 2/2 = 2, then 2 + 4/4 = 3, and 3 ever after."""
    q = (1.0 + 2.0 + 3.0 * (WALKS - 2)) / WALKS
    value = q * WALKS / (WALKS + 1)  # the root's own estimate, 0, is one more
    if abs(found.q[-1, 1] - q) < CLOSE and abs(found.value[-1] - value) < CLOSE:
        return []
    return [
        f"a chain of one legal move each is worth {found.q[-1, 1]:.4f} and not {q:.4f}: rewards or discount?"
    ]


def _other_than_slow(world: World, config: SearchConfig, roots, found: Searched) -> tuple[int, list[str]]:
    """How many roots could be compared, and which of them came out otherwise."""
    compared, wrong = 0, []
    for place, root in enumerate(roots):
        slow, margin, depth = slow_search(world, config, int(root))
        if margin < NEARLY_TIED:
            continue
        compared += 1
        tried = slow.visits > 0
        same = np.array_equal(slow.visits, found.visits[place]) and abs(depth - found.depth[place]) < CLOSE
        same = same and np.allclose(slow.q[tried], found.q[place][tried], rtol=CLOSE, atol=CLOSE)
        if not (same and np.isclose(slow.value, found.value[place], rtol=CLOSE, atol=CLOSE)):
            told = found.visits[place].astype(int).tolist()
            wrong.append(f"root {root}: visits {told}, and by a slow search {slow.visits.tolist()}")
    return compared, wrong


class SlowNode:
    """A node of the slow search."""

    def __init__(self, world: World, state: int):
        self.state, self.count, self.value = state, 1, float(world.value[state])
        self.visits, self.q = np.zeros(ACTIONS, int), np.zeros(ACTIONS)
        self.children: dict[int, SlowNode] = {}


def slow_search(world: World, config: SearchConfig, state: int) -> tuple[SlowNode, float, float]:
    """One root, one walk after the other: the root, the closest two scores came, the mean length of walks."""
    root, margin, steps = SlowNode(world, state), np.inf, 0
    for _ in range(config.simulations):
        node, way = root, []
        while True:
            action, lead = _best(world, config, node)
            way.append((node, action))
            margin = min(margin, lead)
            if action not in node.children or len(way) == config.max_depth:
                break
            node = node.children[action]
        returned = _arrived(world, config, node, action)
        for node, action in reversed(way):
            returned = float(world.reward[node.state, action]) + config.discount * returned
            _count(node, action, returned)
        steps += len(way)
    return root, margin, steps / config.simulations


def _best(world: World, config: SearchConfig, node: SlowNode) -> tuple[int, float]:
    """The legal move with the greatest Q + c * prior * sqrt(N) / (1 + N(a)), and its lead on the next."""
    means = node.q * node.visits / (node.visits + 1.0)
    q = means if config.q_mode == "reference" else np.where(node.visits > 0, node.q, node.value)
    bonus = config.exploration * world.prior[node.state] * np.sqrt(node.count) / (1.0 + node.visits)
    scores = np.where(world.legal[node.state], q + bonus, -np.inf)
    second, first = np.sort(scores)[-2:]
    return int(np.argmax(scores)), float(first - second)


def _arrived(world: World, config: SearchConfig, node: SlowNode, action: int) -> float:
    """What the future is worth where a walk ends; the place is kept, unless the game was over with it."""
    if world.is_over[node.state, action]:
        return 0.0
    node.children[action] = SlowNode(world, int(world.following[node.state, action]))
    return node.children[action].value


def _count(node: SlowNode, action: int, returned: float) -> None:
    node.count += 1
    node.value += (returned - node.value) / node.count
    node.visits[action] += 1
    node.q[action] += (returned - node.q[action]) / node.visits[action]


# --- ties ----------------------------------------------------------------------------------------


def ties(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is the first of equal moves left to chance?"""
    statistic = "share of first choices among equal moves, less an even share: the largest"
    settings = searchers(subject.experiment)
    if not settings:
        return not_run(statistic, NO_SEARCH)
    config, actions = (
        SearchConfig(simulations=1, root=next(iter(settings.values())).root),
        subject.env.num_actions,
    )
    manners = {"with a key for each search": jax.random.split(key, TIED), "with one key for all": key[None]}
    counts = {manner: _first_choices(config, actions, keys) for manner, keys in manners.items()}
    manner = max(counts, key=lambda manner: np.abs(counts[manner] / TIED - 1.0 / actions).max())
    apart = counts[manner] / TIED - 1.0 / actions
    most = int(np.argmax(np.abs(apart)))
    error = 3.8 * np.sqrt((1.0 - 1.0 / actions) / actions / TIED)
    share = f"{counts[manner][most] / TIED:.0%} {manner}"
    return Outcome(
        statistic,
        threshold=UNEVEN,
        figure=float(apart[most]),
        next=f"{subject.env.action_names[most]} comes first in {share}: what breaks ties?",
        n=len(manners) * TIED,
        p=min(1.0, len(manners) * float(scipy.stats.chisquare(counts[manner]).pvalue)),
        effect=Effect(float(apart[most]), float(apart[most] - error), float(apart[most] + error)),
    )


def _first_choices(config: SearchConfig, actions: int, keys: Key) -> Int[np.ndarray, " action"]:
    """How often each action is tried by searches of one walk, where all is alike and worth something: what
    parts equal scores must not be lost beside them."""

    def look(state: PyTree, keys: Key):
        legal = jnp.ones((TIED, actions), bool)
        return state, Outlook(legal / actions, legal, jnp.full(TIED, WORTH))

    def step(state: PyTree, action: Int[Array, " search"], keys: Key):
        return state, jnp.zeros(TIED), jnp.zeros(TIED, bool)

    def run(keys: Key) -> Int[Array, " search"]:
        found = planning.search(Model(look, step), config, {"at": jnp.zeros(TIED)}, keys)
        return jnp.argmax(found.visits, axis=1)

    return np.bincount(np.asarray(quick(run)(keys)), minlength=actions)


SEARCH_TREES = (
    Check("search", "models", "Does a search find what a slow one finds?", "exact", "planning", search),
    Check("ties", "models", "Is the first of equal moves left to chance?", "test", "planning", ties),
)
