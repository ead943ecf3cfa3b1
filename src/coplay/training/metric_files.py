"""What a run measures, as rows in Parquet files: their columns, and how a file is made, read and cut.

Which files a run has, and when they are merged, is known to `run_folder.py`. A damaged file is refused with a
sentence that says what to do.
"""

import contextlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coplay.errors import BadInput
from coplay.files import replace_file

METRICS_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("seed", pa.int32()),
        ("seat", pa.int16()),
        ("metric", pa.string()),
        ("value", pa.float64()),
    ]
)
TIMING_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("phase", pa.string()),
        ("seconds", pa.float64()),
        ("peak_memory_bytes", pa.int64()),
    ]
)
KEYS = ["step", "seed", "seat", "metric"]  # no two rows share all of them

Columns = Mapping[str, Sequence | np.ndarray]


def as_table(rows: Columns, schema: pa.Schema) -> pa.Table:
    if set(rows) != set(schema.names):
        raise ValueError(f"rows have the columns {sorted(rows)}; expected {sorted(schema.names)}")
    return pa.table([pa.array(rows[field.name], field.type) for field in schema], schema=schema)


def as_parquet(table: pa.Table, merged: list[str] | None = None) -> bytes:
    file = io.BytesIO()
    metadata = {"merged": json.dumps(merged)} if merged else None
    pq.write_table(table.replace_schema_metadata(metadata), file, compression="zstd")
    return file.getvalue()


def read_parquet(file: Path, columns: list[str] | None = None) -> pa.Table:
    with _damage_as_sentence(file), open(file, "rb") as stream:
        return pq.read_table(stream, columns=columns).replace_schema_metadata(None)


def parquet_metadata(file: Path) -> dict[bytes, bytes]:
    with _damage_as_sentence(file):
        return pq.read_schema(file).metadata or {}


@contextlib.contextmanager
def _damage_as_sentence(file: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{file} cannot be read; remove it to go on without its rows") from error


def keep_rows(file: Path, condition: pc.Expression) -> None:
    before = read_parquet(file)
    replace_rows(file, before, before.filter(condition))


def replace_rows(file: Path, before: pa.Table, *kept: pa.Table) -> None:
    """Write the file anew if it shrinks, and remove it if nothing is left."""
    after = pa.concat_tables(kept)
    if after.num_rows == 0:
        file.unlink()
    elif after.num_rows < before.num_rows:
        replace_file(file, as_parquet(after))


def steps_of(file: Path) -> tuple[int, int]:
    """The steps a file covers: a part says so in its name."""
    match = re.fullmatch(r"part-(\d+)-(\d+)\.parquet", file.name)
    if match:
        return int(match.group(1)), int(match.group(2))
    return lowest_and_highest(read_parquet(file, ["step"]))


def lowest_and_highest(table: pa.Table) -> tuple[int, int]:
    steps = table["step"].to_numpy()
    return int(steps.min()), int(steps.max())
