"""Does training treat all names alike? Train, then rename, or rename, then train: the same must come of it.

Learners with weights of their own must be permuted by renaming to the bit; where weights are pooled, sums go
in another order and rounding is allowed.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coplay.algorithms.world_stage import Remembered
from coplay.audit.captured import Round, collector, rounds_from
from coplay.audit.compare import differences, keeps_names, modules, own_tensors, told
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.renamed import circle, renamed_state
from coplay.audit.subject import Budget, Subject
from coplay.envs.seats import renamed
from coplay.types import Board, Environment, Key, TrainState

UPDATES = 3
POOLED = 1e-4  # relative
BY_PLACE = "weights do not say who is who (`identity`), so that chance goes by seat"


def renamed_training(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Train, then rename; rename, then train: the same weights, memories, optimisers and figures?"""
    statistic = f"weights, learners' state and figures of {UPDATES} updates, renamed after against before"
    job, rounds = subject.learning_job(), subject.rounds()
    if len(set(subject.lineup)) > 1 or len(set(subject.env.alike)) > 1 or subject.env.package:
        return not_run(statistic, "seats are not alike to the bit here")
    turn, begun = circle(job.env.num_agents), rounds[0].before
    if not keeps_names(begun.params):
        return not_run(statistic, BY_PLACE)
    updates = UPDATES if own_tensors(begun.params) else 1
    is_pooled = any(not module.is_own for module in modules(begun.params))
    other = renamed(job.env, turn.tolist())
    parts = subject.parts()._replace(collect=collector(job, other))
    again = rounds_from(job, parts, _turned(job.env, begun, turn), updates)
    after = _turned(job.env, rounds[updates - 1].after, turn)
    figures = [_figures(*pair, turn) for pair in zip(rounds, again, strict=False)]
    first = after.params, after.learner, [now for now, _ in figures]
    second = again[-1].after.params, again[-1].after.learner, [now for _, now in figures]
    count = len(jax.tree.leaves(first))
    found = [
        one
        for left, right in zip(first, second, strict=True)
        for one in differences(left, right, POOLED if is_pooled else 0.0)
    ]
    if not found:
        return exact(statistic, 0, count, "")
    same_play = _plays_alike(rounds[0], again[0], turn)
    room, stage = ("algorithms", "learning") if same_play else ("training", "play")
    what = f"{told(found)} depends on who is called what; {stage} is where it begins"
    return exact(statistic, len(found), count, what, room=room)


def _turned(env: Environment, state: TrainState, turn: np.ndarray) -> TrainState:
    with_seed = jax.tree.map(lambda x: x[None], state)
    other = jax.tree.map(lambda x: x[0], renamed_state(env, with_seed, turn))

    def remembered(x: Any) -> Any:
        return _other_moves(env, x, turn) if isinstance(x, Remembered) else x

    learner = jax.tree.map(remembered, other.learner, is_leaf=lambda x: isinstance(x, Remembered))
    return dataclasses.replace(other, learner=learner)


def _other_moves(env: Environment, kept: Remembered, turn: np.ndarray) -> Remembered:
    """Moves that a model of the game remembers, [env, slot, agent, ...], under other names."""

    def board(x: Board) -> Board:
        return dataclasses.replace(x, players=x.players[:, :, turn], here=x.here[:, :, turn])

    moves, happened = kept.moves, kept.moves.happened
    moves = dataclasses.replace(
        moves,
        state=jax.vmap(jax.vmap(lambda state: env.rename(state, jnp.asarray(turn))))(moves.state),
        before=board(moves.before),
        after=board(moves.after),
        action=moves.action[:, :, turn],
        is_legal=moves.is_legal[:, :, turn],
        happened=dataclasses.replace(
            happened, step=happened.step[:, :, turn], reward=happened.reward[:, :, turn]
        ),
    )
    return dataclasses.replace(kept, moves=moves)


def _figures(one: Round, other: Round, turn: np.ndarray) -> tuple[dict, dict]:
    """A round's figures that seats have of their own, the first ones renamed; what is the same for all seats
    may be of rows that were drawn."""
    first, second = ({name: np.asarray(x) for name, x in found.metrics.items()} for found in (one, other))
    by_seat = [
        name
        for name, x in first.items()
        if x.shape == turn.shape and any((y != y[0]).any() for y in (x, second[name]))
    ]
    return {name: first[name][turn] for name in by_seat}, {name: second[name] for name in by_seat}


def _plays_alike(one: Round, other: Round, turn: np.ndarray) -> bool:
    """Whether the first round is the same under other names."""
    first, second = one.trajectory.steps, other.trajectory.steps
    rewards = np.asarray(first.after.reward)[..., turn], np.asarray(second.after.reward)
    actions = np.asarray(first.decision.action)[..., turn], np.asarray(second.decision.action)
    return np.array_equal(*rewards) and np.array_equal(*actions)


NARROWER = (  # what would explain that training as a whole goes by names
    *("renaming", "views", "starts_apart", "starts_scaled", "equal_terms", "repeats", "samples", "draws"),
    *("steps_taken", "permuted_ids"),
    *("own_reward", "turns", "twins", "rows", "boundaries", "opponent_rows", "world_rows", "imagined_rows"),
    *("own_rows", "sight", "histories", "departed", "world_names", "references", "normaliser"),
)
RENAMED_TRAINING = (
    Check(
        "renamed_training",
        "pipeline",
        "Does training treat all names alike?",
        "exact",
        "training",
        renamed_training,
        NARROWER,
    ),
)
