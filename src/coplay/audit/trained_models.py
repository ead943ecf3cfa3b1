"""How good did a run's models of its co-players become? Asked of its last weights in games played afresh.

What every player expected of every other stands beside what that one did and how likely it was to: its own
policy is known, so that the best anyone could foresee is, too.
"""

from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float

from coplay.audit.by_seed import Shown, judged, weighed
from coplay.audit.finding import Check, Outcome, not_run
from coplay.audit.foretold import FEWEST, NOTHING, Foretold, Skill, foretold_of, skill_of, surprise_at
from coplay.audit.subject import Budget, Subject
from coplay.audit.trained_company import COMPANY
from coplay.audit.trained_subgoals import SUBGOALS
from coplay.errors import BadInput
from coplay.types import Key

BINS, REDRAWN = 15, 300


# --- 6.1 are co-players foreseen? ----------------------------------------------------------------


def opponent_skill(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are co-players foreseen better than by how often they do what?"""
    statistic = (
        "share of what can be foreseen of co-players that is: from how often they do what (0) to their own "
        "policy (1)"
    )
    seeds = [skill_of(rows) for rows in foretold_of(subject)]
    if not any(seed.is_foreseeable for seed in seeds):
        return not_run(statistic, NOTHING)
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
    *COMPANY,
    *SUBGOALS,
)
