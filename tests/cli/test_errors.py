"""Whatever a user gets wrong: one sentence, exit code 2, nothing compiled, nothing written."""

import json
import subprocess
import sys

import pytest

from coplay import runs
from coplay.cli.main import main
from coplay.errors import BadInput
from coplay.plan import refuse_if_program_too_large
from tests.small import small


def refused(capsys, *arguments) -> str:
    assert main([str(a) for a in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--learning_rat", "1"], ["--learning_rat", "did you mean '--learning_rate'"]),
        (["--sedes", "3"], ["--sedes", "did you mean '--seeds'"]),
        (["--learning_rate", "fast"], ["learning_rate='fast'", "a number"]),
        (["--network", "mpl"], ["mpl", "did you mean 'mlp'"]),
        (["--stags", "14"], ["stags=14", "16 cells"]),
        (["--players", "0"], ["players=0"]),
        (["--num_envs", "30"], ["num_envs=30", "multiple"]),
        (["--lineup", '["ppo"]'], ["4 seats"]),
        (
            ["--lineup", '["ppo","nearest_stg","random","random"]'],
            ["nearest_stg", "did you mean 'nearest_stag'"],
        ),
        (["--lineup", '["ppo","runs/none","random","random"]'], ["runs/none", "not a run folder"]),
        (["--game", "4h1s_4x5"], ["4h1s_4x5", "did you mean"]),
        (["--every", "3"], ["--evaluation.every or --saving.every"]),
        (["--seeds", "0"], ["seeds=0"]),
        (["--network", "cnn"], ["board"]),
        (["--discount", "1.5"], ["discount=1.5", "between 0 and 1"]),
        (["--total_steps", "0"], ["total_steps=0"]),
        (["--learning_reward", "teem"], ["teem", "did you mean 'team'"]),
        (["--seed", "3000000000"], ["seed=3000000000"]),
        (["--lineup", '["random","random","random","random"]', "--devices", "3"], ["devices=3"]),
    ],
)
def test_a_bad_setting_is_named_and_refused(capsys, tmp_path, arguments, words):
    message = refused(capsys, "train", "ppo_4h1s_4x4", "--out", tmp_path / "run", *arguments)
    for word in words:
        assert word in message, message
    assert not (tmp_path / "run").exists()


def test_an_unknown_key_in_a_toml_names_file_and_line(capsys, tmp_path):
    toml = tmp_path / "mine.toml"
    toml.write_text('game = "4h1s_4x4"\n\n[ppo]\nlearning_rat = 1e-3\n')
    message = refused(capsys, "train", toml)
    assert f"{toml}, line 4" in message
    assert "learning_rate" in message


def test_a_wrong_type_in_a_toml_names_the_line(capsys, tmp_path):
    toml = tmp_path / "mine.toml"
    toml.write_text('game = "4h1s_4x4"\n[rollout]\nnum_envs = "many"\n')
    assert "line 3: rollout.num_envs='many' should be a whole number" in refused(capsys, "train", toml)


def test_broken_toml_is_one_sentence(capsys, tmp_path):
    toml = tmp_path / "mine.toml"
    toml.write_text("game = \n")
    assert "not valid TOML" in refused(capsys, "train", toml)


def test_an_unknown_experiment_names_the_nearest(capsys):
    assert "did you mean 'ppo_4h1s_4x4'" in refused(capsys, "train", "ppo_4h1s_4x")


def test_an_unknown_verb_names_the_nearest(capsys):
    assert "did you mean 'train'" in refused(capsys, "trian")


def test_a_folder_that_holds_anything_is_not_written_into(capsys, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("dear")
    refused(capsys, "train", "ppo_4h1s_4x4", "--out", tmp_path / "run", "--steps", "1000")
    assert (tmp_path / "run" / "thesis.tex").read_text() == "dear"
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_a_folder_below_a_file_is_refused(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    refused(capsys, "train", "ppo_4h1s_4x4", "--out", tmp_path / "file" / "run", "--steps", "1000")


def test_a_run_that_would_not_fit_in_memory_is_refused_with_the_field_to_lower(capsys, tmp_path):
    message = refused(
        capsys,
        "train",
        "ppo_4h1s_4x4",
        "--out",
        tmp_path / "run",
        "--num_envs",
        "4000000",
        "--num_steps",
        "4000",
    )
    assert "GiB" in message
    assert "num_envs" in message


TINY = ["--num_envs", "16", "--num_steps", "10", "--hidden", "[8,8]", "--devices", "1", "--steps", "320"]


def test_a_program_that_takes_too_much_of_free_memory_is_refused_and_leaves_no_folder(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr(runs, "free_memory", lambda: 1000)
    assert main(["train", "ppo_4h1s_4x4", "--out", str(tmp_path / "large"), *TINY]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "more than 60% of the" in message and "lower num_envs, num_steps or chunk_rows" in message
    assert list(tmp_path.iterdir()) == []


def test_most_of_free_memory_is_six_tenths_and_generated_weights_are_named_first():
    plain, generated = small("ppo_4h1s_4x4"), small("hyper_mappo_4h1s_4x4")
    refuse_if_program_too_large(plain, need=60, free=100)
    refuse_if_program_too_large(plain, need=None, free=0)
    with pytest.raises(
        BadInput, match=r"needs 3.0 GiB, more than 60% of the 4.0 GiB .* num_steps or chunk_rows"
    ):
        refuse_if_program_too_large(plain, need=3 * 2**30, free=4 * 2**30)
    with pytest.raises(BadInput, match=r"generate less \(generate\) or lower chunk_rows"):
        refuse_if_program_too_large(generated, need=61, free=100)


@pytest.mark.parametrize("verb", ["evaluate", "resume", "replay"])
def test_what_is_no_run_folder_is_refused(capsys, tmp_path, verb):
    assert "not a run folder" in refused(capsys, verb, tmp_path)


def test_compare_wants_two_runs(capsys, tmp_path):
    assert "two run folders" in refused(capsys, "compare", tmp_path)


def test_an_unknown_animal_of_the_zoo_is_refused(capsys):
    assert "the zoo has no 'dodo'" in refused(capsys, "adapt", "zoo:dodo", "--against", "random")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--against", "random"], ["not a run folder"]),
        (["--against", "random", "--games", "20"], ["--games 20", "multiple of 8"]),
        (["--against", "random", "--episodes", "2"], ["--episodes 2"]),
        (["--against", "random", "--learning", "all"], ["--learning", "company"]),
        ([], ["--against"]),
    ],
)
def test_a_meeting_that_cannot_be_is_refused(capsys, tmp_path, arguments, words):
    message = refused(capsys, "adapt", tmp_path, *arguments)
    assert all(word in message for word in words), message


def test_scripts_cannot_go_on_learning(capsys):
    message = refused(
        capsys, "adapt", "zoo:hop_4h1s_4x4", "--against", "random,random,random", "--learning", "company"
    )
    assert "nobody in random, random, random is a trained run" in message


def test_cross_play_wants_different_players(capsys, tmp_path):
    assert "all different" in refused(capsys, "cross-play", tmp_path, tmp_path)


@pytest.mark.parametrize("verb", ["games", "algorithms", "players"])
def test_catalogues_speak_json(capsys, verb):
    assert main([verb, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert entries
    assert all(entry["description"] for entry in entries)


def test_a_dry_run_prints_settings_and_size_and_trains_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "ppo_4h1s_4x4", "--dry-run", "--json", "--devices", "1"]) == 0
    plan = json.loads(capsys.readouterr().out)
    # four agents, each with two networks: (56*64+64) + (64*64+64) + head, heads of 7 and 1 outputs
    one = 2 * (56 * 64 + 64 + 64 * 64 + 64) + (64 * 7 + 7) + (64 + 1)
    assert plan["plan"]["parameters"] == 4 * one
    networks = plan["plan"]["modules"][0]["networks"]
    assert networks["policy"] - networks["critic"] == 4 * (64 * 6 + 6)
    assert plan["settings"]["ppo"]["learning_rate"] == 0.001
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["evaluate", "--help"], ["--version"]]
)
def test_help_is_printed(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "coplay.cli.main", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "coplay" in done.stdout


def test_an_override_reaches_the_algorithm_that_was_chosen_with_it(capsys):
    assert main(["train", "ppo_4h1s_4x4", "--algorithm", "mappo", "--learning_rate", "1e-4", "--dry-run",
                 "--devices", "1", "--json"]) == 0  # fmt: skip
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert settings["mappo"]["learning_rate"] == 1e-4
    assert "ppo" not in settings
