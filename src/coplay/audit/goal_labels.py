"""Is a player held to have been after what it next gave away? Goals in hindsight, against a slow look ahead.

What a step gave away is read from the board, where the game is one. Models of co-players learn from labels;
what is believed of a co-player before it gives anything away is asked in `beliefs.py`.
"""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from coplay.algorithms import opponent_stage
from coplay.algorithms.hop_config import HOPConfig
from coplay.audit import random_play
from coplay.audit.captured import quick
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.random_play import Moments
from coplay.audit.subject import Budget, Subject
from coplay.experiment import Experiment, algorithms_in_play
from coplay.opponents import goals as hindsight
from coplay.opponents.goals import UNKNOWN
from coplay.training.rollout import is_over
from coplay.types import Decision, Environment, Key, Transition

STEPS, GAMES = 64, 32  # of random play

Labels = Int[np.ndarray, "time env agent"]


class Seen(NamedTuple):
    """What labels follow from."""

    shown: Labels
    is_over: Bool[np.ndarray, "time env"]
    lost: Bool[np.ndarray, "time env agent"]


def labels(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is a player held to have been after what it next gave away?"""
    statistic = "goals given away and labels in hindsight that a slow look ahead does not find"
    env = subject.env
    if env.goals.shown is None or env.goals.look is None:
        return not_run(statistic, "the game as it is set up does not show what players are after")
    moments, steps = _random_play(subject)
    seen = seen_in(env, steps)
    by_board = _shown_on_board(env, moments)
    seen = seen if by_board is None else seen._replace(shown=by_board)
    wrong = _wrong_labels(env, steps, seen)
    if wrong or not _labels_goals(subject.experiment):
        return exact(statistic, len(wrong), seen.shown.size, "; ".join(wrong))
    assert subject.experiment is not None
    wrong = _wrong_lessons(subject, subject.experiment.hop)
    return exact(statistic, len(wrong), seen.shown.size, "; ".join(wrong), room="algorithms" if wrong else "")


def _labels_goals(experiment: Experiment | None) -> bool:
    """Whether somebody's models learn from labels."""
    return (
        experiment is not None
        and "hop" in algorithms_in_play(experiment)
        and experiment.hop.models == "goals"
    )


def _random_play(subject: Subject) -> tuple[Moments, Transition]:
    """[time, env, ...], as moments are walked through, and as steps."""
    moments = subject.moments(STEPS * random_play.GAMES)
    by_game = jax.tree.map(
        lambda x: x.reshape(STEPS, random_play.GAMES, *x.shape[1:])[:, :GAMES], moments._replace(key=())
    )
    nothing = jnp.zeros_like(by_game.after.reward)
    decision = Decision(by_game.action, nothing, by_game.before.legal / by_game.before.legal.shape[-1])
    return by_game, Transition(by_game.before, decision, by_game.after)


def seen_in(env: Environment, steps: Transition) -> Seen:
    """What each row gave away, by the game's word for one row; ends; whether a goal was gone with a step."""
    look, shown = env.goals.look, env.goals.shown
    assert look is not None and shown is not None

    def of_row(before, action, reward, after):
        return shown(before, action, reward, after), jnp.any(look(before)[0] & ~look(after)[0])

    before, after = steps.before, steps.after
    each_row = quick(jax.vmap(jax.vmap(jax.vmap(of_row))))
    told, lost = each_row(before.observation, steps.decision.action, after.reward, after.observation)
    given_away = np.where(np.asarray(before.active), np.asarray(told), UNKNOWN)
    return Seen(given_away, np.asarray(is_over(after)), np.asarray(lost))


def _shown_on_board(env: Environment, moments: Moments) -> Labels | None:
    """Whoever was paid where something vanished was after that; None where goals are no things on a board."""
    entities, names = env.entities, env.goals.names
    if entities is None or not set(entities.kinds) <= set(names):
        return None
    read = quick(jax.vmap(jax.vmap(entities.read)))
    was, now = (jax.tree.map(np.asarray, read(state)) for state in (moments.state, moments.next_state))
    stood = (was.players[..., None] == was.things[..., None, :]) & was.here[..., None]
    is_paid = np.asarray(moments.after.reward)[..., None] > 0
    took = stood & (was.there & ~now.there)[..., None, :] & is_paid
    goal_of = np.array([names.index(entities.kinds[kind]) for kind in entities.kind_of])
    return np.where(took.any(axis=-1), goal_of[np.argmax(took, axis=-1)], UNKNOWN)


def told_later(seen: Seen) -> Labels:
    """Every step's label by looking ahead, step by step, until something is given away, gone or over."""
    label = np.full(seen.shown.shape, UNKNOWN)
    for start, game, agent in np.ndindex(label.shape):
        for step in range(start, len(label)):
            label[start, game, agent] = seen.shown[step, game, agent]
            is_cut = seen.is_over[step, game] or seen.lost[step, game, agent]
            if is_cut or label[start, game, agent] != UNKNOWN:
                break
    return label


def _wrong_labels(env: Environment, steps: Transition, seen: Seen) -> list[str]:
    """The functions that label, wherever they are looked up, against what they should find."""
    none = jnp.full(seen.shown.shape[1:], UNKNOWN, jnp.int32)
    shown, over, lost = (jnp.asarray(x) for x in (seen.shown.astype(np.int32), seen.is_over, seen.lost))
    expected = {
        "goals given away": seen.shown,
        "goals gone": seen.lost,
        "labels": told_later(seen._replace(lost=np.zeros_like(seen.lost))),
        "labels of steady goals": told_later(seen),
    }

    def found(steps: Transition) -> list[dict[str, Any]]:
        return [
            {
                "goals given away": home.shown_goals(env, steps),
                "goals gone": home.lost_goals(env.goals, steps),
                "labels": home.hindsight_labels(shown, over, none)[0],
                "labels of steady goals": home.hindsight_labels(shown, over, none, lost)[0],
            }
            for home in (hindsight, opponent_stage)
        ]

    told = [_differing(env, expected, one) for one in quick(found)(steps)]
    return list(dict.fromkeys(sentence for sentences in told for sentence in sentences))


def _differing(env: Environment, expected: dict[str, np.ndarray], found: dict[str, Any]) -> list[str]:
    wrong = []
    for name, right in expected.items():
        places = np.argwhere(np.asarray(found[name]) != right)
        if len(places):
            step, game, agent = places[0]
            was, is_told = right[tuple(places[0])], np.asarray(found[name])[tuple(places[0])]
            goals = " and not ".join(_named(env, value) for value in (is_told, was))
            wrong.append(f"{name}: {len(places)} differ; game {game}, step {step}, seat {agent}: {goals}")
    return wrong


def _named(env: Environment, goal: Any) -> str:
    is_goal = np.asarray(goal).dtype != bool and goal != UNKNOWN
    return env.goals.names[goal] if is_goal else {UNKNOWN: "none"}.get(goal, str(goal))


def _wrong_lessons(subject: Subject, config: HOPConfig) -> list[str]:
    """What HOP's models learned from, update by update: labels, and the goal that every row was told."""
    env, rounds, wrong = subject.env, subject.rounds(), []
    for last, now in itertools.pairwise(rounds):
        steps = [one.trajectory.steps for one in (last, now)]
        seen = seen_in(env, jax.tree.map(lambda *x: jnp.concatenate(x), *map(_without_notes, steps)))
        seen = seen if config.labels == "steady" else seen._replace(lost=np.zeros_like(seen.lost))
        right = told_later(seen)[: len(seen.shown) // 2]
        rows, played, label = jax.tree.map(np.asarray, now.taps["opponents/round_before"])
        wrong += _differing(
            env, {"labels learned from": right}, {"labels learned from": label.swapaxes(0, 1)}
        )
        description = np.take_along_axis(played.description, np.maximum(label, 0)[..., None, None], axis=3)[
            :, :, :, 0
        ]
        seats = np.flatnonzero(np.array(subject.lineup) == "hop")
        others = (seats[:, None] + np.arange(1, env.num_agents)) % env.num_agents
        told = rows.seen[..., -env.goals.features :]
        differs = (told != np.moveaxis(description[:, :, others], (2, 3), (0, 1))).any(axis=-1) & (
            rows.weight > 0
        )
        if differs.any():
            wrong.append(f"{differs.sum()} rows were told another goal than their label")
    return list(dict.fromkeys(wrong))


def _without_notes(steps: Transition) -> Transition:
    return dataclasses.replace(steps, decision=dataclasses.replace(steps.decision, notes=()))


GOAL_LABELS = (Check("labels", "models", "Are goals told right in hindsight?", "exact", "opponents", labels),)
