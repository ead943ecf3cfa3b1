"""Runs that coincide though they should not: for how long, and which settings differ."""

import json

import numpy as np

from coplay.cli.main import main
from coplay.evaluation.coincidence import lively_stretch, other_settings
from tests.small import written_run

CURVE = [0.1, 0.5, 0.3, 0.9, 1.2]
PLAIN, WEIGHED = "[ppo]\nentropy_weight = 0.01\nclip = 0.2\n", "[ppo]\nentropy_weight = 0.05\nclip = 0.2\n"


def test_a_stretch_ends_where_a_bit_differs():
    one = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert lively_stretch(one, np.array([1.0, 2.0, 3.5, 4.0, 5.0])) == 2
    assert lively_stretch(one, np.array([0.0, 2.0, 3.0, 4.0, 5.0])) == 4
    assert lively_stretch(one, one + 1) == 0


def test_standing_still_at_the_same_height_is_no_coincidence():
    assert lively_stretch(np.full(9, 3.0), np.full(9, 3.0)) == 0
    assert lively_stretch(np.array([2.0, 3.0, 3.0]), np.array([1.0, 3.0, 3.0])) == 0


def test_settings_that_differ_are_named_with_what_each_has():
    one, other = 'description = "a"\nseed = 1\n' + PLAIN, "seed = 1\nanneal = true\n" + WEIGHED
    assert other_settings(one, other) == {"ppo.entropy_weight": [0.01, 0.05], "anneal": [None, True]}


def told(capsys, *arguments) -> str:
    assert main(["compare", *map(str, arguments)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_setting_without_effect_is_told(capsys, tmp_path):
    runs = [written_run(tmp_path / "a", [CURVE], PLAIN), written_run(tmp_path / "b", [CURVE], WEIGHED)]
    said = told(capsys, *runs)
    assert "Equal to the bit: return for 5 updates, although these settings differ" in said
    assert "ppo.entropy_weight (0.01 and 0.05)" in said
    pair = json.loads(told(capsys, *runs, "--json"))["pairs"][0]
    assert pair["coincide"] is True and pair["equal_updates"] == {"return": 5}
    assert pair["settings"] == {"ppo.entropy_weight": [0.01, 0.05]}


def test_a_stretch_at_the_start_is_told_too(capsys, tmp_path):
    later = [*CURVE[:3], 0.7, 0.6]
    runs = [written_run(tmp_path / "a", [CURVE], PLAIN), written_run(tmp_path / "b", [later], WEIGHED)]
    assert "return for 3 updates" in told(capsys, *runs)
    assert json.loads(told(capsys, *runs, "--json"))["pairs"][0]["coincide"] is False


def test_runs_of_the_same_settings_or_of_other_curves_are_not_remarked_on(capsys, tmp_path):
    same = [written_run(tmp_path / name, [CURVE], PLAIN) for name in ("a", "b")]
    assert "although" not in told(capsys, *same)
    other = written_run(tmp_path / "c", [[x + 0.5 for x in CURVE]], WEIGHED)
    assert "although" not in told(capsys, same[0], other)
