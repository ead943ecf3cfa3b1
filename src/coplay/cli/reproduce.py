"""`reproduce`: a shipped study, from runs to a table, a figure and what may be claimed."""

import argparse
from pathlib import Path

from coplay import experiment as experiments
from coplay import plan as plans
from coplay.cli.output import people, print_json, print_table, refuse_rest, result
from coplay.cli.study_helpers import helped_by, how_many
from coplay.cli.train import LiveLine, minutes
from coplay.errors import BadInput, nearest
from coplay.studies import (
    BUDGETS,
    Job,
    Study,
    findings,
    jobs_of,
    read_study,
    run_study,
    study_names,
    write_page,
)
from coplay.studies.arms import command_of, experiment_of
from coplay.studies.page import as_numbers, sentence
from coplay.studies.study import Budget
from coplay.training.devices import prepare

EPILOG = """a study goes on where it was stopped: what is trained already is read from its folder.
arms are trained side by side, as many as there are cores; the same command in another shell helps, too.
  coplay reproduce hyper --dry-run                        every run with its settings, and a guess at the time
  coplay reproduce hyper --tasks specialisation_8         one task; the page speaks of what is asked for
  coplay reproduce hyper --budget quick --out /tmp/x      a tenth of the steps, two seeds: does it work?"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", help=f"{', '.join(study_names())}, or a TOML file")
    parser.add_argument("--budget", choices=list(BUDGETS), default="full", help="how much of it is run")
    parser.add_argument("--tasks", help="only these, between commas")
    parser.add_argument("--arms", help="only these, between commas")
    parser.add_argument("--out", help="folder of runs and page (default: runs/STUDY)")
    parser.add_argument("--workers", type=int, help="processes that train side by side (default: one a core)")
    parser.add_argument("--dry-run", action="store_true", help="say what would be trained; train nothing")


def reproduce(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json", "budget", "tasks", "arms", "out", "workers", "dry-run"])
    study, budget = read_study(arguments.study), BUDGETS[arguments.budget]
    tasks = _named(arguments.tasks, list(study.tasks), "task")
    jobs = jobs_of(study, tasks, _named(arguments.arms, list(study.arms), "arm"))
    if not jobs:
        raise BadInput("these tasks have none of these arms")
    if arguments.dry_run:
        return _dry_run(study, jobs, budget, arguments.json)
    devices = max(experiments.resolved_devices(_first_guess(study, job, budget)) for job in jobs)
    workers = how_many(arguments.workers, len(jobs), devices)
    prepare(devices)
    out = Path(arguments.out or f"runs/{study.name}")
    watcher = StudyLine()
    with watcher, helped_by(workers - 1, study, jobs, budget, out, devices):
        done = run_study(study, jobs, budget, out, watcher, people.print)
    if len(done) < len(jobs):
        people.print(f"stopped after {len(done)} of {len(jobs)}; the same command goes on from here")
        return 143 if watcher.signal == 15 else 130
    found = findings(study, done)
    page = write_page(study, done, found, arguments.budget, _command(arguments), out)
    if arguments.json:
        print_json({"page": str(page)} | as_numbers(found))
        return 0
    for claim in found.claims:
        result.print(sentence(study, found, claim), markup=False)
    result.print(f"tables: {page}; figure: {page.with_suffix('.png')}", markup=False)
    return 0


def _command(arguments: argparse.Namespace) -> str:
    """What was asked for, but for where it was put."""
    asked = {name: getattr(arguments, name) for name in ("budget", "tasks", "arms")}
    words = [f"--{name} {value}" for name, value in asked.items() if value not in (None, "full")]
    return " ".join(["coplay reproduce", arguments.study, *words])


class StudyLine(LiveLine):
    """The progress line of one run after another, without each one's plan."""

    def planned(self, planned) -> None:
        self.speed = 0.0


def _named(text: str | None, known: list[str], what: str) -> list[str]:
    """All, or those between commas."""
    if text is None:
        return known
    names = text.split(",")
    for name in names:
        if name not in known:
            raise BadInput(f"the study has no {what} {name!r}; {nearest(name, known)}")
    return names


def _first_guess(study: Study, job: Job, budget: Budget):
    """The experiment at the first of its task's rates; which one is best is not known yet."""
    return experiment_of(study, job.task, job.arm, study.tasks[job.task].rates[0], budget)


def _dry_run(study: Study, jobs: list[Job], budget: Budget, as_json: bool) -> int:
    rows = []
    for job in jobs:
        task, plan = study.tasks[job.task], plans.plan(experiments.build(_first_guess(study, job, budget)))
        seeds = min(task.seeds, budget.most_seeds)
        has_sweep = not (study.arms[job.arm].base or task.rates_from)
        rates = len(task.rates[: budget.most_rates]) if has_sweep else 1
        tuning = rates * min(task.tuning_seeds, budget.most_seeds) if rates > 1 else 0
        command = command_of(study, job.task, job.arm, task.rates[0], budget)
        rows.append(
            {"task": job.task, "arm": job.arm, "label": plan.modules[0]["needs"], "weights": plan.parameters}
            | {"steps": plan.steps, "seeds": seeds, "rates": rates, "command": command}
            | {"seconds": plan.seconds * (seeds + tuning)}
        )
    if as_json:
        print_json({"study": study.name, "question": study.question, "runs": rows})
        return 0
    columns = ["task", "arm", "label", "weights", "steps", "seeds", "rates", "command"]
    print_table(columns, [tuple(f"{row[name]:,}" if name == "steps" else row[name] for name in columns)
                          for row in rows])  # fmt: skip
    result.print(f"{len(rows)} arms, roughly {minutes(sum(row['seconds'] for row in rows))} of one core")
    return 0
