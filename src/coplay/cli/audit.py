"""`audit`: what is wrong with a run or an experiment, and where."""

import argparse
import dataclasses
import json
from pathlib import Path

from coplay.audit import AREAS, CHECKS
from coplay.audit.environment import FULL_EPISODES
from coplay.audit.finding import EXIT_CODES, Finding, headline, verdict_of
from coplay.audit.side_by_side import audit_side_by_side
from coplay.audit.subject import Budget, Subject, names_a_run, subject_of
from coplay.cli.output import people, plain, print_json, print_table, refuse_rest, result
from coplay.errors import BadInput, nearest
from coplay.experiment import parse_run
from coplay.reports.audit_page import write_audit_page
from coplay.training.devices import prepare
from coplay.training.run_folder import collect_versions

EPILOG = """exit codes: 0 all passed, 3 something to doubt, 4 something is wrong, 5 nothing could run.
  coplay audit runs/x                            a finished run: its curves, its game, its learners
  coplay audit ppo_4h1s_4x4 --only environment   an experiment, before anything is trained
areas:
"""
EPILOG += "\n".join(f"  {area:<12} {question}" for area, question in AREAS.items())
IN_FULL = f"{FULL_EPISODES:,} episodes of random play, every number, every rung of the ladder"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="RUN|EXPERIMENT", help="a run folder, or an experiment")
    parser.add_argument("--only", help=f"these areas, between commas: {', '.join(AREAS)}")
    parser.add_argument("--minutes", type=float, default=10.0, help="no check is begun after these (10)")
    parser.add_argument("--seeds", type=int, default=8, help="of every rung of the ladder (8)")
    parser.add_argument("--full", action="store_true", help=f"{IN_FULL}; networks stay small")
    parser.add_argument("--seed", type=int, default=0, help="of the audit's own draws")
    parser.add_argument(
        "--out", help="folder for findings and page (default: RUN/audit, or audits/EXPERIMENT)"
    )


def audit_command(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json", "only", "minutes", "seeds", "full", "seed", "out"])
    if arguments.minutes <= 0:
        raise BadInput(f"--minutes {arguments.minutes:g} must be above 0")
    if arguments.seeds < 1:
        raise BadInput(f"--seeds {arguments.seeds} must be 1 or more")
    prepare(1)
    subject, areas = subject_of(arguments.target, arguments.seed), _areas(arguments.only)
    out = Path(arguments.out) if arguments.out else _out_of(arguments.target)
    budget = Budget(60.0 * arguments.minutes, arguments.full, arguments.seeds)
    found = audit_side_by_side(subject, budget, areas, _tell)
    told = as_numbers(subject, budget, found)
    page = _write(out, told)
    if arguments.json:
        print_json(told)
    else:
        _print(found)
        result.print(headline(found), markup=False)
        result.print(f"page: {page}", markup=False)
    return EXIT_CODES[verdict_of(found)]


def _areas(only: str | None) -> tuple[str, ...]:
    wanted = tuple(name.strip() for name in only.split(",")) if only else tuple(AREAS)
    for name in wanted:
        if name not in AREAS:
            raise BadInput(f"--only {name}: no such area; {nearest(name, AREAS)}")
    return wanted


def _out_of(target: str) -> Path:
    """Beside what it is about; what comes with the package is not written into."""
    if names_a_run(target) and not target.startswith("zoo:"):
        return parse_run(target).path / "audit"
    return Path("audits") / Path(target.removeprefix("zoo:")).stem


def _tell(name: str) -> None:
    check = CHECKS[name]
    people.print(f"{check.area}: {check.asks}", markup=False)


def as_numbers(subject: Subject, budget: Budget, found: list[Finding]) -> dict:
    return plain(
        {
            "verdict": verdict_of(found),
            "headline": headline(found),
            "subject": subject.name,
            "game": subject.env.name,
            "scale": f"small; --full: {IN_FULL}" if budget.is_full else "small",
            "seed": subject.seed,
            "versions": collect_versions(subject.env.package)["packages"],
            "checks": [dataclasses.asdict(finding) for finding in found],
        }
    )


def _write(out: Path, told: dict) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    (out / "findings.json").write_text(json.dumps(told, indent=2) + "\n")
    return write_audit_page(out)


def _print(found: list[Finding]) -> None:
    rows = [
        (
            finding.area,
            finding.name,
            finding.verdict.replace("_", " "),
            "-" if finding.figure is None else f"{finding.figure:.4g}",
            finding.unit,
            "" if finding.verdict == "pass" else finding.next,
        )
        for finding in found
    ]
    print_table(["area", "check", "verdict", "figure", "", "what to look at"], rows)
