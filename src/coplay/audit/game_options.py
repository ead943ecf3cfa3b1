"""Does every option of a game change how it is played, or how it is seen?"""

import dataclasses
import typing
from typing import Any

import jax
import numpy as np

from coplay.audit import random_play
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.flags import far_values
from coplay.audit.subject import Budget, Subject
from coplay.envs import make_game, option_names
from coplay.errors import BadInput
from coplay.types import Environment, Key

MOMENTS = 64 * random_play.GAMES  # longer than most episodes, so that ends and fresh starts are among them


def options(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does every option of the game change something?"""
    statistic = "options of the game that change neither starts nor steps, nor what is seen"
    env, experiment = subject.env, subject.experiment
    if experiment is None or not option_names(experiment.game):
        return not_run(statistic, "this game does not say what can be set in it")
    if env.package:
        return not_run(statistic, "what another's game makes of its options is its own affair")
    was = _shown(env, key)
    idle = getattr(env.options, "idle", frozenset())
    asked = [field for field in dataclasses.fields(env.options) if field.name not in idle]
    tried = {field.name: _changes(subject, field.name, was, key) for field in asked}
    wrong = [name for name, changes in tried.items() if changes is False]
    seen = sum(changes is not None for changes in tried.values())
    what = f"{wrong[0]} changes nothing: is it read?" if wrong else ""
    return exact(statistic, len(wrong), seen, what)


def _changes(subject: Subject, field: str, was: list[np.ndarray], key: Key) -> bool | None:
    """Whether any far value of it shows; None if there is none to try."""
    assert subject.experiment is not None
    config, found = subject.env.options, None
    kind = typing.get_type_hints(type(config))[field]
    for value in sorted(far_values(kind, getattr(config, field)), key=_size):
        try:
            other = make_game(subject.experiment.game, **{**subject.experiment.game_options, field: value})
        except (BadInput, ValueError):
            continue  # refused with the others as they are
        if _is_other(was, _shown(other, key)):
            return True
        found = False
    return found


def _size(value: Any) -> float:
    """Small games first: they are soon made."""
    return float(value) if isinstance(value, (int, float)) else 0.0


def _shown(env: Environment, key: Key) -> list[np.ndarray]:
    """All that players see and are paid in some random play."""
    seen = random_play.moments(env, MOMENTS, key)
    return [np.asarray(leaf) for leaf in jax.tree.leaves((seen.before, seen.after))]


def _is_other(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return any(a.shape != b.shape or not np.array_equal(a, b) for a, b in zip(left, right, strict=True))


GAME_OPTIONS = (Check("options", "liveness", "Do all options of the game matter?", "exact", "envs", options),)
