"""A run folder is made once, locked by one, and never loses or doubles a row."""

import errno
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c

from coplay import files as locks
from coplay.errors import BadInput
from coplay.files import SaveFailed
from coplay.training import run_folder
from coplay.training.run_folder import RunFolder, collect_versions, default_name

TOML = 'name = "four hunters"\nsteps = 1000\n'


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "runs" / "x", TOML, {"coplay": "0.1.0"})


def rows(steps, value: float = 1.0, seats=(-1,), metric: str = "return", seed: int = 0):
    pairs = [(step, seat) for step in steps for seat in seats]
    return {
        "step": [step for step, _ in pairs],
        "seed": [seed] * len(pairs),
        "seat": [seat for _, seat in pairs],
        "metric": [metric] * len(pairs),
        "value": [value] * len(pairs),
    }


def steps_and_values(run: RunFolder):
    table = run.read_metrics()
    return list(zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True))


def files(run: RunFolder):
    return sorted(file.name for file in run.metrics.iterdir())


# --- making and opening ----------------------------------------------------------------------------


def test_a_run_is_taken_back_only_if_nothing_has_happened_in_it(run):
    run.write_metrics(0, 10, rows([0]))
    run.remove_if_unused()
    assert RunFolder.open(run.path).read_metrics().num_rows == 1
    other = RunFolder.create(run.path.parent / "y", TOML, {})
    with other.lock():
        pass
    other.remove_if_unused()
    assert [folder.name for folder in run.path.parent.iterdir()] == ["x"]


def test_a_created_run_opens_with_the_same_settings(run):
    again = RunFolder.open(run.path)
    assert again.experiment_toml == TOML
    assert again.versions == {"format": 1, "coplay": "0.1.0"}
    assert again.checkpoints == run.path / "checkpoints"
    assert again.episodes == run.path / "episodes"
    assert again.report == run.path / "report.html"


def test_a_run_that_goes_on_longer_has_its_settings_replaced(run):
    run.write_experiment("steps = 2000\n")
    assert RunFolder.open(run.path).experiment_toml == "steps = 2000\n"


def test_an_empty_folder_may_become_a_run_and_a_full_one_is_left_as_it_was(tmp_path):
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", TOML, {})
    with pytest.raises(BadInput, match="already exists and is not an empty folder"):
        RunFolder.create(tmp_path / "empty", "other = 1", {})
    assert RunFolder.open(tmp_path / "empty").experiment_toml == TOML


def test_a_file_in_the_way_is_refused_and_unharmed(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadInput, match="already exists"):
        RunFolder.create(tmp_path / "file", TOML, {})
    with pytest.raises(BadInput, match="Not a directory"):
        RunFolder.create(tmp_path / "file" / "deep" / "run", TOML, {})
    assert (tmp_path / "file").read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_fills_up_while_creating_leaves_no_folder_behind(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    calls = iter([None, None, OSError(errno.ENOSPC, "No space left on device")])

    def full(descriptor):
        if error := next(calls):
            raise error

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match="No space left on device"):
        RunFolder.create(tmp_path / "runs" / "deep" / "x", TOML, {})
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "is not a run folder"),
        ("", "is damaged"),
        ("[1]", "is damaged"),
        ('{"format": 2}', "has run format 2 and this coplay reads 1"),
        ("{}", "has run format None"),
    ],
)
def test_what_is_no_run_of_this_format_is_refused_in_a_sentence(run, content, sentence):
    (run.path / "versions.json").unlink()
    if content is not None:
        (run.path / "versions.json").write_text(content)
    with pytest.raises(BadInput, match=sentence):
        RunFolder.open(run.path)


def test_names_count_on_when_they_are_taken(tmp_path):
    root = str(tmp_path / "runs")
    assert default_name("ppo_4h1s", root) == tmp_path / "runs" / "ppo_4h1s"
    (tmp_path / "runs" / "ppo_4h1s").mkdir(parents=True)
    assert default_name("ppo_4h1s", root).name == "ppo_4h1s-2"
    (tmp_path / "runs" / "ppo_4h1s-2").mkdir()
    assert default_name("ppo_4h1s", root).name == "ppo_4h1s-3"
    for bad in ("", "..", "a/b", "../up", "a b\n"):
        with pytest.raises(BadInput, match="cannot name a folder"):
            default_name(bad, root)


def test_versions_name_packages_and_devices_but_nothing_of_this_machine():
    versions = collect_versions()
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", versions["packages"]["jax"])
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["devices"] and versions["cpu_count"] >= 1
    text = json.dumps(versions)
    assert str(Path.home()) not in text and os.getcwd() not in text
    assert not re.search(r'"/', text), "no value may begin like a path"


def test_a_source_outside_any_repository_has_no_commit(monkeypatch, tmp_path):
    monkeypatch.setattr(run_folder, "__file__", str(tmp_path / "coplay" / "training" / "run_folder.py"))
    (tmp_path / "coplay").mkdir()
    assert run_folder._git_state() == {"commit": None, "dirty": None}


def test_a_tracked_source_names_its_commit_and_whether_it_was_changed(monkeypatch, tmp_path):
    source = tmp_path / "coplay"
    source.mkdir()
    (source / "__init__.py").write_text("")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *arguments], check=True, timeout=20)
    monkeypatch.setattr(run_folder, "__file__", str(source / "training" / "run_folder.py"))
    clean = run_folder._git_state()
    assert re.fullmatch("[0-9a-f]{40}", clean["commit"]) and clean["dirty"] is False
    (source / "new.py").write_text("x = 1")
    assert run_folder._git_state() == {"commit": clean["commit"], "dirty": True}


# --- locking ---------------------------------------------------------------------------------------

HOLD = """
import sys
from coplay.training.run_folder import RunFolder
with RunFolder.open(sys.argv[1]).lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_run_in_use_by_another_process_is_refused_until_that_process_is_gone(run):
    source = str(Path(run_folder.__file__).parents[2])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BadInput, match="is in use by another process"), run.lock():
            pass
    finally:
        holder.kill()
        holder.communicate(timeout=20)
    with run.lock():
        pass


def test_a_lock_is_given_back_after_an_error(run):
    with pytest.raises(KeyError), run.lock():
        raise KeyError
    with run.lock(), pytest.raises(BadInput, match="in use"), run.lock():
        pass


def test_without_file_locks_work_goes_on_with_a_warning(run, monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    with pytest.warns(UserWarning, match="no file locks"), run.lock():
        run.write_metrics(0, 1, rows([0, 1]))
    assert len(steps_and_values(run)) == 2


# --- metrics ---------------------------------------------------------------------------------------


def test_rows_come_back_tidy_sorted_and_exact(run):
    run.write_metrics(10, 20, rows([20, 10], value=float(np.float32(0.1)), seats=(1, 0)))
    run.write_metrics(0, 5, rows([0], metric="eval/return", value=float("nan"), seed=3))
    table = run.read_metrics()
    assert table.column_names == ["step", "seed", "seat", "metric", "value"]
    assert table["step"].to_pylist() == [0]  # the later steps were written by an attempt that is over
    run.write_metrics(10, 20, rows([20, 10], value=float(np.float32(0.1)), seats=(1, 0)))
    table = run.read_metrics()
    assert table["step"].to_pylist() == [0, 10, 10, 20, 20]
    assert table["seat"].to_pylist() == [-1, 0, 1, 0, 1]
    assert table["seed"].to_pylist() == [3, 0, 0, 0, 0]
    assert np.isnan(table["value"][0].as_py())
    assert table["value"][1].as_py() == float(np.float32(0.1))


def test_a_part_is_named_by_its_steps_and_plain_parquet(run):
    run.write_metrics(10, 20, rows([10, 20]))
    assert files(run) == ["part-000000000010-000000000020.parquet"]
    assert pq.read_table(run.metrics / files(run)[0])["value"].to_pylist() == [1.0, 1.0]


def test_a_resumed_run_replaces_rows_and_never_doubles_them(run):
    run.write_metrics(0, 10, rows([0, 5, 10]))
    run.write_metrics(11, 20, rows([15, 20]))
    run.write_metrics(21, 30, rows([25, 30]))
    run.write_metrics(6, 18, rows([10, 15], value=2.0))
    assert steps_and_values(run) == [(0, 1.0), (5, 1.0), (10, 2.0), (15, 2.0)]


def test_chunks_that_touch_keep_the_rows_of_the_step_they_share(run):
    run.write_metrics(0, 0, rows([0], metric="eval/return"))
    run.write_metrics(0, 10, rows([5, 10]))
    run.write_metrics(10, 20, rows([15, 20]))
    assert [step for step, _ in steps_and_values(run)] == [0, 5, 10, 15, 20]


@pytest.mark.parametrize("merged", [False, True])
def test_a_resumed_run_says_the_step_it_resumed_from_once(run, merged):
    # A chunk's rows belong to the weights at the start of each update; the evaluation at its end
    # has the step where the next chunk begins.
    for first in (0, 10):
        run.write_metrics(first, first + 10, rows([first, first + 5]))
        run.write_metrics(first + 10, first + 10, rows([first + 10], metric="eval/return"))
    if merged:
        run.merge_metrics()
    run.forget_after(10)
    run.write_metrics(10, 20, rows([10, 15], value=2.0))
    table = run.read_metrics().to_pydict()
    assert list(zip(table["step"], table["metric"], table["value"], strict=True)) == [
        (0, "return", 1.0),
        (5, "return", 1.0),
        (10, "eval/return", 1.0),
        (10, "return", 2.0),
        (15, "return", 2.0),
    ]


def test_forgetting_cuts_parts_the_merged_file_and_timing_at_the_step(run):
    run.write_metrics(0, 10, rows([0, 5, 10]))
    run.write_metrics(11, 20, rows([15, 20]))
    run.write_timing({"step": [10, 20], "phase": ["collect", "collect"], "seconds": [1.0, 2.0]})
    run.forget_after(15)
    assert [step for step, _ in steps_and_values(run)] == [0, 5, 10, 15]
    run.merge_metrics()
    run.forget_after(5)
    assert [step for step, _ in steps_and_values(run)] == [0, 5]
    run.write_metrics(6, 10, rows([10], value=2.0))
    assert steps_and_values(run) == [(0, 1.0), (5, 1.0), (10, 2.0)]
    assert run.read_timing()["step"].to_pylist() == []


def test_merging_leaves_one_file_with_the_same_rows_and_may_be_repeated(run):
    for first in (0, 10, 20):
        run.write_metrics(first, first + 9, rows([first, first + 9]))
    before = run.read_metrics()
    run.merge_metrics()
    assert files(run) == ["all.parquet"]
    assert run.read_metrics().equals(before)
    run.write_metrics(30, 39, rows([30]))
    run.merge_metrics()
    run.merge_metrics()
    assert files(run) == ["all.parquet"]
    assert [step for step, _ in steps_and_values(run)] == [0, 9, 10, 19, 20, 29, 30]


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_merge_cut_short_while_removing_parts_doubles_nothing(run, monkeypatch, removed):
    for first in (0, 10, 20):
        run.write_metrics(first, first + 9, rows([first, first + 9]))
    before = run.read_metrics()
    unlink, left = Path.unlink, iter(range(removed))

    def killed(path, missing_ok=False):
        if next(left, None) is None:
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", killed)
        run.merge_metrics()
    assert len(files(run)) == 4 - removed
    assert run.read_metrics().equals(before)
    run.write_metrics(20, 29, rows([20], value=2.0))
    assert steps_and_values(run)[-2:] == [(19, 1.0), (20, 2.0)]
    run.merge_metrics()
    assert files(run) == ["all.parquet"] and len(steps_and_values(run)) == 5


def test_a_merge_on_a_full_disk_keeps_the_parts(run, monkeypatch):
    run.write_metrics(0, 9, rows([0, 9]))

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(SaveFailed):
        patch.setattr(os, "fsync", full)
        run.merge_metrics()
    assert files(run) == ["part-000000000000-000000000009.parquet"]
    assert len(steps_and_values(run)) == 2


def test_a_half_written_part_is_not_seen_and_a_damaged_one_is_named(run):
    run.write_metrics(0, 9, rows([0, 9]))
    (run.metrics / ".writing-part-000000000010-000000000019.parquet").write_bytes(b"PAR1half")
    assert len(steps_and_values(run)) == 2
    (run.metrics / "part-000000000010-000000000019.parquet").write_bytes(b"PAR1half")
    with pytest.raises(BadInput, match=r"part-000000000010-000000000019.parquet cannot be read; remove it"):
        run.read_metrics()


def test_a_reader_that_loses_its_parts_to_a_merge_reads_again(run, monkeypatch):
    run.write_metrics(0, 9, rows([0, 9]))
    before, read = run.read_metrics(), run_folder.read_parquet

    def merge_first(file, columns=None):
        monkeypatch.setattr(run_folder, "read_parquet", read)
        run.merge_metrics()
        return read(file, columns)

    monkeypatch.setattr(run_folder, "read_parquet", merge_first)
    assert run.read_metrics().equals(before)


def test_rows_outside_the_chunk_or_with_other_columns_are_a_mistake(run):
    with pytest.raises(ValueError, match="rows of steps 5 to 11 given for 0 to 10"):
        run.write_metrics(0, 10, rows([5, 11]))
    with pytest.raises(ValueError, match="expected"):
        run.write_metrics(0, 10, {"step": [1]})
    assert run.read_metrics().num_rows == 0


def test_timing_grows_row_by_row_and_knows_the_peak_memory(run):
    run.write_timing({"step": [10], "phase": ["collect"], "seconds": [0.5]})
    run.write_timing({"step": [20, 20], "phase": ["collect", "save"], "seconds": [0.25, 0.1]})
    table = run.read_timing()
    assert table["phase"].to_pylist() == ["collect", "collect", "save"]
    assert table["seconds"].to_pylist() == [0.5, 0.25, 0.1]
    assert min(table["peak_memory_bytes"].to_pylist()) > 10_000_000


# --- TensorBoard -----------------------------------------------------------------------------------


def events_in(file: Path) -> list[Event]:
    content, events = file.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        record = content[12 : 12 + length]
        assert struct.unpack("<I", content[8:12])[0] == masked_crc32c(content[:8])
        assert struct.unpack("<I", content[12 + length : 16 + length])[0] == masked_crc32c(record)
        events.append(Event.FromString(record))
        content = content[16 + length :]
    return events


def test_tensorboard_gets_a_folder_per_seed_and_a_tag_per_seat(run):
    run.write_tensorboard(rows([10], value=2.5, seats=(0, 1)))
    run.write_tensorboard(rows([20], value=3.5))
    run.write_tensorboard(rows([20], value=4.5, seed=1))
    version, first, second = events_in(run.tensorboard / "seed0" / "events.out.tfevents.000000")
    assert version.file_version == "brain.Event:2"
    assert [(v.tag, v.simple_value) for v in first.summary.value] == [
        ("return/seat0", 2.5),
        ("return/seat1", 2.5),
    ]
    assert (second.step, second.summary.value[0].tag, second.summary.value[0].simple_value) == (
        20,
        "return",
        3.5,
    )
    assert len(events_in(run.tensorboard / "seed1" / "events.out.tfevents.000000")) == 2


def test_tensorboard_is_told_to_drop_what_a_resumed_run_forgets(run):
    run.write_tensorboard(rows([10, 20]))
    run.forget_after(10)
    run.write_tensorboard(rows([20], value=2.0))
    assert len(events_in(run.tensorboard / "seed0" / "events.out.tfevents.000000")) == 3
    _, start, again = events_in(run.tensorboard / "seed0" / "events.out.tfevents.000001")
    assert (start.session_log.status, start.step) == (SessionLog.START, 11)
    assert again.summary.value[0].simple_value == 2.0


def test_equal_rows_give_equal_files(tmp_path):
    made = []
    for name in ("a", "b"):
        run = RunFolder.create(tmp_path / name, TOML, {})
        run.write_metrics(0, 10, rows([0, 10]))
        run.write_tensorboard(rows([0, 10]))
        run.merge_metrics()
        made.append(
            {str(f.relative_to(run.path)): f.read_bytes() for f in run.path.rglob("*") if f.is_file()}
        )
    assert made[0] == made[1] and len(made[0]) == 4
    assert isinstance(pq.read_table(tmp_path / "a" / "metrics" / "all.parquet"), pa.Table)
