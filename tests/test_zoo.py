"""Players that come with the package: they open, say how they were made, and still play as they did."""

import json

import jax
import numpy as np
import pytest

from coplay.cli.main import main
from coplay.evaluation import adaptation_figures as figures
from coplay.evaluation.adaptation import Protocol
from coplay.experiment import parse_run, zoo_names
from coplay.meetings import open_focal, sit_down
from coplay.meetings.tables import met
from coplay.training.run_folder import RunFolder


@pytest.mark.parametrize("name", zoo_names())
def test_an_animal_is_small_and_says_how_it_was_made(name):
    folder = RunFolder.open(parse_run(f"zoo:{name}").path)
    files = [file for file in folder.path.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 2_000_000
    assert json.loads((folder.path / "versions.json").read_text())["made_by"].startswith("coplay train")
    weights = open_focal(f"zoo:{name}", {}).params
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights) if leaf.dtype == np.float32)


def test_hop_of_the_zoo_takes_its_hare_among_hare_hunters():
    focal = open_focal("zoo:hop_4h1s_4x4", {})
    table = sit_down(focal.built.env, ["nearest_hare"] * 3, 0)
    short = Protocol(steps=70, games=16, kept=1.0, scored=1.0)
    (played,) = met(focal, table, short, 0, False, lambda text: None)
    found = figures.episodes(played.early, played.late, table.focal_seats, short.kept_games)
    assert np.nanmean(found.value) > 0.9  # random play 0.40, PPO of the quickstart 0.14


def test_the_list_of_players_names_every_animal_and_what_made_it(capsys):
    assert main(["players", "--json"]) == 0
    listed = {player["name"]: player["description"] for player in json.loads(capsys.readouterr().out)}
    for name in zoo_names():
        assert "coplay train" in listed[f"zoo:{name}"]
