"""What a check saw, what that means beside the other checks, and which room to look in first.

A check gives an `Outcome`. Exact ones judge themselves; what rests on chance is judged with its area, so that
testing much does not alarm more often (`judged`). Failures that follow from others are `explained_by` them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from coplay.evaluation.statistics import holm

Verdict = Literal["pass", "warn", "fail", "not_run"]
Kind = Literal["exact", "test", "equivalence", "judgement"]

SHARED = "all seats share their weights"  # why a check of seats is not run
SURE, DOUBTFUL = 0.0005, 0.01  # adjusted p below which a test fails, or warns


@dataclasses.dataclass(frozen=True)
class Effect:
    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a check saw, before it is judged beside the others."""

    statistic: str  # what was measured, in words
    figure: float | None = None
    threshold: float | None = None  # of an exact check: the most that is allowed; of others: the margin
    verdict: Verdict | None = None  # None: by p, effect and threshold
    next: str = ""  # what was seen where, and what to look at, should it not pass
    unit: str = ""
    n: int | None = None
    p: float | None = None
    effect: Effect | None = None
    by_seat: tuple[float, ...] = ()
    room: str = ""  # if it points elsewhere than its check does
    drawing: dict[str, Any] = dataclasses.field(default_factory=dict)


def exact(
    statistic: str, breaches: int, of: int, what: str, by_seat: tuple[float, ...] = (), room: str = ""
) -> Outcome:
    """Nothing may differ: `breaches` of so many comparisons did; `what` says where, should any."""
    return Outcome(
        statistic,
        figure=float(breaches),
        threshold=0.0,
        verdict="fail" if breaches else "pass",
        next=what if breaches else "",
        unit="differences",
        n=of,
        by_seat=by_seat,
        room=room,
    )


def not_run(statistic: str, why: str) -> Outcome:
    return Outcome(statistic, verdict="not_run", next=why)


class Check(NamedTuple):
    """One question. `call` is a function of a subject, a budget and a key."""

    name: str
    area: str
    asks: str  # the question, for people
    kind: Kind
    room: str  # where a failure points; "" where it only shows that something is real
    call: Callable[..., Outcome]
    builds_on: tuple[str, ...] = ()  # checks whose failure would explain this one's


@dataclasses.dataclass(frozen=True)
class Finding:
    """One check's line: programs may rely on the first seven fields."""

    name: str
    area: str
    room: str
    verdict: Verdict
    figure: float | None
    threshold: float | None
    next: str
    asks: str
    kind: Kind
    statistic: str
    unit: str
    n: int | None
    p: float | None
    p_adjusted: float | None
    effect: Effect | None
    by_seat: tuple[float, ...]
    explained_by: tuple[str, ...]
    drawing: dict[str, Any]
    seconds: float
    file: str  # in the room, from `src/coplay` on; "" where the room is all that is known
    scale: str  # `small`, `run` (at the run's own sizes), or "" for what needs no learner


class Seen(NamedTuple):
    check: Check
    outcome: Outcome
    seconds: float
    file: str = ""
    scale: str = ""


def findings(seen: list[Seen]) -> list[Finding]:
    """All outcomes judged, tests with the others of their area; and which failures follow from others."""
    adjusted = _adjusted(seen)
    made = [_finding(one, adjusted.get(one.check.name)) for one in seen]
    failed = {finding.name for finding in made if finding.verdict == "fail"}
    builds_on = {one.check.name: one.check.builds_on for one in seen}
    return [
        dataclasses.replace(finding, explained_by=tuple(n for n in builds_on[finding.name] if n in failed))
        if finding.verdict == "fail"
        else finding
        for finding in made
    ]


def _adjusted(seen: list[Seen]) -> dict[str, float]:
    """Holm's correction, area by area."""
    found: dict[str, float] = {}
    for area in dict.fromkeys(one.check.area for one in seen):
        tests = [one for one in seen if one.check.area == area and one.outcome.p is not None]
        corrected = holm([one.outcome.p for one in tests if one.outcome.p is not None])
        found |= {one.check.name: p for one, p in zip(tests, corrected, strict=True)}
    return found


def _finding(one: Seen, p_adjusted: float | None) -> Finding:
    check, outcome = one.check, one.outcome
    return Finding(
        name=check.name,
        area=check.area,
        room=outcome.room or check.room,
        verdict=judged(check.kind, outcome, p_adjusted),
        figure=outcome.figure,
        threshold=outcome.threshold,
        next=outcome.next,
        asks=check.asks,
        kind=check.kind,
        statistic=outcome.statistic,
        unit=outcome.unit,
        n=outcome.n,
        p=outcome.p,
        p_adjusted=p_adjusted,
        effect=outcome.effect,
        by_seat=outcome.by_seat,
        explained_by=(),
        drawing=outcome.drawing,
        seconds=round(one.seconds, 2),
        file=one.file,
        scale=one.scale,
    )


def judged(kind: Kind, outcome: Outcome, p_adjusted: float | None) -> Verdict:
    """A test fails by chance once in 2,000 audits, and never for less than its margin."""
    if outcome.verdict is not None:
        return outcome.verdict
    assert outcome.effect is not None and outcome.threshold is not None
    effect, margin = outcome.effect, outcome.threshold
    if kind == "equivalence":
        return _equivalent(effect, margin)
    assert p_adjusted is not None
    if abs(effect.value) <= margin or p_adjusted >= DOUBTFUL:
        return "pass"
    return "fail" if p_adjusted < SURE else "warn"


def _equivalent(effect: Effect, margin: float) -> Verdict:
    """That nothing is there must be shown: the whole interval lies within the margin."""
    if -margin <= effect.low and effect.high <= margin:
        return "pass"
    is_there = effect.low > 0 or effect.high < 0
    return "fail" if is_there and abs(effect.value) > margin else "warn"


# --- all of them together ------------------------------------------------------------------------

EXIT_CODES = {"pass": 0, "warn": 3, "fail": 4, "not_run": 5}


def verdict_of(found: list[Finding]) -> Verdict:
    """The worst there is; checks that did not run count for nothing unless none did."""
    for verdict in ("fail", "warn", "pass"):
        if any(finding.verdict == verdict for finding in found):
            return verdict
    return "not_run"


def first_to_look_at(found: list[Finding]) -> Finding | None:
    """The earliest failure that no other explains."""
    failures = [finding for finding in found if finding.verdict == "fail"]
    return next((finding for finding in failures if not finding.explained_by), next(iter(failures), None))


def headline(found: list[Finding]) -> str:
    """How many did what, and where to look first."""
    names = {"fail": "fail", "warn": "warn", "pass": "pass", "not_run": "not run"}
    counts = {name: sum(finding.verdict == verdict for finding in found) for verdict, name in names.items()}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count) + "."
    first = first_to_look_at(found)
    return told if first is None else f"{told} {_where(first)}: {first.next}"


def _where(first: Finding) -> str:
    if not first.room:
        return "The curves show it, and no other check that was made says where it comes from"
    file = f" ({first.file})" if first.file else ""
    return f"Look first at {first.room}{file}{_one_seat(first)}"


def _one_seat(first: Finding) -> str:
    """Whose it is, where all differences are of one seat and no words say so."""
    struck = [seat for seat, breaches in enumerate(first.by_seat) if breaches]
    is_one = first.kind == "exact" and len(struck) == 1
    return f", seat {struck[0]}" if is_one and f"seat {struck[0]}" not in first.next else ""
