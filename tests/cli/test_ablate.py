"""`coplay ablate` from end to end, on a game of one move: what is trained, kept, written and refused."""

import json
from pathlib import Path

import pytest

from coplay import runs
from coplay.cli.main import main

TINY = """
game = "chicken"
algorithm = "mappo"
devices = 1
[game_options]
rounds = 1
[rollout]
total_steps = 32
num_envs = 4
num_steps = 4
[mappo]
hidden = [4]
epochs = 1
minibatches = 2
"""


def ablate(folder: Path, *more: str) -> int:
    experiment = folder / "mine.toml"
    experiment.write_text(TINY)
    return main(["ablate", str(experiment), "--seeds", "2", "--out", str(folder / "out"), *more])


@pytest.fixture(scope="module")
def climbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ladder")
    assert ablate(folder, "--rungs", "ppo,full") == 0
    return folder


def test_every_rung_has_its_run_and_the_figures_are_written(climbed):
    told = json.loads((climbed / "out" / "ablation.json").read_text())
    assert (told["seeds"], told["steps"]) == (2, 32)
    assert [rung["name"] for rung in told["rungs"]] == ["ppo", "full"]
    for rung in told["rungs"]:
        assert (climbed / "out" / rung["name"] / "experiment.toml").exists()
        assert rung["seeds"] == 2 and {"return", "value_loss"} <= set(rung["symptoms"])
    assert told["rungs"][0]["symptoms"]["value_loss"]["value"] == 1.0  # against itself


def test_a_repeated_command_trains_nothing_again_and_says_the_same(climbed, capsys, monkeypatch):
    monkeypatch.setattr(runs, "train", lambda *_, **__: pytest.fail("trained again"))
    before = json.loads((climbed / "out" / "ablation.json").read_text())
    assert ablate(climbed, "--rungs", "full,ppo", "--json") == 0
    after = json.loads(capsys.readouterr().out)
    for told in (before, after):
        for rung in told["rungs"]:
            del rung["seconds"]
    assert before == after


def test_people_read_a_table_and_a_sentence_for_every_symptom(climbed, capsys):
    assert ablate(climbed, "--rungs", "ppo,full") == 0
    said = capsys.readouterr().out
    assert "a critic that sees everyone's rows" in said
    assert "less is earned than on the first rung: not enough seeds: 2" in said
    assert "co-players are hardly foreseen: no rung tells" in said


def test_more_rungs_keep_those_that_are_finished(climbed, capsys, monkeypatch):
    trained, train = [], runs.train

    def noted(given, out, *rest, **more):
        trained.append(Path(out).name)
        return train(given, out, *rest, **more)

    monkeypatch.setattr(runs, "train", noted)
    assert ablate(climbed, "--rungs", "ppo,full,full_per_agent", "--json") == 0
    assert trained == ["full_per_agent"]
    (shared,) = json.loads(capsys.readouterr().out)["sharing"]
    assert shared["rung"] == "full" and "not enough seeds" in shared["says"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--rungs", "ppo,ful"], "--rungs ful: this ladder has no such rung; did you mean 'full'?"),
        (["--rungs", "ppo", "--steps", "64"], "was trained with other settings; take another --out"),
        (["--seeds", "0"], "seeds=0 must be at least 1"),
        (["--stesp", "9"], "unknown setting --stesp; did you mean '--steps'?"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_lost(climbed, capsys, more, sentence):
    before = (climbed / "out" / "ablation.json").read_bytes()
    assert ablate(climbed, *more) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.strip().splitlines()[-1].startswith("coplay: ")
    assert (climbed / "out" / "ablation.json").read_bytes() == before


def test_an_unknown_experiment_and_one_without_learners_are_refused(tmp_path, capsys):
    assert main(["ablate", "hop_plus_4h1s_4x5"]) == 2
    assert "did you mean 'hop_plus_4h1s_4x4'?" in capsys.readouterr().err
    experiment = tmp_path / "idle.toml"
    experiment.write_text('game = "4h1s_4x4"\nalgorithm = "nearest_stag"\n')
    assert main(["ablate", str(experiment), "--out", str(tmp_path / "out")]) == 2
    assert "nobody learns" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_rung_that_is_refused_is_told_and_alone_is_an_error(tmp_path, capsys):
    experiment = tmp_path / "happo.toml"
    experiment.write_text(TINY.replace("mappo", "happo"))
    assert main(["ablate", str(experiment), "--rungs", "full_shared"]) == 2
    assert "none of them can be trained: happo updates actors in turns" in capsys.readouterr().err
