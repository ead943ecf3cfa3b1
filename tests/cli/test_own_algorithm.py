"""An algorithm of the user's own, named `file.py:function`, from the command line."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from coplay import runs
from coplay.cli.main import main
from coplay.experiment import algorithms_in_play, build, job, read_experiment, with_overrides
from coplay.plugins import parameters_of
from tests.small import same_bits

EXAMPLE = Path(__file__).parents[2] / "examples" / "05_own_algorithm.py"
MINE = """
game = "matrix_stag_hunt"
algorithm = "{file}:reinforce"

[algorithm_options]
discount = 0.9

[rollout]
total_steps = 640
num_envs = 16
num_steps = 10
"""
OTHERS = """
from coplay.algorithms.ppo import ppo
from coplay.algorithms.ppo_config import PPOConfig
from coplay.players.scripted import random_player

def with_memory(env, seats, plan):
    return ppo(env, seats, PPOConfig(network="gru", hidden=(8,), minibatches=1), plan)

def short(env, seats):
    return ppo(env, seats, PPOConfig(), None)

def nothing(env, seats, plan):
    return None

def broken(env, seats, plan):
    return 1 / 0

def needy(env, seats, plan, pace):
    return with_memory(env, seats, plan)

def neither(one, two):
    return random_player(one)

def player(env):
    return random_player(env)

again = with_memory
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with the example's algorithm and an experiment that names it from there."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE, "mine.py")
    Path("others.py").write_text(OTHERS)
    Path("mine.toml").write_text(MINE.format(file="mine.py"))
    return tmp_path


def as_json(capsys, *arguments):
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments) -> str:
    assert main([str(a) for a in arguments]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_it_is_trained_gone_on_with_and_scored_by_its_name(mine, capsys):
    as_json(capsys, "train", "mine.toml", "--out", "run", "--width", "8", "--devices", "1")
    written = (mine / "run" / "experiment.toml").read_text()
    assert 'algorithm = "mine.py:reinforce"' in written and "[ppo]" not in written
    assert "[algorithm_options]\ndiscount = 0.9\nwidth = 8" in written
    weights = runs.load("run").metrics()["metric"].unique().to_pylist()
    assert "policy/loss" in weights
    as_json(capsys, "resume", "run", "--steps", "1280")
    score = as_json(capsys, "evaluate", "run", "--episodes", "32")
    assert score["step"] == 1280
    assert (
        2 * 10 <= score["mean_return"] <= 4 * 10
    )  # ten rounds; nobody is paid less than 2 on the mean, or 4
    assert "mine.py:reinforce" in (mine / "run" / "report.html").read_text()


def test_a_resumed_run_is_the_same_to_the_bit(mine):
    given = read_experiment("mine.toml")
    whole = runs.train(with_overrides(given, {"steps": 640}), "whole", pages=False)
    half = runs.train(with_overrides(given, {"steps": 320}), "half", pages=False)
    on = runs.resume(half.path, steps=640, pages=False)
    assert whole.finished and on.finished
    assert same_bits(whole.finished.state, on.finished.state)


def test_it_learns_beside_a_player_of_ones_own(mine):
    lineup = ("mine.py:reinforce", "others.py:player")
    given = with_overrides(read_experiment("mine.toml"), {"lineup": lineup})
    assert algorithms_in_play(given) == ["mine.py:reinforce"]
    made = build(given)
    assert [member.seats for member in made.members] == [(0,), (1,)]


def test_what_a_function_asks_for_is_read_and_not_run(mine):
    Path("loud.py").write_text("raise SystemExit\ndef make(env, seats, *, plan, pace=1): ...")
    assert parameters_of("loud.py:make") == ["env", "seats", "plan", "pace"]
    assert parameters_of("others.py:again") == ["env", "seats", "plan"]
    assert parameters_of("others.py:absent") == parameters_of("absent.py:make") == []


def test_sequences_are_kept_only_for_who_remembers(mine):
    given = with_overrides(read_experiment("mine.toml"), {"num_steps": 20, "sequence_length": 10})
    assert job(build(given)).sequence_length == 20
    remembering = dataclasses.replace(given, algorithm="others.py:with_memory", algorithm_options={})
    assert job(build(remembering)).sequence_length == 10


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algorithm", "absent.py:make"], ["'absent.py', which is not there"]),
        (["--algorithm", "mine.py:reinforse"], ["no function 'reinforse'", "did you mean 'reinforce'"]),
        (["--algorithm", "others.py:short"], ["asks for (env, seats)", "begins with (env, seats, plan)"]),
        (["--algorithm", "others.py:nothing"], ["must return an Algorithm, not a NoneType"]),
        (["--algorithm", "others.py:broken"], ["others.py:broken failed with ZeroDivisionError"]),
        (["--algorithm", "others.py:needy"], ["algorithm_options.pace, which has no default"]),
        (["--algorithm", "others.py:neither"], ["asks for (one, two)", "of a player takes (env)"]),
        (["--algorithm_options.discuont", "1"], ["algorithm_options.discuont", "mean 'discount'"]),
        (["--discuont", "1"], ["unknown setting --discuont", "did you mean '--discount'"]),
        (["--discount", "high"], ["algorithm_options.discount='high' should be a number"]),
        (["--algorithm", "ppo", "--algorithm_options.width", "1"], ["--algorithm_options.width"]),
        (
            ["--algorithm", "others.py:with_memory", "--num_steps", "30"],
            ["sequence_length=20", "with_memory"],
        ),
    ],
)
def test_what_is_wrong_with_it_is_one_sentence(mine, capsys, arguments, words):
    Path("plain.toml").write_text(MINE.format(file="mine.py").replace("discount = 0.9\n", ""))
    message = refused(capsys, "train", "plain.toml", "--out", "run", *arguments)
    for word in words:
        assert word in message, message
    assert not Path("run").exists()


def test_it_is_no_company_before_it_was_trained(mine, capsys):
    as_json(capsys, "train", "mine.toml", "--out", "run")
    message = refused(capsys, "adapt", "run", "--against", "mine.py:reinforce")
    assert "mine.py:reinforce is an algorithm, which has to be trained first" in message
