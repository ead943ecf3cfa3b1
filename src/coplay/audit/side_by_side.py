"""An audit on all cores: checks that read the same recorded updates stay together, each company in a process.

Every check has a stream of its own by name, so that what it finds does not depend on who is asked beside it.
"""

import gc
import os
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import jax

from coplay.audit import CHECKS, asked_in_turn, checks_of
from coplay.audit.crossed import CROSSED
from coplay.audit.environment import ENVIRONMENT
from coplay.audit.finding import Check, Finding, Outcome, Seen, findings
from coplay.audit.flags import SETTINGS
from coplay.audit.game_options import GAME_OPTIONS
from coplay.audit.ladder import LADDER
from coplay.audit.phenomenon import PHENOMENON
from coplay.audit.subject import Budget, Subject, subject_of
from coplay.audit.trained_models import OPPONENTS
from coplay.audit.trained_values import IMAGINED, SEARCHES
from coplay.audit.trained_worlds import WORLDS
from coplay.training import processes

TRAINED = (*OPPONENTS, *WORLDS, *SEARCHES, *IMAGINED)
GAME = (*PHENOMENON, *ENVIRONMENT, *CROSSED, *GAME_OPTIONS)
APART = (GAME, SETTINGS, TRAINED, LADDER)  # all others share what is recorded
Tell = Callable[[str], None]


def audit_side_by_side(
    subject: Subject, budget: Budget, areas: Collection[str], tell: Tell, cores: int | None = None
) -> list[Finding]:
    """Every check of these areas; other processes build the subject anew from its name."""
    groups = companies(checks_of(areas))
    cores = min(len(groups), cores or os.cpu_count() or 1)
    if cores < 2:
        return findings(_asked(subject, budget, checks_of(areas), tell))
    with ThreadPoolExecutor(cores) as together:
        parts = together.map(partial(_asked_apart, subject.name, subject.seed, budget, tell=tell), groups)
        seen = {one.check.name: one for part in parts for one in part}
    return findings([seen[check.name] for check in checks_of(areas)])


def companies(checks: list[Check]) -> list[list[Check]]:
    """Who goes with whom; the largest company comes first."""
    apart = [[check for check in checks if check.name in _names(group)] for group in APART]
    alone = set().union(*map(_names, apart))
    groups = [[check for check in checks if check.name not in alone], *apart]
    return [group for group in groups if group]


def _names(checks: Collection[Check]) -> set[str]:
    return {check.name for check in checks}


def _asked(subject: Subject, budget: Budget, checks: list[Check], tell: Tell) -> list[Seen]:
    return list(asked_in_turn(checks, subject, budget, jax.random.key(subject.seed), tell))


def _asked_apart(name: str, seed: int, budget: Budget, checks: list[Check], tell: Tell) -> list[Seen]:
    """In a process of their own. One that the system ends is something to doubt, and the others go on."""
    with ProcessPoolExecutor(1, processes.FRESH, _begin) as alone:
        names = [check.name for check in checks]
        try:
            return alone.submit(_asked_by_name, name, seed, budget, names, tell).result()
        except BrokenProcessPool:
            says = "its process was ended by the system; was there too little memory?"
            return [Seen(check, Outcome("", verdict="warn", next=says), 0.0) for check in checks]


def _asked_by_name(target: str, seed: int, budget: Budget, names: list[str], tell: Tell) -> list[Seen]:
    return _asked(subject_of(target, seed), budget, [CHECKS[name] for name in names], tell)


RARELY = 100_000  # objects made between collections: tracing makes very many, and they stay


def _begin() -> None:
    gc.set_threshold(RARELY)
    processes.begin()
