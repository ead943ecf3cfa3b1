"""The catalogue of checks, and how an audit goes through them.

A check that does not apply or has no time left is told as not run, with the reason, and never counts as
passed; one that breaks off is something to doubt, and the others go on.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator

import jax

from coplay.audit.bookkeeping import BOOKKEEPING
from coplay.audit.crossed import CROSSED
from coplay.audit.data import DATA
from coplay.audit.environment import ENVIRONMENT
from coplay.audit.figures import FIGURES
from coplay.audit.finding import Check, Finding, Outcome, Seen, findings, not_run
from coplay.audit.flags import SETTINGS
from coplay.audit.game_options import GAME_OPTIONS
from coplay.audit.ladder import LADDER
from coplay.audit.liveness import LIVENESS
from coplay.audit.models import MODELS
from coplay.audit.pace import PACE
from coplay.audit.phenomenon import PHENOMENON
from coplay.audit.pipeline import PIPELINE
from coplay.audit.subject import Budget, Subject
from coplay.audit.terms import TERM_CHECKS
from coplay.audit.unheard import UNHEARD
from coplay.audit.value import VALUE
from coplay.audit.whereabouts import file_of, scale_of
from coplay.errors import BadInput
from coplay.types import Key, stream

CAUSES = (  # as things flow: the game, what is stored of it, who learns from it; last the loop as a whole
    *ENVIRONMENT,
    *CROSSED,
    *DATA,
    *PIPELINE,
    *LIVENESS,
    *GAME_OPTIONS,
    *SETTINGS,
    *TERM_CHECKS,
    *MODELS,
    *VALUE,
    *PACE,
    *FIGURES,
    *UNHEARD,
    *BOOKKEEPING,
)


def of_all_causes(check: Check) -> Check:
    """A curve names no room: whatever fails beneath it explains it."""
    causes = tuple(cause.name for cause in CAUSES)
    return check if check.room else check._replace(builds_on=(*check.builds_on, *causes))


ALL = (*map(of_all_causes, PHENOMENON), *CAUSES, *LADDER)
CHECKS: dict[str, Check] = {check.name: check for check in ALL}
AREAS: dict[str, str] = {  # and the question of each
    "phenomenon": "Do a run's own curves show anything that must be explained?",
    "environment": "Does the game treat all players alike and keep its own rules, whoever plays?",
    "data": "Is what is stored, logged and imagined what really happened?",
    "pipeline": "Are learners treated alike from first weights to scores, and does a run repeat to the bit?",
    "liveness": "Is every network, setting and loss term felt where it should be, and nowhere else?",
    "models": "Are goals, beliefs, searches and models of co-players and of the game right?",
    "value": "Is the critic fed with the right targets, real and imagined?",
    "ladder": "With which part of the learner does a symptom begin?",
}


def audit(
    subject: Subject,
    budget: Budget,
    areas: Collection[str] = AREAS,
    key: Key | None = None,
    tell: Callable[[str], None] = lambda name: None,
) -> list[Finding]:
    """Every check of these areas, in the catalogue's order; `tell` hears of each before it is made."""
    key = jax.random.key(0) if key is None else key
    return findings(list(asked_in_turn(checks_of(areas), subject, budget, key, tell)))


def checks_of(areas: Collection[str]) -> list[Check]:
    return [check for check in CHECKS.values() if check.area in areas]


def asked_in_turn(
    checks: Iterable[Check], subject: Subject, budget: Budget, key: Key, tell: Callable[[str], None]
) -> Iterator[Seen]:
    for check in checks:
        tell(check.name)
        yield asked(check, subject, budget, stream(key, check.name))


def asked(check: Check, subject: Subject, budget: Budget, key: Key) -> Seen:
    """One check, whatever becomes of it."""
    began = time.perf_counter()
    outcome = _outcome(check, subject, budget, key)
    seconds = time.perf_counter() - began
    return Seen(
        check, outcome, seconds, file_of(check, outcome, subject.env), scale_of(check, outcome, subject)
    )


def _outcome(check: Check, subject: Subject, budget: Budget, key: Key) -> Outcome:
    if budget.is_spent:
        return not_run("", f"the {budget.seconds / 60:g} minutes were over")
    try:
        return check.call(subject, budget, key)
    except BadInput as refused:
        return not_run("", str(refused))
    except Exception as error:
        lines = str(error).splitlines()
        says = f"the check broke off: {type(error).__name__}: {lines[0] if lines else ''}"
        return Outcome("", verdict="warn", next=says)
