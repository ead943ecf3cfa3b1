"""Checkpoints come back to the bit, and a damaged one is noticed and passed over."""

import errno
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coplay.errors import BadInput
from coplay.files import SaveFailed
from coplay.training import checkpoint
from coplay.types import Seated


def a_tree(scale: float = 1.0):
    return {
        "weights": Seated(own=jnp.arange(6.0).reshape(2, 3) * scale, common=jnp.ones((), jnp.bfloat16)),
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(1, impl="rbg"), 3),
        "counts": np.array([1, 2], np.uint32),
        "empty": jnp.zeros((0, 4)),
        "done": True,
        "rounds": 3,
        "rate": 0.1,
        "nothing": None,
    }


def a_small_tree(value: float):
    return {"weight": jnp.full((3,), float(value)), "key": jax.random.key(int(value))}


def three_checkpoints(folder):
    for step in (100, 200, 300):
        checkpoint.save(folder, step, a_small_tree(step), {"at": step})


def flip_bit(path, byte: int, bit: int = 0):
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << bit
    path.write_bytes(content)


def test_every_kind_of_leaf_comes_back_to_the_bit_and_as_what_it_was(tmp_path):
    tree = a_tree()
    checkpoint.save(tmp_path, 5, tree, {"note": "hello", "best": 2.5})
    back, meta = checkpoint.load(tmp_path, a_tree(scale=0.0))
    assert meta == {"note": "hello", "best": 2.5}
    assert (back["done"], back["rounds"], back["rate"]) == (True, 3, 0.1)
    assert [type(back[name]) for name in ("done", "rounds", "rate")] == [bool, int, float]
    assert type(back["counts"]) is np.ndarray and back["counts"].dtype == np.uint32
    assert back["weights"].common.dtype == jnp.bfloat16
    assert back["empty"].shape == (0, 4)
    np.testing.assert_array_equal(back["weights"].own, [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])


def test_a_restored_key_draws_what_the_saved_one_would_have_drawn(tmp_path):
    tree = a_tree()
    checkpoint.save(tmp_path, 5, tree, {})
    back, _ = checkpoint.load(tmp_path, tree)
    assert jax.dtypes.issubdtype(back["key"].dtype, jax.dtypes.prng_key)
    assert str(jax.random.key_impl(back["keys"])) == "rbg"
    np.testing.assert_array_equal(jax.random.bits(back["key"], (4,)), jax.random.bits(tree["key"], (4,)))


def test_shapes_alone_are_enough_to_load(tmp_path):
    tree = a_small_tree(4)
    checkpoint.save(tmp_path, 5, tree, {})
    back, _ = checkpoint.load(tmp_path, jax.eval_shape(lambda: a_small_tree(4)))
    np.testing.assert_array_equal(back["weight"], [4.0, 4.0, 4.0])
    np.testing.assert_array_equal(jax.random.key_data(back["key"]), jax.random.key_data(tree["key"]))


def test_a_restored_leaf_may_be_donated(tmp_path):
    checkpoint.save(tmp_path, 5, a_small_tree(4), {})
    back, _ = checkpoint.load(tmp_path, a_small_tree(0))
    doubled = jax.jit(lambda x: 2 * x, donate_argnums=0)(back["weight"])
    np.testing.assert_array_equal(doubled, [8.0, 8.0, 8.0])


def test_a_leaf_that_was_given_a_device_is_put_back_on_it(tmp_path):
    device = jax.devices()[0]
    tree = {"weight": jax.device_put(jnp.ones(2), device), "free": jnp.ones(2)}
    checkpoint.save(tmp_path, 5, tree, {})
    back, _ = checkpoint.load(tmp_path, tree)
    assert back["weight"].committed and not back["free"].committed


def test_the_same_tree_gives_the_same_files(tmp_path):
    for name in ("a", "b"):
        checkpoint.save(tmp_path / name, 5, a_tree(), {"x": 1})
    for file in ("step-000000000005.json", "step-000000000005.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_newest_is_taken_unless_a_step_is_named(tmp_path):
    three_checkpoints(tmp_path)
    assert checkpoint.steps(tmp_path) == [100, 200, 300]
    assert checkpoint.load(tmp_path, a_small_tree(0))[1] == {"at": 300}
    assert checkpoint.load(tmp_path, a_small_tree(0), step=100)[1] == {"at": 100}


def test_the_newest_meta_is_that_of_the_newest_sound_checkpoint(tmp_path):
    three_checkpoints(tmp_path)
    assert checkpoint.newest_meta(tmp_path) == {"at": 300}
    (tmp_path / "step-000000000300.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="checkpoint 300"):
        assert checkpoint.newest_meta(tmp_path) == {"at": 200}


def test_a_bit_flipped_in_any_byte_of_the_tensor_file_is_noticed(tmp_path):
    three_checkpoints(tmp_path)
    file = tmp_path / "step-000000000300.safetensors"
    for byte in range(file.stat().st_size):
        flip_bit(file, byte, byte % 8)
        with pytest.warns(UserWarning, match=r"checkpoint 300 .* damaged"):
            tree, meta = checkpoint.load(tmp_path, a_small_tree(0))
        flip_bit(file, byte, byte % 8)
        assert meta == {"at": 200}
        np.testing.assert_array_equal(tree["weight"], [200.0, 200.0, 200.0])


@pytest.mark.filterwarnings("ignore:checkpoint 300")
def test_no_bit_flipped_in_the_json_changes_what_is_loaded_unnoticed(tmp_path):
    three_checkpoints(tmp_path)
    file = tmp_path / "step-000000000300.json"
    for byte in range(0, file.stat().st_size, 3):
        flip_bit(file, byte, byte % 7)
        tree, meta = checkpoint.load(tmp_path, a_small_tree(0))
        flip_bit(file, byte, byte % 7)
        assert meta["at"] == float(tree["weight"][0]) and meta["at"] in (200, 300), f"byte {byte}"


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
@pytest.mark.parametrize("kept", [0, 1, 40])
def test_a_truncated_or_emptied_newest_checkpoint_gives_way_to_the_one_before(tmp_path, suffix, kept):
    three_checkpoints(tmp_path)
    file = tmp_path / f"step-000000000300.{suffix}"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.warns(UserWarning, match="trying the one before"):
        assert checkpoint.load(tmp_path, a_small_tree(0))[1] == {"at": 200}


def test_a_missing_tensor_file_gives_way_and_a_missing_json_means_no_checkpoint(tmp_path):
    three_checkpoints(tmp_path)
    (tmp_path / "step-000000000300.json").unlink()
    (tmp_path / "step-000000000200.safetensors").unlink()
    assert checkpoint.steps(tmp_path) == [100, 200]
    with pytest.warns(UserWarning, match="checkpoint 200"):
        assert checkpoint.load(tmp_path, a_small_tree(0))[1] == {"at": 100}


def test_json_of_another_shape_is_damage_and_not_a_crash(tmp_path):
    three_checkpoints(tmp_path)
    for content in ("[]", "3", '{"format": 1}', "null", '{"record_sha256": "x"}'):
        (tmp_path / "step-000000000300.json").write_text(content)
        with pytest.warns(UserWarning, match="checkpoint 300"):
            assert checkpoint.load(tmp_path, a_small_tree(0))[1] == {"at": 200}


def test_when_no_checkpoint_is_sound_one_sentence_says_so(tmp_path):
    with pytest.raises(BadInput, match="there is no checkpoint in"):
        checkpoint.load(tmp_path / "nowhere", a_small_tree(0))
    checkpoint.save(tmp_path, 1, a_small_tree(1), {})
    (tmp_path / "step-000000000001.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning), pytest.raises(BadInput, match="none of the 1 checkpoints"):
        checkpoint.load(tmp_path, a_small_tree(0))


def test_a_step_asked_for_by_name_is_never_replaced_by_another(tmp_path):
    three_checkpoints(tmp_path)
    (tmp_path / "step-000000000200.json").write_text("")
    with pytest.raises(BadInput, match=r"checkpoint 200 .* is damaged"):
        checkpoint.load(tmp_path, a_small_tree(0), step=200)
    with pytest.raises(BadInput, match=r"no checkpoint of step 250 .* there are: 100, 200, 300"):
        checkpoint.load(tmp_path, a_small_tree(0), step=250)


def test_a_newer_format_is_refused_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    checkpoint.save(tmp_path, 1, a_small_tree(1), {})
    monkeypatch.undo()
    with pytest.raises(BadInput, match="has format 2 and this coplay reads 1"):
        checkpoint.load(tmp_path, a_small_tree(0))


def test_another_structure_is_refused_with_its_first_differences(tmp_path):
    checkpoint.save(tmp_path, 1, a_small_tree(1), {})
    with pytest.raises(BadInput) as refusal:
        checkpoint.load(tmp_path, {"weight": jnp.ones((4,)), "key": jax.random.key(0), "bias": 1.0})
    assert "['bias'] is absent in the file and a Python float here" in str(refusal.value)
    assert "['weight'] is float32[3] in the file and float32[4] here" in str(refusal.value)
    with pytest.raises(BadInput, match="and 2 more"):
        checkpoint.load(tmp_path, dict.fromkeys("abc", 1))
    with pytest.raises(BadInput, match=r"threefry2x32 key data.* rbg key data"):
        checkpoint.load(tmp_path, a_small_tree(1) | {"key": jax.random.key(0, impl="rbg")})


def test_something_that_is_no_array_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match="not str"):
        checkpoint.save(tmp_path, 1, {"name": "four"}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", [1, 2])  # the tensors, the JSON
def test_a_full_disk_leaves_the_earlier_checkpoints_whole_and_nothing_half_made(
    tmp_path, monkeypatch, failing
):
    three_checkpoints(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    calls = iter(range(1, 10))

    def full(descriptor):
        if next(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SaveFailed, match=r"No space left on device.*earlier files are untouched"):
        checkpoint.save(tmp_path, 400, a_small_tree(400), {})
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert checkpoint.load(tmp_path, a_small_tree(0))[1] == {"at": 300}


def test_a_file_where_the_folder_should_be_is_a_clear_failure(tmp_path):
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(SaveFailed, match="was not written"):
        checkpoint.save(tmp_path / "checkpoints", 1, a_small_tree(1), {})
    assert (tmp_path / "checkpoints").read_text() == "in the way"


def test_what_a_killed_writer_left_behind_is_ignored_and_then_swept(tmp_path):
    three_checkpoints(tmp_path)
    leftover = tmp_path / ".writing-step-000000000400.safetensors"
    leftover.write_bytes(b"half")
    (tmp_path / "step-000000000350.safetensors").write_bytes(b"renamed, but its JSON never came")
    assert checkpoint.steps(tmp_path) == [100, 200, 300]
    assert checkpoint.load(tmp_path, a_small_tree(0))[1] == {"at": 300}
    checkpoint.save(tmp_path, 400, a_small_tree(400), {})
    assert not leftover.exists()


def test_pruning_keeps_the_newest_and_the_named(tmp_path):
    for step in (1, 2, 3, 4, 5):
        checkpoint.save(tmp_path, step, a_small_tree(step), {})
    checkpoint.prune(tmp_path, keep=2, also={1})
    assert checkpoint.steps(tmp_path) == [1, 4, 5]
    assert len(list(tmp_path.iterdir())) == 6
    with pytest.raises(ValueError, match="at least 1"):
        checkpoint.prune(tmp_path, keep=0, also=set())


def test_a_run_that_goes_on_from_an_earlier_step_forgets_the_later_ones(tmp_path):
    three_checkpoints(tmp_path)
    checkpoint.forget_after(tmp_path, 200)
    assert checkpoint.steps(tmp_path) == [100, 200]


def test_the_json_says_in_plain_words_what_is_inside(tmp_path):
    record = json.loads(checkpoint.save(tmp_path, 9, a_small_tree(1), {"seed": 3}).read_text())
    assert record["step"] == 9 and record["meta"] == {"seed": 3}
    assert {"path": "['weight']", "kind": "array", "shape": [3], "dtype": "float32"} in record["leaves"]
