"""Trains the arms of a study, task by task: first every arm's learning rate, then the seeds that count.

Every run has a folder of its own, so that a study goes on where it was stopped: what is finished is not
trained again, and what was begun is resumed.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coplay import experiment as experiments
from coplay import runs
from coplay.errors import BadInput
from coplay.evaluation.compare import curve
from coplay.experiment import Experiment
from coplay.studies.arms import experiment_of
from coplay.studies.study import Budget, Study
from coplay.training import checkpoint
from coplay.training.devices import forget_programs
from coplay.training.run_folder import RunFolder

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
    done = []
    for number, job in enumerate(jobs, start=1):
        tell(f"{number} of {len(jobs)}: {job.task}, {job.arm} ({study.arms[job.arm].says})")
        chosen = choose(study, job, budget, out, watcher)
        if chosen is None:
            break
        done.append(chosen)
    return done


def choose(study: Study, job: Job, budget: Budget, out: Path, watcher: runs.Watcher) -> Chosen | None:
    """One arm: its rate, then its run; None if it was stopped before the end."""
    task = study.tasks[job.task]
    tried = _tried(study, job, budget, out, watcher)
    if tried is None:
        return None
    rate = max(tried, key=lambda r: tried[r]) if tried else _rate_of(study, job, budget, out)
    given = experiment_of(study, job.task, job.arm, rate, budget)
    given = dataclasses.replace(given, seeds=min(task.seeds, budget.most_seeds))
    run = _trained(given, out / job.task / job.arm / "run", watcher)
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
    task, arm = study.tasks[job.task], study.arms[job.arm]
    rates = task.rates[: budget.most_rates]
    if not task.rates_from and len(rates) == 1:
        return rates[0]
    leader = Job(task.rates_from or job.task, arm.base or job.arm)
    path = out / leader.task / leader.arm / "run"
    if not path.exists():
        raise BadInput(f"{job.task}, {job.arm} takes its rate from {leader.task}, {leader.arm}: run that too")
    found = experiments.read_run(RunFolder.open(path))
    return getattr(found, found.algorithm).learning_rate


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
