"""`coplay reproduce` on the command line."""

import json
import shlex

import pytest

from coplay.cli.main import main
from coplay.settings import parse_text


def test_a_dry_run_names_every_run_with_the_command_that_makes_it(capsys, study_file):
    assert main(["reproduce", str(study_file), "--tasks", "four", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    by_arm = {run["arm"]: run for run in told["runs"]}
    assert set(by_arm) == {"plain", "slow", "wide", "generated", "mistaken"}
    assert by_arm["plain"]["rates"] == 2
    assert by_arm["slow"]["rates"] == 1
    assert by_arm["generated"]["label"] == "decentralised + memory"
    assert by_arm["mistaken"]["command"].startswith("coplay train hyper_specialisation ")


def test_a_dry_run_prints_lists_as_they_can_be_typed(capsys):
    assert main(["reproduce", "hyper_options", "--arms", "observations", "--dry-run"]) == 0
    (command,) = [line for line in capsys.readouterr().out.splitlines() if "coplay train" in line]
    words = shlex.split(command)
    assert parse_text(words[words.index("--history_reads") + 1]) == ["observation"]


def test_runs_come_to_a_page_and_numbers(capsys, study_file, tmp_path):
    words = ["reproduce", str(study_file), "--tasks", "four", "--arms", "plain,generated", "--json"]
    assert main([*words, "--budget", "quick", "--workers", "1", "--out", str(tmp_path / "out")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [arm["arm"] for arm in told["arms"]] == ["plain", "generated"]
    assert {"task", "arm", "p", "may_be_made"} <= set(told["claims"][0])
    assert (tmp_path / "out" / "small.md").is_file()


def test_side_by_side_arms_come_out_as_one_after_the_other(capsys, study_file, tmp_path):
    words = ["reproduce", str(study_file), "--tasks", "four", "--arms", "plain,slow", "--json"]
    words += ["--budget", "quick"]
    told = []
    for workers in ("1", "2"):
        out = tmp_path / workers
        assert main([*words, "--workers", workers, "--out", str(out)]) == 0
        found = json.loads(capsys.readouterr().out)
        told.append({name: value for name, value in found.items() if name != "page"})
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["hypr"], "'hypr' is neither a TOML file nor a shipped study; did you mean 'hyper'"),
        (["hyper", "--tasks", "stag"], "the study has no task 'stag'; did you mean 'stag_hunt'"),
        (["hyper", "--arms", "A9"], "the study has no arm 'A9'"),
        (["hyper", "--seeds", "3"], "unknown option '--seeds'"),
        (["hyper", "--workers", "0"], "--workers 0 should be 1 or more"),
        (["hyper", "--budget", "slow"], "--budget slow is none of full, quick"),
    ],
)
def test_what_cannot_be_is_one_sentence(capsys, words, sentence):
    assert main(["reproduce", *words]) == 2
    assert sentence in capsys.readouterr().err
