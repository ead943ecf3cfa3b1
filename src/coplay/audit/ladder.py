"""At which rung does a symptom start? A learner's parts added one by one, over the same seeds.

`rungs.py` takes an experiment apart, `climbing.py` trains what is left of it at every rung, `symptoms.py`
says where a symptom appears first. The check tells where to look and raises no alarm: eight pairs of seeds
cannot show a p below 0.008.
"""

import math
import tempfile
import time
from pathlib import Path
from typing import Any

from coplay import experiment as experiments
from coplay import runs
from coplay.audit.climbing import Climbed, climb
from coplay.audit.finding import Check, Outcome, not_run
from coplay.audit.rungs import Rung, rungs
from coplay.audit.small_scale import at_small_scale
from coplay.audit.subject import Budget, Subject
from coplay.audit.symptoms import SYMPTOMS, first_rung, measured, proper, sharing
from coplay.types import Key


def as_numbers(ladder: list[Rung], climbed: list[Climbed]) -> dict[str, Any]:
    """Plain numbers: every rung with its symptoms, where each appears first, and shared against own."""
    done = {rung.rung.name: rung for rung in climbed}
    return {
        "rungs": [_one(rung, done.get(rung.name), climbed) for rung in ladder],
        "first": [_plain(first_rung(climbed, name)) for name in SYMPTOMS] if climbed else [],
        "sharing": [_plain(found) for found in sharing(climbed)],
    }


def _one(rung: Rung, done: Climbed | None, climbed: list[Climbed]) -> dict[str, Any]:
    told: dict[str, Any] = {"name": rung.name, "adds": rung.adds, "twin_of": rung.twin_of}
    if done is None:
        return told | {"not_run": rung.refused or "there was no time"}
    figures = {name: measured(done, proper(climbed)[0], name) for name in SYMPTOMS}
    return told | {
        "not_run": "",
        "parameters": rung.parameters,
        "seeds": done.seeds,
        "by_seat": _plain(done.returns.mean(axis=0).tolist()),
        "seconds": round(done.seconds, 1),
        "symptoms": {name: _plain(figure) for name, figure in figures.items() if figure is not None},
    }


def _plain(value: Any) -> Any:
    """Named tuples as tables; numbers that are not finite as None."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}  # pyright: ignore
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


UPDATES = 64
ENOUGH_SECONDS = 240.0


def ladder(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """At a small scale: which part brings which symptom? Told, not judged."""
    statistic = f"symptoms by rung, {budget.seeds} seeds and {UPDATES} updates each"
    if subject.experiment is None or not experiments.algorithms_in_play(subject.experiment):
        return not_run(statistic, "nobody learns here")
    if not budget.is_full and _seconds_left(budget) < ENOUGH_SECONDS:
        return not_run(statistic, "the ladder is climbed by `coplay ablate`, or with --full")
    small = at_small_scale(subject.experiment, gates_open=False)
    steps = UPDATES * small.rollout.steps_per_update
    bare = {"saving.every": UPDATES, "evaluation.every": 0}  # curves are enough
    all_rungs = rungs(experiments.with_overrides(small, bare))
    if sum(rung.experiment is not None for rung in all_rungs) < 2:
        return not_run(statistic, "there is one rung: nothing to compare it with")
    done = _climbed_in_time(all_rungs, steps, budget)
    if len(done) < 2:
        return not_run(statistic, "fewer than two rungs were finished in time")
    return _told(statistic, as_numbers(all_rungs, done), budget.seeds)


def _climbed_in_time(all_rungs: list[Rung], steps: int, budget: Budget) -> list[Climbed]:
    """The two ends, and of the others as many as there is time for, if they take as long as the longest."""
    done: list[Climbed] = []
    with tempfile.TemporaryDirectory() as folder:
        for rung in _ends_first(all_rungs):
            longest = max((one.seconds for one in done), default=0.0)
            if len(done) >= 2 and not budget.is_full and _seconds_left(budget) < longest:
                break
            done += climb([rung], budget.seeds, steps, Path(folder), _Until(budget))
    names = [rung.name for rung in all_rungs]
    return sorted(done, key=lambda one: names.index(one.rung.name))


def _told(statistic: str, told: dict[str, Any], seeds: int) -> Outcome:
    climbed = [rung for rung in told["rungs"] if not rung["not_run"]]
    found = [f"{SYMPTOMS[one['symptom']].says}: {one['says']}" for one in told["first"] if one["rung"]]
    found += [f"{one['rung']}: {one['says']}" for one in told["sharing"]]
    return Outcome(
        statistic,
        figure=float(len(climbed)),
        verdict="pass",
        next="; ".join(found),
        unit="rungs",
        n=seeds,
        drawing={
            "kind": "ladder",
            "title": "symptoms by rung",
            "rungs": told["rungs"],
            "first": {one["symptom"]: one["rung"] for one in told["first"] if one["rung"]},
            "sharing": told["sharing"],
        },
    )


def _ends_first(all_rungs: list[Rung]) -> list[Rung]:
    """So that the two ends are there if time is short."""
    lower = [rung for rung in all_rungs if not rung.twin_of]
    ends = [*lower[:1], *lower[1:][-1:]]
    return [*ends, *(rung for rung in all_rungs if rung.twin_of), *lower[1:-1]]


def _seconds_left(budget: Budget) -> float:
    return budget.seconds - (time.monotonic() - budget.began)


class _Until(runs.Watcher):
    """Wants to stop once the time is over, unless there is no hurry."""

    def __init__(self, budget: Budget):
        self.budget = budget

    def wants_stop(self) -> bool:
        return self.budget.is_spent and not self.budget.is_full


LADDER = (Check("ladder", "ladder", "At which rung does it start?", "judgement", "", ladder),)
