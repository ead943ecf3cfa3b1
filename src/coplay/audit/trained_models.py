"""How good did a run's models of its co-players become? Asked of its last weights in games played afresh.

What every player expected of every other stands beside what that one did and how likely it was to: its own
policy is known, so that the best anyone could foresee is, too.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Int

from coplay.audit.by_seed import Shown, at_end, judged, weighed
from coplay.audit.finding import Check, Outcome, not_run
from coplay.audit.subject import Budget, Subject
from coplay.audit.trained_subgoals import SUBGOALS
from coplay.errors import BadInput
from coplay.opponents.goal_policy import those_after
from coplay.types import Key, Trajectory

LEAST = 1e-9  # chance that anything is given
HARDLY = 0.05  # nats between guessing and knowing, below which there is nothing to foresee
FEWEST = 200  # rows
BINS, REDRAWN = 15, 300


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
    seeds = [_foretold(games, _teaches(subject, games)) for games in subject.trained_games()]
    if min(len(rows.action) for rows in seeds) < FEWEST:
        raise BadInput("hardly anything was foretold of anybody")
    return seeds


def _teaches(subject: Subject, games: Trajectory) -> Bool[np.ndarray, "time env agent"]:
    """Who is in the game; of HOP's own seats, only those under orders (`model_rows`)."""
    teaches = np.array(games.steps.before.active)
    config, seats = getattr(subject.experiment, subject.learner), subject.seats
    is_hop = getattr(config, "model_rows", "") == "orders" and config.models == "goals"
    if is_hop and config.ordered_games > 0 and len(seats) > 1:
        teaches[..., seats] &= np.asarray(games.steps.decision.notes[subject.learner]["order"]) >= 0
    return teaches


def _foretold(games: Trajectory, teaches: Bool[np.ndarray, "time env agent"]) -> Foretold:
    steps = games.steps
    if isinstance(steps.decision.thoughts.prediction, tuple):
        raise BadInput("nobody foretells what co-players do here")
    expected = np.asarray(steps.decision.thoughts.prediction)  # [time, env, agent, other, action]
    time, envs, agents = expected.shape[:3]
    others = those_after(tuple(range(agents)), agents)
    active = np.asarray(steps.before.active)
    counts = teaches[:, :, others] & active[..., None] & np.isfinite(expected).all(axis=-1)
    move = np.arange(time * envs * agents).reshape(time, envs, agents)
    game = np.broadcast_to(np.arange(envs)[None, :, None], move.shape)
    player = np.broadcast_to(np.arange(agents)[None, None], move.shape)

    def rows(x: Any) -> np.ndarray:
        return np.asarray(x)[:, :, others][counts]

    own, legal, action = steps.decision.policy, steps.before.legal, steps.decision.action
    return Foretold(expected[counts], rows(own), rows(legal), *map(rows, (action, player, game, move)))


# --- 6.1 are co-players foreseen? ----------------------------------------------------------------


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


def opponent_skill(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are co-players foreseen better than by how often they do what?"""
    statistic = (
        "share of what can be foreseen of co-players that is: from how often they do what (0) to their own "
        "policy (1)"
    )
    seeds = [skill_of(rows) for rows in foretold_of(subject)]
    if all(seed.by_frequency - seed.best < HARDLY for seed in seeds):
        return not_run(statistic, "there is hardly anything to foresee: co-players do what they often do")
    names = subject.env.action_names
    worst = int(np.argmin(np.where(seeds[0].share > 0, seeds[0].recall, np.inf)))
    told = ("top1", "top3", "macro_f1")
    middle = {name: float(np.median([getattr(seed, name) for seed in seeds])) for name in told}
    look = (
        f"what was learned from (opponent_rows); likeliest in {middle['top1']:.0%}, among three in "
        f"{middle['top3']:.0%}, mean F1 {middle['macro_f1']:.2f}; least recalled is {names[worst]} "
        f"({seeds[0].recall[worst]:.0%} of a share of {seeds[0].share[worst]:.0%})"
    )
    skill = np.array([seed.skill for seed in seeds])
    return judged(statistic, skill, 0.3, 0.6, look, drawing=confusion_drawing(names, seeds))


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


def confusion_drawing(names: tuple[str, ...], seeds: list[Skill]) -> dict[str, Any]:
    """Actions over all seeds, and the figures of each seed."""
    together = seeds[0]._replace(confusion=np.sum([seed.confusion for seed in seeds], axis=0))
    matrix = {
        "kind": "matrix",
        "title": "what co-players did, and what was thought likeliest",
        "rows": list(names),
        "columns": list(names),
        "values": together.confusion.tolist(),
    }
    by_action = [together.share, together.precision, together.recall, together.f1]
    actions = {
        "kind": "table",
        "title": "how well each action is told by being thought likeliest",
        "rows": list(names),
        "columns": ["share", "precision", "recall", "F1"],
        "values": np.stack(by_action, axis=1).round(4).tolist(),
    }
    figures = [[getattr(seed, name) for name in FIGURES] for seed in seeds]
    whole = {
        "kind": "table",
        "title": "how well co-players are foreseen; surprises in nats",
        "rows": [f"seed {number}" for number in range(len(seeds))],
        "columns": list(FIGURES.values()),
        "values": np.array(figures).round(4).tolist(),
    }
    return {"kind": "several", "drawings": [matrix, actions, whole]}


FIGURES = {
    "top1": "top-1",
    "top3": "top-3",
    "macro_f1": "mean F1",
    "skill": "skill",
    "surprise": "surprise",
    "best": "of their own policy",
    "by_frequency": "by frequency",
}


# --- 6.2 better than can be? ---------------------------------------------------------------------


def too_good(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do models foresee what nobody could know?"""
    statistic = "nats by which models are less surprised at co-players than these are at themselves"
    seeds = [beyond_best(rows) for rows in foretold_of(subject)]
    return weighed(
        statistic, seeds, 0.01, 0.01, "labels of opponent models: do they reach what is read?", unit="nats"
    )


def beyond_best(rows: Foretold) -> Shown:
    """Games are independent, moves in one are not."""
    gain = surprise_at(rows.own, rows.action) - surprise_at(rows.expected, rows.action)
    mean = float(gain.mean())
    off = np.bincount(rows.game, gain - mean)
    error = max(float(np.sqrt((off**2).sum())) / len(gain), 1e-12)
    return Shown(max(mean, 0.0), error, float(scipy.stats.norm.sf(mean / error)))


# --- 6.3 calibrated? -----------------------------------------------------------------------------


def calibration(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does what is expected with so much confidence happen as often?"""
    statistic = "mean difference of confidence in the likeliest action and how often it is taken"
    seeds = foretold_of(subject)
    return weighed(
        statistic,
        [miscalibration(rows, seed) for seed, rows in enumerate(seeds)],
        0.15,
        0.05,
        "how much is learned in a round (model_epochs), rare actions (model_balanced)",
        unit="chance",
        n=len(seeds[0].action),
        drawing=_calibration_drawing(seeds),
    )


def miscalibration(rows: Foretold, seed: int = 0) -> Shown:
    """Beside what it would be if actions were drawn from what is expected; p as if that were normal."""
    confidence, is_right, move = _confidence(rows)
    found = calibration_error(confidence, is_right[None])[0]
    # Whoever expects a move expects the same one: the draws of one move go together.
    drawn = np.random.default_rng(seed).random((REDRAWN, move.max() + 1), dtype=np.float32)
    null = calibration_error(confidence, drawn[:, move] < confidence)
    deviation = max(float(null.std()), 1e-9)
    return Shown(float(found), deviation, float(scipy.stats.norm.sf((found - null.mean()) / deviation)))


def _confidence(rows: Foretold) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """From the least to the greatest, where there is a choice; whether it was right; which move."""
    is_choice = rows.legal.sum(axis=1) > 1
    expected, action, move = rows.expected[is_choice], rows.action[is_choice], rows.move[is_choice]
    if len(action) < FEWEST:
        raise BadInput("co-players hardly ever have a choice")
    order = np.argsort(expected.max(axis=1), kind="stable")
    is_right = expected.argmax(axis=1) == action
    numbers = np.unique(move, return_inverse=True)[1]
    return expected.max(axis=1)[order], is_right[order], numbers[order]


def calibration_error(
    confidence: Float[np.ndarray, " row"], is_right: Bool[np.ndarray, "draw row"]
) -> Float[np.ndarray, " draw"]:
    """Over bins with as many rows each; rows come sorted."""
    edges = np.linspace(0, len(confidence), BINS + 1).astype(int)[:-1]
    apart = np.add.reduceat(is_right - confidence, edges, axis=1)
    return np.abs(apart).sum(axis=1) / len(confidence)


def _calibration_drawing(seeds: list[Foretold]) -> dict[str, Any]:
    lines: list[dict[str, Any]] = [{"name": "as it should be", "x": [0.0, 1.0], "y": [0.0, 1.0]}]
    for seed, rows in enumerate(seeds):
        confidence, is_right, _ = _confidence(rows)
        parts = zip(np.array_split(confidence, BINS), np.array_split(is_right, BINS), strict=True)
        x, y = zip(*((float(c.mean()), float(r.mean())) for c, r in parts), strict=True)
        lines.append({"name": f"seed {seed}", "x": list(x), "y": list(y)})
    title = "how often the likeliest action is taken, by confidence in it"
    return {"kind": "lines", "title": title, "x_name": "confidence", "y_name": "right", "lines": lines}


# --- 6.4 stale? ----------------------------------------------------------------------------------

AGES = ("drift/model_staleness", "drift/world_staleness")


def staleness(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are models still right when they are used, one round after they have learned?"""
    statistic = "nats by which a round surprises models more than the one they learned from"
    ends = [end for end in (at_end(subject, name) for name in AGES) if end is not None]
    if not ends:
        return not_run(statistic, "the run tells nothing of how its models age")
    worst = np.max([np.nanmean(end, axis=1) for end in ends], axis=0)
    return judged(
        statistic, worst, 0.5, 0.1, "rates of models and of policies, model_epochs", least=False, unit="nats"
    )


OPPONENTS = (
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
        "too_good",
        "models",
        "Is more foreseen than anyone can know?",
        "test",
        "opponents",
        too_good,
        ("opponent_rows",),
    ),
    Check(
        "calibration",
        "models",
        "Are models as sure as they may be?",
        "test",
        "opponents",
        calibration,
        ("opponent_skill", "too_good"),
    ),
    Check("staleness", "models", "Are models out of date when used?", "judgement", "opponents", staleness),
    *SUBGOALS,
)
