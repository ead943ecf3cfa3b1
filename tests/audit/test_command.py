"""`coplay audit` from end to end: exit codes, what is written, and the page."""

import json
from pathlib import Path

import pytest

from coplay.audit import AREAS, CHECKS
from coplay.audit.subject import Budget, subject_of
from coplay.cli.audit import as_numbers
from coplay.cli.main import main
from coplay.reports.audit_page import bars, write_audit_page

UNFAIR = """
import dataclasses
from coplay.envs import make_game

def make():
    env = make_game("matching_pennies")
    def step(state, action, key):
        state, after = env.step(state, action, key)
        return state, dataclasses.replace(after, reward=after.reward.at[0].add(1.0))
    return dataclasses.replace(env, step=step, reward_values=(-1.0, 0.0, 1.0, 2.0))
"""


def test_a_fair_experiment_passes_and_leaves_its_findings(tmp_path, capsys):
    out = tmp_path / "found"
    arguments = ["audit", "matrix_matching_pennies", "--only", "environment", "--out", str(out)]
    assert main(arguments) == 0
    assert "7 pass, 1 not run." in capsys.readouterr().out
    told = json.loads((out / "findings.json").read_text())
    assert told["scale"] == "small"
    assert told["verdict"] == "pass" and {check["verdict"] for check in told["checks"]} == {"pass", "not_run"}
    assert [check["name"] for check in told["checks"] if check["verdict"] == "not_run"] == ["mirrored"]
    page = (out / "audit.html").read_text()
    assert "7 pass, 1 not run." in page and "http" not in page
    assert write_audit_page(out).read_text() == page


def test_an_unfair_game_of_the_users_own_fails_and_its_room_is_named(tmp_path, capsys):
    game = tmp_path / "unfair.py"
    game.write_text(UNFAIR)
    experiment = tmp_path / "mine.toml"
    experiment.write_text(f'game = "{game}:make"\nalgorithm = "ppo"\n')
    arguments = ["audit", str(experiment), "--only", "environment", "--out", str(tmp_path / "a"), "--json"]
    assert main(arguments) == 4
    told = json.loads(capsys.readouterr().out)
    failed = {check["name"] for check in told["checks"] if check["verdict"] == "fail"}
    assert "renaming" in failed and f"Look first at envs ({game})" in told["headline"]


def test_what_is_only_doubted_has_an_exit_code_of_its_own(tmp_path, capsys, monkeypatch):
    def breaks(subject, budget, key):
        raise ValueError("no board")

    monkeypatch.setitem(CHECKS, "rules", CHECKS["rules"]._replace(call=breaks))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    out = str(tmp_path / "found")
    assert main(["audit", "matrix_matching_pennies", "--only", "environment", "--out", out, "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "warn" and told["headline"] == "1 warn, 6 pass, 1 not run."
    assert [check["next"] for check in told["checks"] if check["verdict"] == "warn"] == [
        "the check broke off: ValueError: no board"
    ]


def test_without_time_nothing_is_begun(tmp_path, capsys):
    arguments = ["matrix_matching_pennies", "--only", "environment", "--minutes", "1e-9"]
    assert main(["audit", *arguments, "--out", str(tmp_path / "found"), "--json"]) == 5
    told = json.loads(capsys.readouterr().out)
    assert {check["next"] for check in told["checks"]} == {"the 1e-09 minutes were over"}


def test_help_asks_one_question_for_every_area_as_the_docs_do(capsys):
    with pytest.raises(SystemExit):
        main(["audit", "--help"])
    told = capsys.readouterr().out
    docs = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    for area, question in AREAS.items():
        assert f"  {area:<12} {question}\n" in told
        assert f"| `{area}` | {question} |" in docs


def test_full_says_what_it_does_and_that_networks_stay_small():
    subject = subject_of("matrix_matching_pennies")
    assert as_numbers(subject, Budget(is_full=True), [])["scale"] == (
        "small; --full: 1,048,576 episodes of random play, every number, every rung of the ladder"
    )


def test_nothing_to_run_is_no_pass(tmp_path, capsys):
    out = str(tmp_path / "found")
    assert main(["audit", "matrix_matching_pennies", "--only", "phenomenon", "--out", out]) == 5
    assert "not run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "enviroment"], "--only enviroment: no such area; did you mean 'environment'?"),
        (["--minutes", "0"], "--minutes 0 must be above 0"),
        (["--seeds", "0"], "--seeds 0 must be 1 or more"),
        (["--onyl", "x"], "unknown option '--onyl'"),
    ],
)
def test_what_cannot_be_audited_is_one_sentence(tmp_path, capsys, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "matrix_matching_pennies", *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said and len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_bars_begin_at_zero_whichever_way_they_go():
    assert bars([1.0, -1.0]) == [("seat 0", 50.0, 50.0), ("seat 1", 0.0, 50.0)]
    assert bars([0.0, 2.0]) == [("seat 0", 0.0, 0.0), ("seat 1", 0.0, 100.0)]


def test_where_nothing_differs_by_seat_there_are_no_bars():
    assert bars([0.0, 0.0]) == bars([]) == []
