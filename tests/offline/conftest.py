"""Recorded play that tests of several parts learn from."""

import pytest

from coplay.offline import collect, dataset

PLAYERS = ("nearest_stag", "nearest_hare")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "play.parquet"
    options = {"observation": "entities", "horizon": 15}
    about = collect.about("4h1s_4x4", options, PLAYERS, True, 300, seed=0)
    dataset.write(path, about, collect.record(about))
    return path
