"""How outcomes are judged, alone and together, worked by hand."""

import dataclasses
import time

import jax
import pytest

from coplay import audit as audits
from coplay.audit.finding import (
    Check,
    Effect,
    Finding,
    Kind,
    Outcome,
    Seen,
    exact,
    findings,
    first_to_look_at,
    headline,
    judged,
    not_run,
    verdict_of,
)
from coplay.audit.subject import Budget, Subject
from coplay.errors import BadInput
from tests.audit.mutants import stag_hunt


def check(name: str, kind: Kind = "test", area="environment", builds_on=()) -> Check:
    return Check(name, area, "Why?", kind, "envs", lambda *given: not_run("", ""), builds_on)


def of_a_test(p: float, value: float = 1.0, margin: float = 0.5) -> Outcome:
    return Outcome("x", abs(value), margin, p=p, effect=Effect(value, value - 0.1, value + 0.1), next="look")


@pytest.mark.parametrize(
    ("p", "value", "expected"),
    [
        (1e-4, 1.0, "fail"),
        (1e-3, 1.0, "warn"),
        (0.02, 1.0, "pass"),
        (1e-9, 0.4, "pass"),
        (1e-4, -1.0, "fail"),
    ],
)
def test_a_test_needs_both_a_small_p_and_an_effect_beyond_its_margin(p, value, expected):
    assert judged("test", of_a_test(p, value), p) == expected


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (Effect(0.0, -0.4, 0.4), "pass"),  # shown to be small
        (Effect(1.0, 0.8, 1.2), "fail"),  # shown to be there, and large
        (Effect(0.3, -0.6, 1.2), "warn"),  # not enough data
        (Effect(0.45, 0.3, 0.6), "warn"),  # there, and perhaps large
        (Effect(-1.0, -1.2, -0.8), "fail"),
    ],
)
def test_that_nothing_is_there_must_be_shown(effect, expected):
    outcome = Outcome("x", abs(effect.value), 0.5, p=1.0, effect=effect)
    assert judged("equivalence", outcome, 1.0) == expected


def test_many_tests_of_an_area_are_corrected_together_and_areas_apart():
    seen = [Seen(check(f"t{i}"), of_a_test(4e-4), 0.0) for i in range(3)]
    seen.append(Seen(check("alone", area="models"), of_a_test(4e-4), 0.0))
    found = {finding.name: finding for finding in findings(seen)}
    assert found["t0"].p_adjusted == pytest.approx(1.2e-3) and found["t0"].verdict == "warn"
    assert found["alone"].p_adjusted == pytest.approx(4e-4) and found["alone"].verdict == "fail"


def test_the_earliest_failure_that_nothing_explains_is_named():
    seen = [
        Seen(check("follows", "exact", builds_on=("cause",)), exact("x", 1, 2, "a result"), 0.0),
        Seen(check("cause", "exact"), exact("x", 3, 4, "the thing itself"), 0.0),
    ]
    found = findings(seen)
    assert found[0].explained_by == ("cause",) and found[1].explained_by == ()
    first = first_to_look_at(found)
    assert first is not None and first.name == "cause"
    assert headline(found) == "2 fail. Look first at envs: the thing itself"


def one_failure(by_seat: tuple[float, ...], says: str) -> list[Finding]:
    return findings([Seen(check("a", "exact"), exact("x", 3, 8, says, by_seat), 0.0, "envs/game.py")])


@pytest.mark.parametrize(
    ("by_seat", "says", "where"),
    [
        ((0.0, 0.0, 3.0), "rows differ", "envs (envs/game.py), seat 2: rows differ"),
        ((0.0, 1.0, 2.0), "rows differ", "envs (envs/game.py): rows differ"),
        ((0.0, 3.0), "seat 1 differs", "envs (envs/game.py): seat 1 differs"),  # said already
        ((), "rows differ", "envs (envs/game.py): rows differ"),
    ],
)
def test_the_first_line_names_the_file_and_the_seat_if_it_is_one(by_seat, says, where):
    assert headline(one_failure(by_seat, says)) == f"1 fail. Look first at {where}"


def test_programs_may_rely_on_the_first_seven_fields_of_a_finding_and_on_what_the_rest_are():
    names = [field.name for field in dataclasses.fields(Finding)]
    assert names[:7] == ["name", "area", "room", "verdict", "figure", "threshold", "next"]
    told = {"asks", "kind", "statistic", "unit", "n", "p", "p_adjusted", "effect", "by_seat", "explained_by"}
    assert set(names[7:]) == told | {"drawing", "seconds", "file", "scale"} and len(names) == 21


def test_what_did_not_run_counts_for_nothing_unless_nothing_ran():
    silent = findings([Seen(check("a"), not_run("x", "no time"), 0.0)])
    assert verdict_of(silent) == "not_run"
    passed = findings([Seen(check("b", "exact"), exact("x", 0, 5, ""), 0.0)])
    assert verdict_of(silent + passed) == "pass"
    assert headline(silent + passed) == "1 pass, 1 not run."


def test_a_passed_check_says_nothing_to_look_at():
    finding = findings([Seen(check("b", "exact"), exact("x", 0, 5, "never said"), 0.0)])[0]
    assert finding.next == "" and dataclasses.asdict(finding)["verdict"] == "pass"


@pytest.mark.parametrize(
    ("error", "verdict", "said"),
    [(BadInput("no such thing"), "not_run", "no such thing"), (KeyError("x"), "warn", "broke off: KeyError")],
)
def test_a_check_that_breaks_off_stops_no_other_and_is_no_pass(monkeypatch, error, verdict, said):
    def breaks(subject, budget, key):
        raise error

    checks = {"breaks": check("breaks")._replace(call=breaks), "other": check("other")}
    monkeypatch.setattr(audits, "CHECKS", checks)
    first, second = audits.audit(Subject(stag_hunt(), "a game"), Budget(), ("environment",))
    assert first.verdict == verdict and said in first.next
    assert second.verdict == "not_run"


def test_what_is_not_begun_in_time_is_not_run_and_says_so():
    spent = Budget(seconds=90.0, began=time.monotonic() - 91.0)
    seen = audits.asked(check("late"), Subject(stag_hunt(), "a game"), spent, jax.random.key(0))
    assert seen.outcome.verdict == "not_run" and seen.outcome.next == "the 1.5 minutes were over"
    assert seen.scale == "" and verdict_of(findings([seen])) == "not_run"


def test_every_area_has_its_question_in_the_order_of_its_checks():
    assert list(audits.AREAS) == list(dict.fromkeys(check.area for check in audits.CHECKS.values()))
    assert all(question.count("?") == 1 and question.endswith("?") for question in audits.AREAS.values())


def test_what_checks_build_on_exists_and_goes_in_no_circle():
    below = {name: set(check.builds_on) for name, check in audits.CHECKS.items()}
    assert set().union(*below.values()) <= set(below)
    while below:
        lowest = {name for name, builds_on in below.items() if not builds_on & set(below)}
        assert lowest, f"{sorted(below)} explain one another"
        below = {name: builds_on for name, builds_on in below.items() if name not in lowest}
