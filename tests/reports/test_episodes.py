"""Episodes survive the disk, and a damaged or hostile file is refused in a sentence."""

import dataclasses
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coplay.errors import BadInput
from coplay.reports.episodes import Episode, load_episode, newest_episode, save_episode


def test_an_episode_comes_back_as_it_was(tmp_path, three_hunters):
    episode = three_hunters(members=("ppo", "学习者", "nearest_hare"))
    save_episode(tmp_path / "episodes" / "one.npz", episode)
    back = load_episode(tmp_path / "episodes" / "one.npz")
    for field in dataclasses.fields(Episode):
        mine, theirs = getattr(episode, field.name), getattr(back, field.name)
        if isinstance(mine, np.ndarray):
            assert_array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype
        elif field.name == "cells":
            assert list(mine) == list(theirs)
            for kind in mine:
                assert_array_equal(mine[kind], theirs[kind])
        else:
            assert mine == theirs


def test_returns_add_up_what_each_move_paid(three_hunters):
    assert_array_equal(three_hunters().returns, [[0, 0, 0], [0, 0, 0], [5, 5, 1]])


def test_equal_episodes_give_equal_files(tmp_path, three_hunters):
    for name in ("a", "b"):
        save_episode(tmp_path / name, three_hunters())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_damaged_foreign_and_missing_files_are_refused(tmp_path, three_hunters):
    path = tmp_path / "one.npz"
    save_episode(path, three_hunters())
    content = path.read_bytes()
    np.savez(tmp_path / "foreign.npz", x=np.ones(3))
    for bad in (
        b"",
        content[:100],
        content[: len(content) // 2],
        b"hello",
        (tmp_path / "foreign.npz").read_bytes(),
    ):
        path.write_bytes(bad)
        with pytest.raises(BadInput, match=r"one\.npz is damaged or not an episode file"):
            load_episode(path)
    with pytest.raises(BadInput, match="there is no episode file"):
        load_episode(tmp_path / "nowhere.npz")


def test_a_flipped_bit_in_the_stored_arrays_is_noticed(tmp_path, three_hunters):
    path = tmp_path / "one.npz"
    save_episode(path, three_hunters())
    content = bytearray(path.read_bytes())
    content[content.index(b"players.npy") + 60] ^= 4
    path.write_bytes(content)
    with pytest.raises(BadInput, match="damaged"):
        load_episode(path)


def test_no_code_is_run_from_a_file(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was loaded",))

    (tmp_path / "bomb.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(BadInput):
        load_episode(tmp_path / "bomb.npz")
    np.savez(tmp_path / "inside.npz", header=np.array([Bomb()], dtype=object))
    with pytest.raises(BadInput):
        load_episode(tmp_path / "inside.npz")


def test_arrays_that_do_not_fit_together_are_refused(three_hunters):
    whole = three_hunters()
    for change, sentence in (
        ({"reward": whole.reward[:1]}, r"reward is float32\[1, 3\]; expected shape \[2, 3\]"),
        ({"cells": {"stag": whole.cells["stag"][:2]}}, r"cells\['stag'\] is"),
        ({"cells": {"stag": np.zeros(3, int)}}, r"cells\['stag'\] is"),
        ({"members": ("a", "b")}, r"action is int64\[2, 3\]; expected shape \[2, 2\]"),
        ({"action": whole.action.astype(float)}, "action is float64"),
        ({"action": whole.action + 1}, "an action is not one of the 7 named"),
    ):
        with pytest.raises(ValueError, match=sentence):
            dataclasses.replace(whole, **change)


def test_the_newest_episode_is_the_first_of_the_latest_step(tmp_path):
    assert newest_episode(tmp_path / "nowhere") is None
    for name in ("step-9-seed0.npz", "step-10-seed1.npz", "step-10-seed0.npz", "notes.npz", "step-x.npz"):
        (tmp_path / name).write_bytes(b"")
    assert newest_episode(tmp_path).name == "step-10-seed0.npz"
