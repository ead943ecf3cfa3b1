"""`compare` on the command line: what is printed, and what is refused rather than ignored."""

import json

import pytest

from coplay.cli.main import main
from tests.small import written_run

QUICK, SLOW = [[3.0] * 4], [[0.0, 0.0, 3.0, 3.0]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [written_run(folder / "quick", QUICK), written_run(folder / "slow", SLOW)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--reach", "2"], "up to step 480, which --window 16,000 is longer than"),
        (["--window", "160"], "--window 160 is what --reach averages over; give --reach too"),
        (["--reach", "2", "--last", "0.5"], "--reach goes over all of training; leave --last 0.5 out"),
        (["--reach", "2", "--window", "0"], "--window 0 must be at least 1"),
        (["--last", "0"], "--last 0.0 must lie between 0 and 1"),
    ],
)
def test_what_would_be_ignored_or_empty_is_refused(capsys, runs, arguments, sentence):
    assert main(["compare", *runs, *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sentence in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--reach", "2", "--window", "160"], ["--last", "0.5"]])
def test_one_seed_has_no_interval(capsys, runs, arguments):
    assert main(["compare", *runs, *arguments]) == 0
    assert "nan" not in capsys.readouterr().out
    assert main(["compare", *runs, *arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"][0]["interval"] == [None, None]


@pytest.mark.parametrize("arguments", [["--reach", "2", "--window", "160"], ["--last", "0.5"]])
def test_what_play_needs_stands_beside_each_run_that_says_it(capsys, runs, tmp_path, arguments):
    heard = written_run(tmp_path / "heard", QUICK, needs="communicates")
    assert main(["compare", runs[0], heard, *arguments]) == 0
    head, old, new = capsys.readouterr().out.splitlines()[:3]
    assert head.split()[:2] == ["run", "needs"]
    assert (old.split()[1], new.split()[1]) == ("-", "communicates")
    assert main(["compare", runs[0], heard, *arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["runs"]
    assert [run["needs"] for run in said] == [None, "communicates"]


def test_two_seeds_have_one(capsys, tmp_path):
    pair = [written_run(tmp_path / name, 2 * of_seed) for name, of_seed in (("a", QUICK), ("b", SLOW))]
    assert main(["compare", *pair, "--reach", "2", "--window", "160"]) == 0
    # steps 160 against 320 in both seeds
    assert "0.50 times the steps (95% 0.50 to 0.50), of the seeds that got there" in capsys.readouterr().out
