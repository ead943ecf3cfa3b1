"""Trains the arms of a study, task by task: first every arm's learning rate, then the seeds that count.

Every run has a folder of its own, so that a study goes on where it was stopped: what is finished is not
trained again, and what was begun is resumed. Several processes may be at one study: each takes the next arm
that nobody is at, and reads what another has finished.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coplay import experiment as experiments
from coplay import runs
from coplay.errors import BadInput
from coplay.evaluation.compare import curve
from coplay.experiment import Experiment
from coplay.files import InUse, locked
from coplay.studies.arms import experiment_of
from coplay.studies.study import Budget, Study
from coplay.training import checkpoint
from coplay.training.devices import forget_programs
from coplay.training.run_folder import RunFolder

PATIENCE = 1.0  # seconds between looks at arms that other processes are at
TUNING_SEED = 1000  # the first seed that rates are chosen on; final seeds count from 0


class Job(NamedTuple):
    """One arm on one task."""

    task: str
    arm: str


class Chosen(NamedTuple):
    """An arm's run over all seeds, and the rate that was found best for it."""

    job: Job
    rate: float
    tried: dict[float, float]  # rate -> mean return over training; empty where nothing was tried
    experiment: Experiment
    folder: RunFolder


def jobs_of(study: Study, tasks: list[str], arms: list[str]) -> list[Job]:
    """What there is to do, arms that others take their rate from first."""
    wanted = [Job(task, arm) for task in tasks for arm in study.arms_of(task) if not arms or arm in arms]
    return sorted(wanted, key=lambda job: (tasks.index(job.task), bool(study.arms[job.arm].base)))


def run_study(
    study: Study,
    jobs: list[Job],
    budget: Budget,
    out: Path,
    watcher: runs.Watcher,
    tell: Callable[[str], None],
) -> list[Chosen]:
    """All runs of these jobs, trained where they are not yet; fewer of them if the watcher wants to stop."""
    _refuse_unled(study, jobs, budget, out)
    done: dict[Job, Chosen] = {}

    def begin(job: Job) -> Chosen | None:
        tell(f"{len(done) + 1} of {len(jobs)}: {job.task}, {job.arm} ({study.arms[job.arm].says})")
        return choose(study, job, budget, out, watcher)

    while len(done) < len(jobs):
        left = [job for job in jobs if job not in done and _is_ready(study, job, budget, out)]
        job, chosen = _next(left, out, begin)
        if job and chosen:
            done[job] = chosen
        elif job or watcher.wants_stop():
            break
        else:
            time.sleep(PATIENCE)
    return [done[job] for job in jobs if job in done]


def _next(jobs: list[Job], out: Path, begin: Callable) -> tuple[Job | None, Chosen | None]:
    """The first job that nobody is at, and what came of it; no job if others are at all of them."""
    for job in jobs:
        folder = out / job.task / job.arm
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(InUse), locked(folder):
            return job, begin(job)
    return None, None


def choose(study: Study, job: Job, budget: Budget, out: Path, watcher: runs.Watcher) -> Chosen | None:
    """One arm: its rate, then its run; None if it was stopped before the end."""
    task = study.tasks[job.task]
    tried = _tried(study, job, budget, out, watcher)
    if tried is None:
        return None
    rate = max(tried, key=lambda r: tried[r]) if tried else _rate_of(study, job, budget, out)
    given = experiment_of(study, job.task, job.arm, rate, budget)
    given = dataclasses.replace(given, seeds=min(task.seeds, budget.most_seeds))
    run = _trained(given, _run_of(out, job), watcher)
    return None if run is None else Chosen(job, rate, tried, given, run)


def _tried(study: Study, job: Job, budget: Budget, out: Path, watcher) -> dict[float, float] | None:
    """Mean return over training by rate, on seeds that are not the final ones."""
    task, arm = study.tasks[job.task], study.arms[job.arm]
    rates = task.rates[: budget.most_rates]
    if arm.base or task.rates_from or len(rates) == 1:
        return {}
    scores = {}
    for rate in rates:
        given = experiment_of(study, job.task, job.arm, rate, budget)
        seeds = min(task.tuning_seeds, budget.most_seeds)
        given = dataclasses.replace(given, seed=TUNING_SEED, seeds=seeds)
        folder = _trained(given, out / job.task / job.arm / f"rate-{rate:g}", watcher)
        if folder is None:
            return None
        scores[rate] = float(np.nanmean(curve(folder, "return")[1]))
    return scores


def _rate_of(study: Study, job: Job, budget: Budget, out: Path) -> float:
    """The rate of the arm it is like, or of the same arm on the task whose rates are taken over."""
    leader = _leader(study, job, budget)
    if leader is None:
        return study.tasks[job.task].rates[0]
    found = experiments.read_run(RunFolder.open(_run_of(out, leader)))
    return getattr(found, found.algorithm).learning_rate


def _leader(study: Study, job: Job, budget: Budget) -> Job | None:
    """The job whose rate this one takes over, if it finds none itself and there is more than one to find."""
    task, arm = study.tasks[job.task], study.arms[job.arm]
    has_one_rate = not task.rates_from and len(task.rates[: budget.most_rates]) == 1
    leader = Job(task.rates_from or job.task, arm.base or job.arm)
    return None if has_one_rate or leader == job else leader


def _refuse_unled(study: Study, jobs: list[Job], budget: Budget, out: Path) -> None:
    for job in jobs:
        leader = _leader(study, job, budget)
        if leader and leader not in jobs and not _has_begun(out, leader):
            raise BadInput(
                f"{job.task}, {job.arm} takes its rate from {leader.task}, {leader.arm}: run that too"
            )


def _is_ready(study: Study, job: Job, budget: Budget, out: Path) -> bool:
    """Whether the rate that it takes over is known."""
    leader = _leader(study, job, budget)
    return leader is None or _has_begun(out, leader)


def _has_begun(out: Path, job: Job) -> bool:
    """Whether its run is there, and with it the rate it was given; versions.json is what is written last."""
    return (_run_of(out, job) / "versions.json").is_file()


def _run_of(out: Path, job: Job) -> Path:
    return out / job.task / job.arm / "run"


def _trained(given: Experiment, path: Path, watcher: runs.Watcher) -> RunFolder | None:
    """The run's folder once it is finished: found so, gone on with, or made; None if it was stopped."""
    given = runs.resolve(given)
    if not path.exists():
        return _if_finished(runs.train(given, path, watcher, pages=False))
    folder = RunFolder.open(path)
    if experiments.read_run(folder) != given:
        raise BadInput(f"{path} was made with other settings; take another --out, or remove it")
    if not checkpoint.steps(folder.checkpoints):
        raise BadInput(f"{path} was stopped before its first checkpoint; remove it and start again")
    updates = checkpoint.newest_meta(folder.checkpoints)["updates"]
    if updates >= given.rollout.num_updates:
        return folder
    return _if_finished(runs.resume(path, watcher=watcher, pages=False))


def _if_finished(run: runs.Run) -> RunFolder | None:
    forget_programs()
    return None if run.finished is None or run.finished.stopped else run.folder
