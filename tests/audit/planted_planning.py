"""Defects of what is known of others and of planning: labels, beliefs, searches and the company in a tree.

Several of the functions are bound by name where they are used, so that some are replaced in more than one
place.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp

from coplay.opponents.goals import UNKNOWN
from tests.audit.planted import Planted, replaced, replacing

GOALS, STAGE, HOP = "coplay.opponents.goals", "coplay.algorithms.opponent_stage", "coplay.algorithms.hop"
MINDS, BELIEF = "coplay.opponents.minds", "coplay.opponents.belief"
SEARCH, TREES = "coplay.planning.search", "coplay.algorithms.hop_search"


def everywhere(
    name: str, change: Callable[[Any], Any], *modules: str
) -> Callable[[], AbstractContextManager]:
    """The same function spoiled in each of these modules."""

    @contextlib.contextmanager
    def plant():
        with contextlib.ExitStack() as stack:
            for module in modules:
                stack.enter_context(replaced(module, name, change))
            yield

    return plant


# --- opponents -----------------------------------------------------------------------------------


def swapped_goals(shown_goals):
    def swapped(env, steps):
        told = shown_goals(env, steps)
        return jnp.where(told == UNKNOWN, UNKNOWN, 1 - told)

    return swapped


def uncut_labels(hindsight_labels):
    """What is given away in the next episode is told to the steps of the last."""

    def uncut(shown, is_over, upcoming, lost=None):
        return hindsight_labels(shown, jnp.zeros_like(is_over), upcoming, lost)

    return uncut


def never_turned_over(turned_over):
    return lambda habits, mind, is_over: mind


def of_the_next_one(policies):
    """Every co-player is read as if it sat one place further on."""

    def shifted(models, weights, timestep, wished):
        return jnp.roll(policies(models, weights, timestep, wished), 1, axis=2)

    return shifted


# --- planning ------------------------------------------------------------------------------------


def ends_paid_twice(search):
    def spoiled(model, config, state, keys):
        def step(*arguments):
            state, reward, is_over = model.step(*arguments)
            return state, jnp.where(is_over, 2.0 * reward, reward), is_over

        return search(model._replace(step=step), config, state, keys)

    return spoiled


def first_of_equals(best_action):
    return lambda scores, tie: best_action(scores, jnp.zeros_like(tie))


def all_legal_at_the_root(frame):
    class Spoiled(frame):
        def planted(self, state, outlook):
            return frame.planted(
                self, state, dataclasses.replace(outlook, legal=jnp.ones_like(outlook.legal))
            )

    return Spoiled


def undiscounted(frame):
    class Spoiled(frame):
        def with_returns(self, tree, path, at_end):
            config = dataclasses.replace(self.config, discount=1.0)
            return frame.with_returns(self._replace(config=config), tree, path, at_end)

    return Spoiled


def one_too_shallow(frame):
    """Walks end one move early."""

    class Spoiled(frame):
        def walk(self, tree, path):
            config = dataclasses.replace(self.config, max_depth=self.config.max_depth - 1)
            return frame.walk(self._replace(config=config), tree, path)

    return Spoiled


def drawn_once(drawn):
    """One draw for all searches of a key."""

    def alike(draw, keys, shape, axis=0):
        each = drawn(draw, keys, shape, axis)
        part = shape[axis] // keys.shape[0]
        first = jnp.take(each, jnp.arange(keys.shape[0]) * part, axis=axis)
        return jnp.repeat(first, part, axis=axis)

    return alike


# --- algorithms ----------------------------------------------------------------------------------


def anything(by_models):
    return lambda planner, timestep, legal, is_wanted: jnp.zeros(legal.shape)


def whatever_it_wanted(wanted):
    def spoiled(planner, arrived):
        wants = arrived.guess.wants
        return jax.nn.one_hot(jnp.argmax(wants, axis=-1), wants.shape[-1], dtype=bool)

    return spoiled


def models_of_the_next_one(by_models):
    """A tree's co-players act by each other's models."""

    def spoiled(planner, timestep, legal, is_wanted):
        turned = jax.tree.map(lambda x: jnp.roll(x, 1, axis=1), planner.weights)
        return by_models(planner._replace(weights=turned), timestep, legal, is_wanted)

    return spoiled


def moves_of_the_next_seat(step):
    """In a tree everyone makes the move of whoever sits before it."""

    def spoiled(planner, node, action, keys):
        moved = dataclasses.replace(node, moves=jnp.roll(node.moves, 1, axis=1))
        return step(planner, moved, action, keys)

    return spoiled


def last_round_only(labels):
    """Games that a round cuts off are not told how they went on."""

    def spoiled(settings, before, now):
        unseen = dataclasses.replace(now, shown=jnp.full_like(now.shown, UNKNOWN))
        return labels(settings, before, unseen)

    return spoiled


def planted(number: int, what: str, room: str, check: str, plant) -> Planted:
    return Planted(number, what, room, check, plant, experiment="hop_4h1s_4x4")


PLANNING: tuple[Planted, ...] = (
    planted(
        62,
        "belief not restarted at `first`",
        "opponents",
        "belief",
        replacing(MINDS, "_turned_over", never_turned_over),
    ),
    planted(
        63,
        "stag and hare labels swapped",
        "opponents",
        "labels",
        everywhere("shown_goals", swapped_goals, GOALS, STAGE, HOP),
    ),
    planted(
        68,
        "terminal reward counted twice",
        "planning",
        "search",
        everywhere("search", ends_paid_twice, SEARCH, TREES),
    ),
    planted(
        69,
        "ties go to the first action",
        "planning",
        "ties",
        replacing(SEARCH, "best_action", first_of_equals),
    ),
    planted(
        70,
        "illegal root actions searched",
        "planning",
        "search",
        replacing(SEARCH, "Frame", all_legal_at_the_root),
    ),
    planted(
        71,
        "co-players in the tree act uniformly",
        "algorithms",
        "tree_company",
        replacing(TREES, "_by_models", anything),
    ),
    planted(72, "no discount in the backup", "planning", "search", replacing(SEARCH, "Frame", undiscounted)),
    planted(
        73,
        "vanished prey still chased",
        "algorithms",
        "tree_company",
        replacing(TREES, "_wanted", whatever_it_wanted),
    ),
    planted(
        101,
        "labels from the next episode",
        "opponents",
        "labels",
        everywhere("hindsight_labels", uncut_labels, GOALS, STAGE),
    ),
    planted(
        102,
        "co-players read by the next one's model",
        "opponents",
        "belief",
        replacing(MINDS, "policies", of_the_next_one),
    ),
    planted(
        103, "walks end one move early", "planning", "search", replacing(SEARCH, "Frame", one_too_shallow)
    ),
    planted(
        104, "one tie-break for all searches", "planning", "ties", replacing(SEARCH, "drawn", drawn_once)
    ),
    planted(
        105,
        "co-players in the tree act by the next one's model",
        "algorithms",
        "tree_company",
        replacing(TREES, "_by_models", models_of_the_next_one),
    ),
    planted(
        106,
        "moves in the tree given to the next seat",
        "algorithms",
        "tree_company",
        replacing(TREES, "_step", moves_of_the_next_seat),
    ),
    planted(
        107,
        "labels stop where a round does",
        "algorithms",
        "labels",
        replacing(STAGE, "_labels", last_round_only),
    ),
)
