"""The audit against changes to the product's code that nobody chose: how many of those that matter are found?

    python -m tests.audit.at_random --count 40              forty changes, one process for each
    python -m tests.audit.at_random --count 40 --part 0/2   every second one
    python -m tests.audit.at_random --one 17                that one, told at length
    python -m tests.audit.at_random --table                 what is there so far

A change is a slip of one line (`changes.py`). One that breaks off is no silent defect, and one after which
four updates at a small scale are the same to the bit changes nothing that is run there; the others are
audited blindly, as `suite.py` does it. Some of these harm nobody (a rate that is twice as large is another
setting), so what is missed has to be read. Results go to `mutants/`, one small file each.
"""

import argparse
import hashlib
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.audit import changes

EXPERIMENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ppo_4h1s_4x4", {}),
    ("mappo_4h1s_4x4", {}),
    ("hyper_a3_history", {}),
    ("hop_4h1s_4x4", {}),
    ("hop_plus_4h1s_4x4", {}),
    ("ppo_snowdrift", {}),
)
LONGEST = 1200  # seconds for one change
OUTCOMES = ("right", "other room", "missed", "breaks", "changes nothing")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--part", default="0/1", help="such as 1/2: every second one, from the second on")
    parser.add_argument("--one", type=int)
    parser.add_argument("--plain", type=int, help="what an experiment does without a change, by its place")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", default="mutants")
    arguments = parser.parse_args()
    out = Path(arguments.out)
    out.mkdir(exist_ok=True)
    if arguments.table:
        print("\n".join(table(out)))
    elif arguments.plain is not None:
        put(plain_file(out, arguments.plain), without_change(*EXPERIMENTS[arguments.plain]))
    elif arguments.one is not None:
        put(result_file(out, arguments.one), with_change(out, arguments.one))
    else:
        part, parts = map(int, arguments.part.split("/"))
        for number in range(part, arguments.count, parts):
            in_a_process_of_its_own(out, number)


def in_a_process_of_its_own(out: Path, number: int) -> None:
    """Since the product is imported anew with every change."""
    place = number % len(EXPERIMENTS)
    if not plain_file(out, place).is_file() and (error := run(out, "--plain", place)):
        raise SystemExit(f"{EXPERIMENTS[place][0]}, without a change: {error}")
    if not result_file(out, number).is_file():
        error = run(out, "--one", number)
        if error:
            put(result_file(out, number), described(out, number) | {"outcome": "breaks", "says": error})
    print(number, one_line(json.loads(result_file(out, number).read_text())), flush=True)


def run(out: Path, verb: str, number: int) -> str:
    """What went wrong, if anything did."""
    command = [sys.executable, "-m", "tests.audit.at_random", verb, str(number), "--out", str(out)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return f"longer than {LONGEST} s"
    return (ended.stderr.strip().splitlines() or ["ended"])[-1] if ended.returncode else ""


# --- one change ----------------------------------------------------------------------------------


def change_of(out: Path, number: int) -> changes.Change:
    """The same whenever it is asked for, as long as the code is the same."""
    plain = json.loads(plain_file(out, number % len(EXPERIMENTS)).read_text())
    return changes.drawn(plain["lines"], Random(number))


def described(out: Path, number: int) -> dict[str, Any]:
    name, settings = EXPERIMENTS[number % len(EXPERIMENTS)]
    change = change_of(out, number)
    _, before, after = changes.made(change)
    where = {"experiment": name, "settings": settings, "file": change.file, "line": change.line}
    return {"number": number} | where | {"kind": change.kind, "before": before, "after": after}


def with_change(out: Path, number: int) -> dict[str, Any]:
    known = described(out, number)
    plain = json.loads(plain_file(out, number % len(EXPERIMENTS)).read_text())
    change = change_of(out, number)
    changes.plant(change)
    suite = product()
    began = time.perf_counter()
    try:
        subject = suite.subject_of(known["experiment"], known["settings"])
        digest = what_happens(subject)
    except Exception as error:
        return known | {"outcome": "breaks", "says": f"{type(error).__name__}: {error}"[:300]}
    if digest == plain["digest"]:
        return known | {"outcome": "changes nothing"}
    found = suite.told(suite.all_found(subject, stops_early=True), time.perf_counter() - began)
    outcome = "missed" if not found["fails"] else "right" if found["room"] == change.room else "other room"
    return known | {"outcome": outcome} | found


def without_change(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What happens in four updates, and which lines were gone through."""
    lines: dict[str, set[int]] = {}
    with changes.lines_traced(lines):
        suite = product()
        digest = what_happens(suite.subject_of(name, settings))
    return {"digest": digest, "lines": changes.as_lists(lines)}


def product() -> Any:
    """Imported only now, so that a change may come first."""
    suite = importlib.import_module("tests.audit.suite")
    suite.keep_compiled_programs()
    suite.prepare(1)
    return suite


def what_happens(subject: Any) -> str:
    """A name for all that four updates at a small scale make and tell."""
    jax, np = importlib.import_module("jax"), importlib.import_module("numpy")
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves([tuple(one) for one in subject.rounds()]):
        is_key = hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        digest.update(np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes())
    return digest.hexdigest()


# --- told ----------------------------------------------------------------------------------------


def plain_file(out: Path, place: int) -> Path:
    return out / f"plain-{place}.json"


def result_file(out: Path, number: int) -> Path:
    return out / f"random-{number:03d}.json"


def put(file: Path, result: dict[str, Any]) -> None:
    file.write_text(json.dumps(result, indent=1) + "\n")


def one_line(result: dict[str, Any]) -> str:
    told = (
        f"{result.get('room', '')}/{result.get('first', '')}"
        if result.get("fails")
        else result.get("says", "")
    )
    where = f"{result['experiment']} {result['file']}:{result['line']}"
    return f"{result['outcome']} {where} | {result['before']} -> {result['after']} | {told}"


def table(out: Path) -> list[str]:
    results = [json.loads(file.read_text()) for file in sorted(out.glob("random-*.json"))]
    counts = {name: sum(one["outcome"] == name for one in results) for name in OUTCOMES}
    audited = [one for one in results if one["outcome"] in OUTCOMES[:3]]
    lines = [
        ", ".join(f"{count} {name}" for name, count in counts.items()) + ".",
        "",
        "| # | Experiment | Where | Was | Is | Outcome | By | Seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in audited:
        code = ("`" + one[name].replace("|", "\\|") + "`" for name in ("before", "after"))
        where = f"`{one['file']}`"
        cells = (
            one["number"],
            one["experiment"],
            where,
            *code,
            one["outcome"],
            one["first"],
            round(one["seconds"]),
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


if __name__ == "__main__":
    main()
