"""The planted defects, tried: does the audit fail, and does it name the room that a defect is in?

    python -m tests.audit.suite              every defect, by a whole audit that knows nothing of it
    python -m tests.audit.suite 14 51        these
    python -m tests.audit.suite --quick      each against the check that is meant for it
    python -m tests.audit.suite --clean      experiments without a defect: what alarms falsely?
    python -m tests.audit.suite --table      what is there so far, as docs/mutants.md has it

Results go to `mutants/` as one small file each, so that a suite that was stopped goes on where it was.
"""

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax

from coplay.audit import AREAS, CHECKS, asked, asked_in_turn, checks_of
from coplay.audit.finding import Finding, findings, first_to_look_at
from coplay.audit.subject import Budget, Subject
from coplay.experiment import build, read_experiment, with_overrides
from coplay.training.devices import keep_compiled_programs, prepare
from coplay.types import Environment
from tests.audit.held_out import HELD_OUT
from tests.audit.held_out_again import HELD_OUT_AGAIN
from tests.audit.held_out_fourth import HELD_OUT_FOURTH
from tests.audit.held_out_third import HELD_OUT_THIRD
from tests.audit.mutants import ENVIRONMENT
from tests.audit.planted import Planted, replacing
from tests.audit.planted_algorithms import ALGORITHMS
from tests.audit.planted_nets import NETS
from tests.audit.planted_planning import PLANNING
from tests.audit.planted_training import TRAINING

BLIND = tuple(area for area in AREAS if area not in ("ladder",))
LIMIT = 3600.0  # seconds for one audit; what is not asked within them is told
LISTED = 78  # defects with higher numbers are not in the list that the bar is about


def in_game(spoil: Callable[[Environment], Environment]) -> Callable[[], AbstractContextManager]:
    """A game's defect, planted where experiments get theirs."""

    def spoiled(make):
        return lambda *names, **options: spoil(make(*names, **options))

    return replacing("coplay.experiment.building", "make_game", spoiled)


def in_games() -> Iterable[Planted]:
    for mutant in ENVIRONMENT:
        yield Planted(mutant.number, mutant.what, mutant.room, mutant.check, in_game(mutant.spoil))


DEFECTS: dict[int, Planted] = {
    planted.number: planted
    for planted in (
        *in_games(),
        *TRAINING,
        *ALGORITHMS,
        *NETS,
        *PLANNING,
        *HELD_OUT,
        *HELD_OUT_AGAIN,
        *HELD_OUT_THIRD,
        *HELD_OUT_FOURTH,
    )
}


def subject_of(name: str, settings: Any = (), seed: int = 0) -> Subject:
    experiment = with_overrides(read_experiment(name), dict(settings))
    built = build(experiment)
    return Subject(built.env, name, built.stretches[-1].lineup, None, experiment, seed)


def quickly(planted: Planted) -> Finding:
    """What the check that is meant for a defect says of it."""
    with planted.plant():
        subject = subject_of(planted.experiment, planted.settings)
        return finding_of(subject, planted.check)


def finding_of(subject: Subject, name: str) -> Finding:
    """What one check says."""
    return findings([asked(CHECKS[name], subject, Budget(LIMIT), jax.random.key(0))])[0]


def blindly(planted: Planted | None, name: str, settings: Any, seed: int = 0) -> list[Finding]:
    """Everything that an audit finds; with a defect, until nothing that follows could name another room."""
    with planted.plant() if planted else contextlib.nullcontext():
        return all_found(subject_of(name, settings, seed), stops_early=planted is not None)


def all_found(subject: Subject, stops_early: bool) -> list[Finding]:
    seen, checks = [], checks_of(BLIND)
    budget, key = Budget(LIMIT), jax.random.key(subject.seed)
    for one in asked_in_turn(checks, subject, budget, key, lambda name: None):
        seen.append(one)
        if stops_early and is_settled(findings(seen)):
            break
    return findings(seen)


def is_settled(found: list[Finding]) -> bool:
    """Whether all that could explain the failure to look at first, or judge it more mildly, was asked."""
    first, asked_for = first_to_look_at(found), {finding.name for finding in found}
    if first is None:
        return False
    beside = {check.name for check in checks_of([first.area]) if check.kind == "test"}
    waits_for = {*CHECKS[first.name].builds_on, *(beside if first.kind == "test" else ())}
    return waits_for <= asked_for


def told(found: list[Finding], seconds: float) -> dict[str, Any]:
    first = first_to_look_at(found)
    return {
        "fails": [finding.name for finding in found if finding.verdict == "fail"],
        "warns": [finding.name for finding in found if finding.verdict == "warn"],
        "room": first.room if first else "",
        "first": first.name if first else "",
        "says": first.next if first else "",
        "out_of_time": [finding.name for finding in found if "minutes were over" in finding.next],
        "seconds": round(seconds, 1),
        "took": {finding.name: finding.seconds for finding in found if finding.seconds > 1},
    }


KINDS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {  # two games each
    "ppo": (("ppo_4h1s_4x4", {}), ("ppo_snowdrift", {})),
    "ppo shared": (("ppo_4h1s_4x4", {"parameters": "shared"}), ("ppo_snowdrift", {"parameters": "shared"})),
    "mappo": (("mappo_4h1s_4x4", {}), ("ppo_snowdrift", {"algorithm": "mappo"})),
    "hyper_mappo": (("hyper_mappo_4h1s_4x4", {}), ("ppo_snowdrift", {"algorithm": "hyper_mappo"})),
    "hop_plus": (("hop_plus_4h1s_4x4", {}), ("hop_plus_4h1s_8x8_walls", {})),
}
HARMLESS: tuple[dict[str, Any], ...] = (  # one for each of the first eight that have another seed
    {"discount": 0.9},
    {"activation": "relu"},
    {"clip": 0.05},
    {"advantage_scale": "running"},
    {"trace": 0.8},
    {"max_grad_norm": 5.0},
    {"value_clip": 0.5},
    {"learning_rate": 0.0003},
)
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {  # beside those that the bar is about
    "ppo with memory": ("ppo_gru_4h1s_4x4", {}),
    "hop": ("hop_4h1s_4x4", {}),
    "happo": ("happo_4h1s_4x4", {}),
    "one ppo among scripts": ("one_ppo_three_nearest_stag", {}),
    "a schedule": ("scripts_first_4h1s_4x4", {}),
    "a team": ("ppo_4h1s_4x4_team", {}),
    "two players": ("matrix_stag_hunt", {}),
}
OTHER_SEED = 7


def clean() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every kind of learner in two games with two seeds, eight of them changed in a way that harms nobody."""
    plain = {
        f"{kind} {game}": made
        for kind, games in KINDS.items()
        for game, made in zip("ab", games, strict=True)
    }
    changes = iter(HARMLESS)
    again = {
        f"{name} again": (experiment, settings | {"seed": OTHER_SEED} | next(changes, {}))
        for name, (experiment, settings) in plain.items()
    }
    return plain | again | OTHERS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--part", default="0/1", help="such as 1/2: every second one, from the second on")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", default="mutants")
    arguments = parser.parse_args()
    out = Path(arguments.out)
    if arguments.table:
        print("\n".join(table(out)))
        return
    keep_compiled_programs()
    prepare(1)
    out.mkdir(exist_ok=True)
    part, parts = map(int, arguments.part.split("/"))
    jobs = clean_jobs() if arguments.clean else defect_jobs(arguments.numbers, arguments.quick)
    for name, job in list(jobs.items())[part::parts]:
        file = out / f"{name}.json"
        if not file.is_file():
            jax.clear_caches()
            file.write_text(json.dumps(job(), indent=1) + "\n")
        print(name, one_line(json.loads(file.read_text())), flush=True)


def defect_jobs(numbers: list[int], quick: bool) -> dict[str, Any]:
    chosen = [DEFECTS[number] for number in (numbers or sorted(DEFECTS))]
    chosen = [one for one in chosen if one.check or not quick]  # for those of `held_out.py` no check is meant
    kind = "quick" if quick else "blind"
    return {f"{kind}-{one.number:03d}": (lambda one=one: tried(one, quick)) for one in chosen}


def tried(planted: Planted, quick: bool) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        found = [quickly(planted)] if quick else blindly(planted, planted.experiment, planted.settings)
    except Exception as error:
        return {"what": planted.what, "broke": repr(error)[:300], "is_found": False, "is_right": False}
    result = told(found, time.perf_counter() - began)
    known = {"number": planted.number, "what": planted.what, "should": [planted.room, planted.check]}
    is_right = bool(result["fails"]) and result["room"] == planted.room
    return known | {"is_found": bool(result["fails"]), "is_right": is_right} | result


def clean_jobs() -> dict[str, Any]:
    def one(name: str, settings: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        return told(blindly(None, name, settings), time.perf_counter() - began)

    return {
        f"clean-{label.replace(' ', '_')}": (lambda given=given: one(*given))
        for label, given in clean().items()
    }


def table(out: Path) -> list[str]:
    """Every defect and every clean audit that was tried, with totals first."""
    results = {file.stem: json.loads(file.read_text()) for file in sorted(out.glob("*.json"))}
    kind = "blind-" if any(name.startswith("blind-") for name in results) else "quick-"
    blind = [result for name, result in results.items() if name.startswith(kind) and "number" in result]
    listed = [result for result in blind if result["number"] <= LISTED]
    clean = {name: result for name, result in results.items() if name.startswith("clean-")}
    right = sum(result["is_right"] for result in listed)
    fails = sum(bool(result["fails"]) for result in clean.values())
    warns = sum(len(result["warns"]) for result in clean.values())
    lines = [
        f"{right} of {len(listed)} listed defects found with the right room named first "
        f"({sum(result['is_found'] for result in listed)} found); {len(blind) - len(listed)} others tried. "
        f"{len(clean)} clean audits: {fails} with a failure, {warns} warnings.",
        "",
        "| # | Defect | Room | Named first | By | Seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for result in blind:
        named = result["room"] if result["is_right"] else f"**{result['room'] or 'missed'}**"
        cells = (result["number"], result["what"], result["should"][0], named, f"`{result['first']}`")
        lines.append("| " + " | ".join(map(str, (*cells, round(result["seconds"])))) + " |")
    lines += ["", "| Clean audit | Failures | Warnings | Not asked in time | Seconds |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for name, result in clean.items():
        alarms = [", ".join(result[kind]) or "none" for kind in ("fails", "warns", "out_of_time")]
        cells = (name.removeprefix("clean-").replace("_", " "), *alarms, round(result["seconds"]))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def one_line(result: dict[str, Any]) -> str:
    if "broke" in result:
        return f"BROKE {result['broke']}"
    if "is_right" in result:
        verdict = "right" if result["is_right"] else "FOUND, other room" if result["is_found"] else "MISSED"
        return (
            f"{verdict} {result['room']}/{result['first']} (should {result['should']}) {result['seconds']} s"
        )
    unasked = f" NOT ASKED FOR WANT OF TIME {result['out_of_time']}" if result["out_of_time"] else ""
    return f"fails {result['fails']} warns {result['warns']} {result['seconds']} s {result['says']}{unasked}"


if __name__ == "__main__":
    main()
