"""What a study's runs say: every arm's figures, the comparisons that were fixed, and which claims they allow.

A candidate is compared with the baseline and with every rival at equal drift: mean return over the joint KL
that both have moved through. A claim needs it to be above all of them, so its p is the largest of theirs;
Holm's correction is over all candidates on all tasks.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from coplay.evaluation import drift_curves
from coplay.evaluation.compare import curve
from coplay.evaluation.drift_curves import DriftCurve, drift_curve
from coplay.evaluation.statistics import (
    Interval,
    bootstrap_difference,
    bootstrap_interval,
    coincide,
    holm,
    iqm,
    permutation_test,
    probability_of_improvement,
)
from coplay.studies.arms import label_and_weights
from coplay.studies.running import Chosen, Job
from coplay.studies.study import Study

SURE = 0.05
LAST = 0.2  # share of training that counts as its end


class Level(NamedTuple):
    mean: float  # interquartile
    interval: Interval


class ArmFigures(NamedTuple):
    """One arm on one task."""

    job: Job
    label: str  # what a player needs at hand
    weights: int
    rate: float
    tried: int  # rates
    steps: int
    seeds: int
    over_training: Level  # mean return from the first round to the last
    at_end: Level
    moved: Level  # nats of joint KL in all
    to_level: Level  # the same until the task's level was reached, of seeds that did
    lost: int  # seeds that never did
    curve: DriftCurve
    returns: tuple[np.ndarray, Float[np.ndarray, "seed step"]]


class Comparison(NamedTuple):
    """One arm against another on one task, at equal drift."""

    task: str
    arm: str
    against: str
    up_to: float  # nats that both have moved through
    difference: float  # of mean returns
    interval: Interval
    improvement: float  # chance that a seed of the first beats one of the second
    p: float
    coincide: bool  # their curves are equal to the bit


class Claim(NamedTuple):
    """What may be said of a candidate on a task."""

    task: str
    arm: str
    p: float  # the largest over all it was compared with, after Holm
    may_be_made: bool
    hardest: Comparison  # whom it is least above, or whose curve it repeats
    baseline: Comparison
    saved: dict[str, float]  # share of the drift to the task's level that it does without: of the baseline's,
    # and of that rival's which needs least
    context: Comparison | None  # against the control of its own context
    unrun: list[str]  # what it would have to beat, too


class Findings(NamedTuple):
    arms: list[ArmFigures]
    comparisons: list[Comparison]
    claims: list[Claim]
    idle: list[Job]  # controls whose curves are to the bit those of what they control (`controlled_by`)


def findings(study: Study, done: list[Chosen]) -> Findings:
    arms = [figures_of(study, chosen) for chosen in done]
    by_job = {figures.job: figures for figures in arms}
    comparisons = [compared(by_job[a], by_job[b]) for a, b in _pairs(study, list(by_job))]
    idle = [job for job in by_job if _is_idle(study, by_job, job)]
    return Findings(arms, comparisons, _claims(study, by_job, comparisons), idle)


def controlled_by(study: Study, arm: str) -> str:
    """The arm that this one controls: the baseline, if it is a rival; none, if it is no control."""
    return {"rival": study.baseline, "control": study.arms[arm].base}.get(study.arms[arm].role, "")


def _is_idle(study: Study, arms: dict[Job, ArmFigures], job: Job) -> bool:
    """What it changes never came to bear."""
    controlled = arms.get(Job(job.task, controlled_by(study, job.arm)))
    return controlled is not None and coinciding(arms[job], controlled)


def figures_of(study: Study, chosen: Chosen) -> ArmFigures:
    label, weights = label_and_weights(chosen.experiment)
    rollout, level = chosen.experiment.rollout, study.tasks[chosen.job.task].level
    of_drift = drift_curve(chosen.folder)
    steps, returns = curve(chosen.folder, "return")
    until = drift_curves.drift_to(of_drift, level)
    there = until[np.isfinite(until)]
    return ArmFigures(
        job=chosen.job,
        label=label,
        weights=weights,
        rate=getattr(chosen.experiment, chosen.experiment.algorithm).learning_rate,
        tried=len(chosen.tried),
        steps=rollout.num_updates * rollout.steps_per_update,
        seeds=len(returns),
        over_training=_level(np.nanmean(returns, axis=1)),
        at_end=_level(np.nanmean(returns[:, -max(1, round(LAST * returns.shape[1])) :], axis=1)),
        moved=_level(of_drift.moved[:, -1]),
        to_level=_level(there),
        lost=int(len(until) - len(there)),
        curve=of_drift,
        returns=(steps, returns),
    )


def _level(values: Float[np.ndarray, " seed"]) -> Level:
    if not len(values):
        return Level(float("nan"), Interval(float("nan"), float("nan")))
    return Level(float(iqm(values)), bootstrap_interval(values, iqm))


# --- comparisons ---------------------------------------------------------------------------------


def _pairs(study: Study, jobs: list[Job]) -> list[tuple[Job, Job]]:
    """Candidates against all they have to beat, and arms against the controls of their context."""
    rivals = study.in_role("baseline", "rival")
    pairs = [
        (Job(job.task, job.arm), Job(job.task, rival))
        for job in jobs
        if study.arms[job.arm].role == "candidate"
        for rival in rivals
    ]
    pairs += [
        (Job(job.task, study.arms[job.arm].base), job)
        for job in jobs
        if study.arms[job.arm].role == "control"
    ]
    return [(a, b) for a, b in pairs if a in jobs and b in jobs]


def compared(a: ArmFigures, b: ArmFigures) -> Comparison:
    up_to = drift_curves.common_drift([a.curve, b.curve])
    of_a, of_b = drift_curves.mean_return(a.curve, up_to), drift_curves.mean_return(b.curve, up_to)
    return Comparison(
        task=a.job.task,
        arm=a.job.arm,
        against=b.job.arm,
        up_to=up_to,
        difference=float(np.mean(of_a) - np.mean(of_b)),
        interval=bootstrap_difference(of_a, of_b),
        improvement=probability_of_improvement(of_a, of_b).probability,
        p=permutation_test(of_a, of_b),
        coincide=coinciding(a, b),
    )


def coinciding(a: ArmFigures, b: ArmFigures) -> bool:
    """Whether some seed of the one has the very returns of some seed of the other."""
    returns_a, returns_b = a.returns[1], b.returns[1]
    longest = max(coincide(x, y) for x in returns_a for y in returns_b)
    return longest >= min(returns_a.shape[1], returns_b.shape[1])


# --- claims --------------------------------------------------------------------------------------


def _claims(study: Study, arms: dict[Job, ArmFigures], comparisons: list[Comparison]) -> list[Claim]:
    found = []
    for job in arms:
        own = [c for c in comparisons if (c.task, c.arm) == (job.task, job.arm)]
        beaten = [c for c in own if c.against in study.in_role("baseline", "rival")]
        if study.arms[job.arm].role == "candidate" and Job(job.task, study.baseline) in arms:
            found.append(_claim(study, arms, job, own, beaten))
    corrected = holm([claim.p for claim in found])
    return [
        claim._replace(p=p, may_be_made=p < SURE and not (claim.hardest.coincide or claim.unrun))
        for claim, p in zip(found, corrected, strict=True)
    ]


def _claim(study: Study, arms, job: Job, own: list[Comparison], beaten: list[Comparison]) -> Claim:
    """The largest p of all that have to be beaten; 1 where one of them is not below."""
    p = max(c.p if c.difference > 0 else 1.0 for c in beaten)
    return Claim(
        task=job.task,
        arm=job.arm,
        p=p,
        may_be_made=False,
        hardest=max(beaten, key=lambda c: (c.coincide, c.p if c.difference > 0 else 1.0, -c.difference)),
        baseline=next(c for c in beaten if c.against == study.baseline),
        saved=_saved(study, arms, job, [c.against for c in beaten]),
        context=next((c for c in own if study.arms[c.against].role == "control"), None),
        unrun=[r for r in study.in_role("rival") if Job(job.task, r) not in arms],
    )


def _saved(study: Study, arms: dict[Job, ArmFigures], job: Job, against: list[str]) -> dict[str, float]:
    needs = {name: arms[Job(job.task, name)].to_level.mean for name in against}
    rivals = [name for name in against if name != study.baseline and np.isfinite(needs[name])]
    told = [study.baseline, *sorted(rivals, key=lambda name: needs[name])[:1]]
    return {name: 1.0 - arms[job].to_level.mean / needs[name] for name in told}
