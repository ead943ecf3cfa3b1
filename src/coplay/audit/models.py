"""Are the models any good, and what are they made of? Exact checks of fresh ones, judgements of trained ones.

What can be told of any model (members that differ, players that are treated alike) is asked at a small scale.
How good models became is read from a run's own figures over the last fifth of its training; one bad seed is
no verdict, so that a judgement fails only where every seed misses.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.compute as pc
from jaxtyping import Float

from coplay.audit.compare import differences, plain, told
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.minds import MINDS
from coplay.audit.phenomenon import LAST
from coplay.audit.subject import Budget, Subject
from coplay.errors import BadInput
from coplay.nets import world as worlds
from coplay.types import Board, Key, PyTree, Seated

NO_WORLD = "nobody learns a model of the game here"
CLOSE = 1e-5


# --- what a model of the game is made of ---------------------------------------------------------


def ensemble(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do the members of an ensemble start as different models?"""
    statistic = "pairs of members that start with the same weights"
    members = _members(subject.rounds()[0].before.params)
    if members is None:
        return not_run(statistic, NO_WORLD)
    count = jax.tree.leaves(members)[0].shape[0]
    pairs = [(a, b) for a in range(count) for b in range(a)]
    if not pairs:
        return not_run(statistic, "one model is no ensemble")
    same = [pair for pair in pairs if _is_same(members, *pair)]
    what = f"members {same[0][1]} and {same[0][0]} are one model: they will never disagree" if same else ""
    return exact(statistic, len(same), len(pairs), what)


def _members(params: PyTree) -> PyTree | None:
    """Weights [member, ...] of a model of the game."""
    for part in jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, Seated)):
        if isinstance(part, Seated) and "members" in part.common:
            return part.common["members"]
    return None


def _is_same(members: PyTree, one: int, other: int) -> bool:
    drawn = [plain(x) for x in jax.tree.leaves(members) if x.ndim > 2]  # biases may be alike
    return all(np.array_equal(x[one], x[other]) for x in drawn)


def world_names(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does a model of the game foretell the same for players under other names?"""
    statistic = "what is foretold for renamed players, against what is foretold and then renamed"
    one = subject.rounds()[1]
    members = _members(one.before.params)
    if members is None or "world/remembered" not in one.taps:
        return not_run(statistic, NO_WORLD)
    env, config = subject.env, subject.config(subject.learner)
    assert env.entities is not None and env.reward_values is not None, "the game has been refused otherwise"
    world, _ = worlds.world_model(
        env.entities, env.num_agents, env.num_actions, env.reward_values, config.world_hidden
    )
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


# --- how good models became ----------------------------------------------------------------------


def opponent_skill(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are co-players foreseen better than by guessing?"""
    statistic = (
        "share of what can be foreseen of co-players that is: from guessing (0) to their own policy (1)"
    )
    ends = _at_end(subject, ("opponents/surprise", "opponents/true_surprise", "opponents/even_surprise"))
    model, true, even = ends
    worth = even - true
    if np.all(worth < 0.05):
        return not_run(statistic, "there is hardly anything to foresee: co-players play almost evenly")
    skill = (even - model) / np.maximum(worth, 0.05)
    return _judged(
        statistic, skill.mean(axis=1), 0.3, 0.6, "what was learned from (opponent_rows), recall by action"
    )


def world_skill(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does the model of the game foresee boards that can follow?"""
    statistic = "share of foretold boards that could follow"
    (possible,) = _at_end(subject, ("world/possible",))
    return _judged(
        statistic, possible.mean(axis=1), 0.95, 0.99, "heads of the world model, what it remembers"
    )


def world_pay(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does the model of the game know what pays?"""
    statistic = "recall of the reward it knows worst, among those that were paid"
    values = subject.env.reward_values or ()
    names = tuple(f"world/recall/{value:.3g}" for value in values if value)
    if not names:
        return not_run(statistic, NO_WORLD)
    recalls = [end.mean(axis=1) for end in _at_end(subject, names, some=True)]
    worst = np.nanmin(np.stack(recalls), axis=0)
    return _judged(statistic, worst, 0.5, 0.9, "rare rewards in what the world model remembers")


def imagined_pay(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is as much imagined to be paid as is paid?"""
    statistic = "mean imagined reward less the real one, in deviations of the real one, largest seat"
    real, spread, imagined = _at_end(subject, ("real/reward", "real/reward_std", "imagined/reward"))
    shift = np.abs(imagined - real) / np.maximum(spread, 1e-6)
    return _judged(statistic, shift.max(axis=1), 0.5, 0.1, "world_pay, opponent_skill", least=False)


def subgoals_used(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do subgoals say anything, or have they collapsed?"""
    statistic = "nats by which what is read of a co-player differs from what is supposed of everyone"
    (spread,) = _at_end(subject, ("subgoal/spread",))
    return _judged(statistic, spread.mean(axis=1), 0.1, 0.2, "subgoal_weight: is it too large?")


def _at_end(
    subject: Subject, names: tuple[str, ...], some: bool = False
) -> list[Float[np.ndarray, "seed seat"]]:
    """Each figure over the last fifth of training; a check that misses one is not run."""
    if subject.run is None:
        raise BadInput("how good models become is asked of a trained run")
    table = subject.run.read_metrics()
    found = []
    for name in names:
        rows = table.filter(pc.field("metric") == name)
        if rows.num_rows:
            found.append(_last(*(rows[column].to_numpy() for column in ("step", "seed", "seat", "value"))))
    if len(found) < (1 if some else len(names)):
        raise BadInput(f"the run tells nothing of {names[0]}")
    return found


def _last(step: np.ndarray, seed: np.ndarray, seat: np.ndarray, value: np.ndarray) -> np.ndarray:
    late = step >= step.min() + (1.0 - LAST) * (step.max() - step.min())
    seed, seat, value = seed[late], seat[late], value[late]
    seeds, seats = np.unique(seed), np.unique(seat)
    return np.array([[np.nanmean(value[(seed == a) & (seat == b)]) for b in seats] for a in seeds])


def _judged(
    statistic: str,
    by_seed: Float[np.ndarray, " seed"],
    bad: float,
    doubtful: float,
    look: str,
    least: bool = True,
) -> Outcome:
    """Fails where every seed misses, warns where the middle one is not clear of doubt."""
    sign, middle = (1.0 if least else -1.0), float(np.median(by_seed))
    is_bad, is_doubtful = (sign * by_seed < sign * mark for mark in (bad, doubtful))
    verdict = "fail" if is_bad.all() else "warn" if is_doubtful.mean() > 0.5 else "pass"
    return Outcome(
        statistic,
        figure=middle,
        threshold=bad,
        verdict=verdict,
        next=f"{middle:.3g} over {len(by_seed)} seeds; look at {look}",
        n=len(by_seed),
        drawing={
            "kind": "boxes",
            "title": statistic,
            "unit": "",
            "groups": [{"name": "seeds", "values": [float(x) for x in by_seed]}],
        },
    )


MODELS = (
    *MINDS,
    Check("ensemble", "models", "Do members of an ensemble differ?", "exact", "nets", ensemble),
    Check(
        "world_names", "models", "Does the world model treat all names alike?", "exact", "nets", world_names
    ),
    Check(
        "opponent_skill",
        "models",
        "Are co-players foreseen?",
        "judgement",
        "opponents",
        opponent_skill,
        ("opponent_rows", "histories"),
    ),
    Check(
        "world_skill",
        "models",
        "Are foretold boards possible?",
        "judgement",
        "nets",
        world_skill,
        ("world_rows",),
    ),
    Check("world_pay", "models", "Is it known what pays?", "judgement", "nets", world_pay, ("world_rows",)),
    Check(
        "imagined_pay",
        "models",
        "Is as much imagined to be paid as is?",
        "judgement",
        "nets",
        imagined_pay,
        ("world_pay", "imagined_range"),
    ),
    Check("subgoals_used", "models", "Do subgoals say anything?", "judgement", "opponents", subgoals_used),
)
