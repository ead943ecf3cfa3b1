"""Are the models any good, and what are they made of? Exact checks of fresh ones, judgements of trained ones.

What can be told of any model (members that differ, players that are treated alike) is asked at a small scale.
How good models became is asked of a trained run, in games played afresh (`trained_models`, `trained_worlds`).
"""

import jax
import jax.numpy as jnp
import numpy as np

from coplay.audit.beliefs import BELIEFS
from coplay.audit.compare import differences, plain, told
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.goal_labels import GOAL_LABELS
from coplay.audit.learned_world import NO_WORLD, members_of, world_of
from coplay.audit.search_trees import SEARCH_TREES
from coplay.audit.subject import Budget, Subject
from coplay.audit.taught import TAUGHT
from coplay.audit.trained_models import OPPONENTS
from coplay.audit.trained_values import SEARCHES
from coplay.audit.trained_worlds import WORLDS
from coplay.audit.tree_company import TREE_COMPANY
from coplay.nets import world as worlds
from coplay.types import Board, Key, PyTree

CLOSE = 1e-5


# --- what a model of the game is made of ---------------------------------------------------------


def ensemble(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do the members of an ensemble start as different models?"""
    statistic = "pairs of members that start with the same weights"
    members = members_of(subject.rounds()[0].before.params)
    if members is None:
        return not_run(statistic, NO_WORLD)
    count = jax.tree.leaves(members)[0].shape[0]
    pairs = [(a, b) for a in range(count) for b in range(a)]
    if not pairs:
        return not_run(statistic, "one model is no ensemble")
    same = [pair for pair in pairs if _is_same(members, *pair)]
    what = f"members {same[0][1]} and {same[0][0]} are one model: they will never disagree" if same else ""
    return exact(statistic, len(same), len(pairs), what)


def _is_same(members: PyTree, one: int, other: int) -> bool:
    drawn = [plain(x) for x in jax.tree.leaves(members) if x.ndim > 2]  # biases may be alike
    return all(np.array_equal(x[one], x[other]) for x in drawn)


def world_names(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does a model of the game foretell the same for players under other names?"""
    statistic = "what is foretold for renamed players, against what is foretold and then renamed"
    one = subject.rounds()[1]
    members = members_of(one.before.params)
    if members is None or "world/remembered" not in one.taps:
        return not_run(statistic, NO_WORLD)
    env, config = subject.env, subject.config(subject.learner)
    world = world_of(env, config)
    first = jax.tree.map(lambda x: x[0], members)
    moves = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), one.taps["world/remembered"].moves)
    order = jnp.roll(jnp.arange(env.num_agents), 1)
    said = worlds.foreseen(world, first, worlds.rows_of(world, moves.before, moves.action, moves.is_legal))
    board = Board(
        moves.before.players[:, order], moves.before.here[:, order], moves.before.things, moves.before.there
    )
    rows = worlds.rows_of(world, board, moves.action[:, order], moves.is_legal[:, order])
    again = worlds.foreseen(world, first, rows)
    turned = worlds.Foreseen(said.step[:, order], said.reward[:, order], said.there)
    found = differences(turned, again, CLOSE)
    return exact(statistic, len(found), 3, f"{told(found)} is foretold by who is called what")


MODELS = (
    *GOAL_LABELS,
    *BELIEFS,
    *SEARCH_TREES,
    *TREE_COMPANY,
    Check("ensemble", "models", "Do members of an ensemble differ?", "exact", "nets", ensemble),
    Check(
        "world_names", "models", "Does the world model treat all names alike?", "exact", "nets", world_names
    ),
    *TAUGHT,
    *OPPONENTS,
    *WORLDS,
    *SEARCHES,
)
