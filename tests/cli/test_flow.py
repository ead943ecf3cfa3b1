"""A run's whole life on the command line: train, stop, resume, evaluate, replay, compare."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from coplay import runs
from coplay.cli.main import main
from coplay.cli.train import LiveLine
from coplay.evaluation import anchors
from coplay.offline import dataset
from coplay.training.loop import Progress
from coplay.training.programs import Compiled
from tests.small import small


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "flow"
    changes = {"evaluation.every": 2, "evaluation.episodes": 4}
    return runs.train(small(seeds=3, **changes), path)


def as_json(capsys, *arguments):
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_evaluate_gives_the_promised_fields(capsys, run):
    score = as_json(capsys, "evaluate", run.path, "--episodes", 16)
    assert score["seeds"] == 3
    assert score["episodes"] == 16
    assert score["mode"] == "sample"
    assert score["ceiling"] == 3.0
    assert len(score["per_seat"]) == 4
    assert set(score["outcomes"]) == {"stags", "hares"}
    low, high = score["interval"]
    assert low <= score["mean_return"] <= high
    assert abs(sum(score["per_seat"]) / 4 - score["mean_return"]) < 1e-5


def test_what_play_needs_is_written_and_told(capsys, run):
    assert run.folder.needs == "decentralised"
    assert as_json(capsys, "evaluate", run.path, "--episodes", 16)["needs"] == "decentralised"
    assert main(["evaluate", str(run.path), "--episodes", "16"]) == 0
    assert "weights of step 640; decentralised)" in capsys.readouterr().out
    assert "<span>To play</span><b>decentralised</b>" in run.folder.report.read_text()


def test_the_return_is_what_the_prey_was_worth(capsys, run):
    score = as_json(capsys, "evaluate", run.path, "--episodes", 64)
    worth = (10 * score["outcomes"]["stags"] + score["outcomes"]["hares"]) / 4
    assert abs(worth - score["mean_return"]) < 1e-4


def test_one_seed_of_the_best_checkpoint_can_be_chosen(capsys, run):
    score = as_json(capsys, "evaluate", f"{run.path}@best:2", "--greedy", "--episodes", 16)
    assert score["seeds"] == 1
    assert score["mode"] == "greedy"


def test_replay_writes_a_gif_and_shows_text(capsys, run, tmp_path):
    shown = as_json(capsys, "replay", run.path, "--gif", tmp_path / "game.gif", "--seed", 3)
    assert (tmp_path / "game.gif").read_bytes()[:3] == b"GIF"
    assert 1 <= shown["length"] <= 35
    assert main(["replay", str(run.path), "--speed", "0", "--seed", "3"]) == 0
    assert "step" in capsys.readouterr().out.lower()


def test_compare_sees_that_a_run_coincides_with_itself(capsys, run):
    pair = as_json(capsys, "compare", run.path, run.path)["pairs"][0]
    assert pair["coincide"] is True
    assert pair["iqm"] == 0.0
    assert pair["probability_of_improvement"] == 0.5


def test_adapt_gives_the_promised_fields_and_an_exported_seed_plays_the_same(capsys, run, tmp_path):
    company = ["--against", "random,random,random", "--games", 8, "--episodes", 11]
    found = as_json(capsys, "adapt", f"{run.path}@last:1", *company)
    assert found["seeds"] == 1
    assert found["seats"] == [0]
    assert found["random"] < found["best"]
    assert (
        abs(found["normalised"] - (found["raw"] - found["random"]) / (found["best"] - found["random"])) < 1e-9
    )
    assert found["interval"][0] <= found["normalised"] <= found["interval"][1]
    assert len(found["curve"]) >= 11
    assert found["opponent_model"] is None, "PPO foresees nobody"
    small_copy = tmp_path / "copy"
    assert as_json(capsys, "export", f"{run.path}@last:1", small_copy)["bytes"] < 200_000
    assert as_json(capsys, "adapt", small_copy, *company)["per_seed"] == found["per_seed"]


def test_players_may_go_on_learning_where_they_are(capsys, run):
    few = ["--against", "random,random,random", "--games", 8, "--episodes", 11]
    found = as_json(capsys, "adapt", f"{run.path}@last:1", *few, "--learning", "focal")
    assert found["learning"] == ["focal"]
    assert found["steps"] == 11 * 35
    assert len(found["curve"]) >= 11
    stuck = [*few, "--learning", "focal", "--learning_rate", 1e-9]
    assert as_json(capsys, "adapt", f"{run.path}@last:1", *stuck)["curve"] != found["curve"]


def test_settings_can_be_tried_in_an_evaluation_and_what_only_training_reads_is_refused(capsys, run):
    assert as_json(capsys, "evaluate", run.path, "--episodes", 16, "--horizon", 3)["length"] <= 3
    assert main(["evaluate", str(run.path), "--num_envs", "32"]) == 2
    assert "rollout change nothing" in capsys.readouterr().err
    among = ["adapt", str(run.path), "--against", "random,random,random"]
    assert main([*among, "--steps", "800"]) == 2, "it is no shorter meeting"
    assert "rollout change nothing" in capsys.readouterr().err


def test_adapt_sums_up_the_shipped_companies(capsys, run, monkeypatch):
    teams = ["random,random,random", "nearest_hare,nearest_hare,nearest_hare"]
    monkeypatch.setitem(anchors.TEAMS, "stag_hunt", teams)  # all nine would take as many compilations
    few = ["--games", 8, "--episodes", 11]
    asked = ["adapt", f"{run.path}@last:1", "--against", "shipped", "--json", *map(str, few)]
    assert main(asked) == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert [",".join(one["company"]) for one in found["companies"]] == teams
    for team, one in zip(teams, found["companies"], strict=True):
        score = f"normalised {one['normalised']:.3f}, 95% {one['interval'][0]:.3f} to"
        assert re.search(f"{team}: .*{score}", told.err), "it is said as soon as it is known"
    scores = [one["normalised"] for one in found["companies"]]
    assert abs(found["mean"] - sum(scores) / 2) < 1e-9
    assert found["worst"] == min(scores)


def test_cross_play_has_a_cell_for_every_pair_and_a_column_for_every_seat(capsys, run):
    found = as_json(capsys, "cross-play", run.path, "nearest_hare", "--episodes", 8, "--seats", "0,2")
    assert [(c["player"], c["company"]) for c in found["cells"]] == [
        (a, b) for a in found["players"] for b in found["players"]
    ]
    assert all(len(cell["per_seat"]) == 2 for cell in found["cells"])
    among_themselves = found["cells"][-1]
    assert among_themselves["own_return"] > 0.7, "hare hunters get hares"


def test_collect_writes_a_file_once_and_says_what_is_in_it(capsys, tmp_path):
    command = ["collect", "4h1s_4x4", "--players", "nearest_stag,random", "--episodes", 20, "--horizon", 9]
    found = as_json(capsys, *command, "--out", tmp_path / "play.parquet")
    about, play = dataset.read(found["data"])
    assert about.options == {"horizon": 9}
    assert found["moves"] == play.length.sum()
    assert found["rows_in_the_game"] == play.active.sum()
    assert abs(sum(found["action_shares"].values()) - 1) < 1e-6
    assert main([*map(str, command), "--out", str(tmp_path / "play.parquet")]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*map(str, command), "--out", str(tmp_path / "other.parquet"), "--learning_rate", "1"]) == 2
    assert "options of the game only" in capsys.readouterr().err


def test_before_training_it_is_said_what_the_program_needs(capsys, run):
    LiveLine().compiled(Compiled(12.3, need=310 * 2**20, held=0), free=21 * 2**30)
    assert capsys.readouterr().err == "compiled in 12 s; needs 310 MiB of 21.0 GiB free\n"
    LiveLine().compiled(Compiled(12.3, need=None, held=0), free=0)
    assert capsys.readouterr().err == "compiled in 12 s\n"
    assert run.finished.program_bytes > 0


def test_a_figure_out_of_bounds_is_warned_of_once(capsys):
    line = LiveLine()
    now = Progress(160, 640, 1.0, 160, 1, np.zeros(4), {"hyper/smooth_share": "too smooth"})
    for _ in range(2):
        line.progressed(now)
    said = capsys.readouterr().err.splitlines()
    assert [text for text in said if "smooth" in text] == ["warning: too smooth"]


def test_the_report_names_every_seat(run):
    page = run.folder.report.read_text()
    assert "4h1s_4x4" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


COMMAND = [
    sys.executable, "-m", "coplay.cli.main", "train", "ppo_4h1s_4x4", "--num_envs", "16", "--num_steps", "10",
    "--hidden", "[8,8]", "--devices", "1", "--evaluation.every", "0", "--steps", "400000000",
]  # fmt: skip


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, number, code):
    path = tmp_path / "stopped"
    process = subprocess.Popen(
        [*COMMAND, "--out", str(path)], stderr=subprocess.PIPE, text=True, env=os.environ
    )
    deadline = time.monotonic() + 120
    while not list(path.glob("metrics/part-*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(number)
    _, printed = process.communicate(timeout=120)
    assert process.returncode == code, printed
    assert f"coplay resume {path}" in printed
    assert list(path.glob("checkpoints/*.json"))


def test_a_run_in_use_is_left_alone(tmp_path, run, capsys):
    holder = (
        "import sys, time; from coplay.training.run_folder import RunFolder\n"
        "with RunFolder.open(sys.argv[1]).lock():\n    print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", holder, str(run.path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "held"
        assert main(["resume", str(run.path), "--steps", "2000"]) == 2
        assert "another process" in capsys.readouterr().err
    finally:
        process.kill()
