"""Processes that help with a study."""

import multiprocessing

import pytest

from coplay.cli.study_helpers import helped_by, how_many
from coplay.errors import BadInput
from coplay.studies import BUDGETS, jobs_of, read_study


def test_as_many_as_asked_for_but_none_without_an_arm():
    assert how_many(None, jobs=1, devices=1) == 1
    assert how_many(3, jobs=2, devices=1) == 2
    assert how_many(None, jobs=60, devices=10_000) == 1
    with pytest.raises(BadInput, match="--workers 0"):
        how_many(0, jobs=2, devices=1)


def test_one_that_fails_is_told_of_and_the_work_goes_on(capsys, tmp_path):
    in_the_way = tmp_path / "out"
    in_the_way.write_text("a file, so that nobody can train in it")
    study = read_study("hyper")
    jobs = jobs_of(study, ["specialisation_8"], ["A0"])
    with helped_by(1, study, jobs, BUDGETS["quick"], in_the_way, 1):
        for helper in multiprocessing.active_children():
            helper.join()
    assert "a process that helped ended with exit code 1" in capsys.readouterr().err
