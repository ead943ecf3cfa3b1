"""TensorBoard's event files: a folder per seed, a tag per metric and seat.

The time of an event is its step, so that equal runs give equal files; real seconds are in the run's
timing.parquet. Files are numbered rather than named after the hour and the machine.
"""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.record_writer import masked_crc32c

from coplay.files import SaveFailed, replace_file


def append(root: Path, rows: Mapping[str, Sequence | np.ndarray]) -> None:
    """Add rows (step, seed, seat, metric, value) to the newest file of each seed."""
    columns = [np.asarray(rows[name]).tolist() for name in ("step", "seed", "seat", "metric", "value")]
    values: dict[int, dict[int, list[Summary.Value]]] = {}
    for step, seed, seat, metric, value in zip(*columns, strict=True):
        tag = metric if seat < 0 else f"{metric}/seat{seat}"
        values.setdefault(seed, {}).setdefault(step, []).append(Summary.Value(tag=tag, simple_value=value))
    for seed, by_step in values.items():
        events = [Event(step=s, wall_time=s, summary=Summary(value=v)) for s, v in by_step.items()]
        _append(_newest_file(root / f"seed{seed}"), events)


def forget_from(root: Path, step: int) -> None:
    """Start new files that tell readers to drop what earlier ones hold of this step and later."""
    for folder in root.glob("seed*"):
        start = SessionLog(status=SessionLog.START)
        _append(_new_file(folder), [Event(step=step, wall_time=step, session_log=start)])


def _newest_file(folder: Path) -> Path:
    files = sorted(folder.glob("events.out.tfevents.*"))
    return files[-1] if files else _new_file(folder)


def _new_file(folder: Path) -> Path:
    number = len(list(folder.glob("events.out.tfevents.*")))
    file = folder / f"events.out.tfevents.{number:06d}"
    replace_file(file, _framed(Event(file_version="brain.Event:2")))
    return file


def _append(file: Path, events: list[Event]) -> None:
    try:
        with open(file, "ab") as stream:
            stream.write(b"".join(_framed(event) for event in events))
    except OSError as error:
        raise SaveFailed(f"{file} was not written ({error.strerror or error}); free some space") from error


def _framed(event: Event) -> bytes:
    """TFRecord: length, its checksum, the record, its checksum."""
    record = event.SerializeToString()
    length = struct.pack("<Q", len(record))
    checks = [struct.pack("<I", masked_crc32c(part)) for part in (length, record)]
    return length + checks[0] + record + checks[1]
