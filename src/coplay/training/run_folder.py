"""A run is a folder that ordinary tools can read; this file knows where everything in it is.

    experiment.toml           the settings, fully resolved
    versions.json             format of the folder, commit, packages, hardware, what its players need
    metrics/part-A-B.parquet  tidy rows (step, seed, seat, metric, value) of the steps A to B
    metrics/all.parquet       the same, merged when the run ends
    metrics/timing.parquet    seconds per phase and peak memory: the one file that differs between equal runs
    tensorboard/ checkpoints/ episodes/ audit/ report.html

Every file is replaced whole, so a run killed at any moment is read without a row lost or doubled.
"""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coplay.errors import BadInput
from coplay.files import SaveFailed, locked, replace_file
from coplay.training.metric_files import (
    KEYS,
    METRICS_SCHEMA,
    TIMING_SCHEMA,
    Columns,
    as_parquet,
    as_table,
    keep_rows,
    lowest_and_highest,
    parquet_metadata,
    read_parquet,
    replace_rows,
    steps_of,
)

FORMAT = 1
READ_ATTEMPTS = 5
PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "pyarrow", "safetensors", "jaxtyping")


@final
@dataclasses.dataclass(frozen=True)
class RunFolder:
    """One run on disk. Make it with `create` or `open`."""

    path: Path

    @classmethod
    def create(cls, path: Path | str, experiment_toml: str, versions: dict) -> "RunFolder":
        """A new run; refuses to write into a folder that holds anything."""
        path = Path(path)
        missing = _missing_folders(path)
        try:
            replace_file(path / "experiment.toml", experiment_toml.encode())
            # Last, because a folder is a run only once its format is written.
            replace_file(path / "versions.json", _as_json({"format": FORMAT, **versions}))
        except SaveFailed as failure:
            _undo_create(path, missing)
            reason = getattr(failure.__cause__, "strerror", failure)
            raise BadInput(
                f"{path} cannot be made a run folder ({reason}); choose another --out"
            ) from failure
        return cls(path)

    @classmethod
    def open(cls, path: Path | str) -> "RunFolder":
        """An existing run, of a format this version reads."""
        run = cls(Path(path))
        if not (run.path / "versions.json").is_file() or not (run.path / "experiment.toml").is_file():
            raise BadInput(f"{path} is not a run folder: it needs experiment.toml and versions.json")
        written = run.versions.get("format")
        if written != FORMAT:
            raise BadInput(
                f"{path} has run format {written!r} and this coplay reads {FORMAT}; "
                "use the coplay version named in its versions.json"
            )
        return run

    def remove_if_unused(self) -> None:
        """Take back a run in which nothing has happened, as if it had not been made."""
        files = [self.path / name for name in ("experiment.toml", "versions.json", ".lock")]
        with contextlib.suppress(OSError):
            if set(self.path.iterdir()) <= set(files):
                for file in files:
                    file.unlink(missing_ok=True)
                self.path.rmdir()

    @property
    def experiment_toml(self) -> str:
        """The text of experiment.toml."""
        return (self.path / "experiment.toml").read_text(encoding="utf-8")

    def write_experiment(self, experiment_toml: str) -> None:
        """Replace the settings, for a run that goes on beyond its planned end."""
        replace_file(self.path / "experiment.toml", experiment_toml.encode())

    @property
    def versions(self) -> dict[str, Any]:
        """What the run was made with."""
        try:
            versions = json.loads((self.path / "versions.json").read_bytes())
        except ValueError:
            versions = None
        if not isinstance(versions, dict):
            raise BadInput(f"{self.path / 'versions.json'} is damaged; restore it from a copy of the run")
        return versions

    @property
    def needs(self) -> str | None:
        """What its players must have at hand when they play; None of a run that does not say."""
        return self.versions.get("needs")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def episodes(self) -> Path:
        return self.path / "episodes"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process from writing to this run meanwhile; readers need no lock."""
        with locked(self.path):
            yield

    # --- metrics ---------------------------------------------------------------------------------

    def write_metrics(self, first_step: int, last_step: int, rows: Columns) -> None:
        """Add the rows of one chunk, whose steps lie between first_step and last_step.

        `rows` has the columns step, seed, seat (-1 for the whole game), metric, value. What an earlier
        attempt wrote beyond first_step goes; at first_step, where chunks may touch, what is said again.
        """
        table = as_table(rows, METRICS_SCHEMA)
        if table.num_rows == 0:
            return
        lowest, highest = lowest_and_highest(table)
        if lowest < first_step or highest > last_step:
            raise ValueError(f"rows of steps {lowest} to {highest} given for {first_step} to {last_step}")
        self._drop_merged_parts()
        for file in self._metric_files():
            if steps_of(file)[1] >= first_step:
                before = read_parquet(file)
                at_border = before.filter(pc.field("step") == first_step)
                unsaid = at_border.join(table.select(KEYS), KEYS, join_type="left anti")
                replace_rows(file, before, before.filter(pc.field("step") < first_step), unsaid)
        replace_file(self.metrics / f"part-{first_step:012d}-{last_step:012d}.parquet", as_parquet(table))

    def forget_after(self, step: int) -> None:
        """Drop everything measured beyond `step`, from which the run is about to go on."""
        self._drop_merged_parts()
        for file in self._metric_files():
            if steps_of(file)[1] > step:
                keep_rows(file, pc.field("step") <= step)
        if self._timing_file.exists():
            keep_rows(self._timing_file, pc.field("step") <= step)
        if self.tensorboard.exists():
            from coplay.training import event_files

            event_files.forget_from(self.tensorboard, step + 1)

    def merge_metrics(self) -> None:
        """Put all rows into all.parquet, which names the parts it holds, then remove the parts."""
        self._drop_merged_parts()
        parts = self._parts()
        if not parts:
            return
        content = as_parquet(self.read_metrics(), merged=[part.name for part in parts])
        replace_file(self.metrics / "all.parquet", content)
        self._drop_merged_parts()

    def read_metrics(self) -> pa.Table:
        """All rows, in the order of their step, seed, seat and metric."""
        for _ in range(READ_ATTEMPTS):
            # Whoever trains may merge or replace parts while we read.
            with contextlib.suppress(FileNotFoundError):
                tables = [read_parquet(file) for file in self._metric_files()]
                return pa.concat_tables([METRICS_SCHEMA.empty_table(), *tables]).sort_by(
                    [(k, "ascending") for k in KEYS]
                )
        raise BadInput(f"{self.metrics} changes faster than it can be read; try again")

    def write_timing(self, rows: Columns) -> None:
        """Add seconds per phase: columns step, phase, seconds. Peak memory is filled in here."""
        peak = np.full(len(rows["step"]), peak_memory_bytes())
        table = as_table({**rows, "peak_memory_bytes": peak}, TIMING_SCHEMA)
        replace_file(self._timing_file, as_parquet(pa.concat_tables([self.read_timing(), table])))

    def read_timing(self) -> pa.Table:
        """Seconds per phase in the order they were spent; empty before the first chunk."""
        return read_parquet(self._timing_file) if self._timing_file.exists() else TIMING_SCHEMA.empty_table()

    @property
    def _timing_file(self) -> Path:
        return self.metrics / "timing.parquet"

    def _parts(self) -> list[Path]:
        return sorted(self.metrics.glob("part-*.parquet"))

    def _metric_files(self) -> list[Path]:
        """The files that together hold every row once, also when a merge was cut short."""
        merged = self._merged_names()
        everything = [self.metrics / "all.parquet"] if merged is not None else []
        return everything + [part for part in self._parts() if part.name not in (merged or ())]

    def _merged_names(self) -> list[str] | None:
        """The parts that all.parquet already holds; None where there is no such file."""
        file = self.metrics / "all.parquet"
        if not file.exists():
            return None
        return json.loads(parquet_metadata(file).get(b"merged", b"[]"))

    def _drop_merged_parts(self) -> None:
        for name in self._merged_names() or []:
            (self.metrics / name).unlink(missing_ok=True)

    def write_tensorboard(self, rows: Columns) -> None:
        """Append the same rows for those who live in TensorBoard."""
        from coplay.training import event_files  # here, so that reading a run needs no tensorboardX

        event_files.append(self.tensorboard, rows)


def default_name(experiment_name: str, root: str = "runs") -> Path:
    """runs/<name>, or the first of runs/<name>-2, runs/<name>-3 ... that is free."""
    if not re.fullmatch(r"[\w.+@=,-]*\w[\w.+@=,-]*", experiment_name):
        raise BadInput(f"{experiment_name!r} cannot name a folder; use letters, digits, '-', '_' and '.'")
    path, number = Path(root) / experiment_name, 2
    while path.exists():
        path, number = Path(root) / f"{experiment_name}-{number}", number + 1
    return path


# --- what a run was made with ----------------------------------------------------------------------


def collect_versions(*more_packages: str) -> dict[str, Any]:
    """Versions and hardware, without the names and paths of this machine. An empty name is no package."""
    import jax  # here, so that reading a run folder needs no JAX

    return {
        "coplay": package_version("coplay"),
        **_git_state(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu_count": os.cpu_count(),
        "devices": [f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()],
        "packages": {name: package_version(name) for name in (*PACKAGES, *more_packages) if name},
    }


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_state() -> dict[str, Any]:
    """Commit of the source we run from, and whether it was changed since; None outside a repository."""
    source = Path(__file__).parent.parent
    # A coplay installed inside somebody's repository is not tracked by it, and its commit is not ours.
    if _git(source, "ls-files", "--error-unmatch", "__init__.py") is None:
        return {"commit": None, "dirty": None}
    changes = _git(source, "status", "--porcelain", "--", ".")
    return {"commit": _git(source, "rev-parse", "HEAD"), "dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def peak_memory_bytes() -> int:
    """The most memory this process has held; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# --- making and locking folders --------------------------------------------------------------------


def _as_json(content: dict) -> bytes:
    return json.dumps(content, indent=2).encode()


def _missing_folders(path: Path) -> list[Path]:
    """The folders that making the run `path` will add, innermost first."""
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise BadInput(f"{path} already exists and is not an empty folder; choose another --out")
        return [folder for folder in (path, *path.parents) if not folder.exists()]
    except OSError as error:
        raise BadInput(f"{path} cannot be reached ({error.strerror}); choose another --out") from error


def _undo_create(path: Path, missing: list[Path]) -> None:
    with contextlib.suppress(OSError):
        for name in ("experiment.toml", "versions.json"):
            (path / name).unlink(missing_ok=True)
        for folder in missing:
            folder.rmdir()
