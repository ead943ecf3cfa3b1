"""What players expected of each other beside what they did, and how much of what can be foreseen that is.

A co-player's own policy is known, so that the best anyone could foresee is, too.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from coplay.audit.subject import Subject
from coplay.errors import BadInput
from coplay.experiment import settings_of
from coplay.opponents.goal_policy import those_after
from coplay.types import Trajectory

LEAST = 1e-9  # chance that anything is given
HARDLY = 0.05  # nats between guessing and knowing, below which there is nothing to foresee
FEWEST = 200  # rows
NOTHING = "there is hardly anything to foresee: co-players do what they often do"


class Foretold(NamedTuple):
    """What co-players did, beside what was expected of them, one row for each who expected something."""

    expected: Float[np.ndarray, "row action"]
    own: Float[np.ndarray, "row action"]  # the co-player's policy
    legal: Bool[np.ndarray, "row action"]
    action: Int[np.ndarray, " row"]
    player: Int[np.ndarray, " row"]  # who did it
    game: Int[np.ndarray, " row"]
    move: Int[np.ndarray, " row"]  # the same number for all who expected it


def foretold_of(subject: Subject) -> list[Foretold]:
    """Of every seed, over co-players that models learn from."""
    return [foretold(games, _teaches(subject, games)) for games in subject.trained_games()]


def _teaches(subject: Subject, games: Trajectory) -> Bool[np.ndarray, "time env agent"]:
    """Who is in the game; of HOP's own seats, only those under orders (`model_rows`)."""
    teaches = np.array(games.steps.before.active)
    assert subject.experiment is not None
    config, seats = settings_of(subject.experiment, subject.learner), subject.seats
    is_hop = getattr(config, "model_rows", "") == "orders" and config.models == "goals"
    if is_hop and config.ordered_games > 0 and len(seats) > 1:
        teaches[..., seats] &= np.asarray(games.steps.decision.notes[subject.learner]["order"]) >= 0
    return teaches


def foretold(games: Trajectory, about: Bool[np.ndarray, "time env agent"]) -> Foretold:
    """About whom, and when, by whoever is in the game and expects something."""
    steps = games.steps
    if isinstance(steps.decision.thoughts.prediction, tuple):
        raise BadInput("nobody foretells what co-players do here")
    expected = np.asarray(steps.decision.thoughts.prediction)  # [time, env, agent, other, action]
    time, envs, agents = expected.shape[:3]
    others = those_after(tuple(range(agents)), agents)
    active = np.asarray(steps.before.active)
    counts = about[:, :, others] & active[..., None] & np.isfinite(expected).all(axis=-1)
    move = np.arange(time * envs * agents).reshape(time, envs, agents)
    game = np.broadcast_to(np.arange(envs)[None, :, None], move.shape)
    player = np.broadcast_to(np.arange(agents)[None, None], move.shape)

    def rows(x: Any) -> np.ndarray:
        return np.asarray(x)[:, :, others][counts]

    if counts.sum() < FEWEST:
        raise BadInput("hardly anything was foretold of anybody")
    own, legal, action = steps.decision.policy, steps.before.legal, steps.decision.action
    return Foretold(expected[counts], rows(own), rows(legal), *map(rows, (action, player, game, move)))


class Skill(NamedTuple):
    """How well co-players were foreseen; surprises in nats."""

    skill: float  # from the guess by how often each action is taken (0) to their own policy (1)
    surprise: float
    best: float
    by_frequency: float
    top1: float
    top3: float
    confusion: Int[np.ndarray, "action likeliest"]

    @property
    def is_foreseeable(self) -> bool:
        return self.by_frequency - self.best >= HARDLY

    @property
    def recall(self) -> Float[np.ndarray, " action"]:
        return np.diag(self.confusion) / np.maximum(self.confusion.sum(axis=1), 1)

    @property
    def precision(self) -> Float[np.ndarray, " action"]:
        return np.diag(self.confusion) / np.maximum(self.confusion.sum(axis=0), 1)

    @property
    def f1(self) -> Float[np.ndarray, " action"]:
        """2 precision recall / (precision + recall)."""
        both = self.confusion.sum(axis=0) + self.confusion.sum(axis=1)
        return 2 * np.diag(self.confusion) / np.maximum(both, 1)

    @property
    def macro_f1(self) -> float:
        """The mean over actions that were taken."""
        return float(self.f1[self.share > 0].mean())

    @property
    def share(self) -> Float[np.ndarray, " action"]:
        """How often each action was taken."""
        return self.confusion.sum(axis=1) / self.confusion.sum()


def skill_of(rows: Foretold) -> Skill:
    surprise, best = surprise_at(rows.expected, rows.action), surprise_at(rows.own, rows.action)
    frequency = surprise_at(by_frequency(rows), rows.action).mean()
    span = max(float(frequency - best.mean()), HARDLY)
    chance = np.take_along_axis(rows.expected, rows.action[:, None], axis=1)
    likelier = (rows.expected > chance).sum(axis=1)
    confusion = np.zeros((rows.expected.shape[1],) * 2, int)
    np.add.at(confusion, (rows.action, rows.expected.argmax(axis=1)), 1)
    return Skill(
        skill=float(frequency - surprise.mean()) / span,
        surprise=float(surprise.mean()),
        best=float(best.mean()),
        by_frequency=float(frequency),
        top1=float((likelier == 0).mean()),
        top3=float((likelier < 3).mean()),
        confusion=confusion,
    )


def surprise_at(
    chance: Float[np.ndarray, "row action"], action: Int[np.ndarray, " row"]
) -> Float[np.ndarray, " row"]:
    return -np.log(np.maximum(np.take_along_axis(chance, action[:, None], axis=1)[:, 0], LEAST))


def by_frequency(rows: Foretold) -> Float[np.ndarray, "row action"]:
    """How often each player takes each action, among those that are legal."""
    taken = np.zeros((rows.player.max() + 1, rows.legal.shape[1]))
    np.add.at(taken, (rows.player, rows.action), 1.0)
    guess = np.where(rows.legal, taken[rows.player], 0.0)
    return guess / np.maximum(guess.sum(axis=1, keepdims=True), LEAST)
