"""Runs by name: a folder, which of its checkpoints, which of its seeds, and the experiment it holds."""

import tomllib
from pathlib import Path
from typing import NamedTuple

from coplay.errors import BadInput, nearest
from coplay.experiment.fields import Experiment
from coplay.settings import Where, from_table
from coplay.training.run_folder import RunFolder

ZOO = Path(__file__).parent.parent / "zoo"


class RunReference(NamedTuple):
    """`runs/x`, `runs/x@best`, `runs/x@best:3`, or `zoo:name` for one that comes with the package."""

    path: Path
    best: bool
    seed: int


def parse_run(name: str) -> RunReference:
    path, _, which = name.partition("@")
    which, _, seed = which.partition(":")
    if path.startswith("zoo:"):
        path = str(_in_zoo(path.removeprefix("zoo:")))
    if which not in ("", "last", "best") or (seed and not seed.isdigit()):
        raise BadInput(f"{name!r}: after the run folder comes @best or @last, and :SEED if wanted")
    return RunReference(Path(path), which == "best", int(seed or 0))


def _in_zoo(name: str) -> Path:
    if name not in zoo_names():
        raise BadInput(f"the zoo has no {name!r}; {nearest(name, zoo_names())}")
    return ZOO / name


def zoo_names() -> list[str]:
    return sorted(path.parent.name for path in ZOO.glob("*/experiment.toml"))


def is_run(name: str) -> bool:
    if name.startswith("zoo:"):
        return True
    path = Path(name.partition("@")[0])
    return (path / "experiment.toml").is_file() or ("/" in name and ".py:" not in name)


def read_run(folder: RunFolder) -> Experiment:
    """The experiment a run folder holds."""
    try:
        tables = tomllib.loads(folder.experiment_toml)
    except ValueError as error:
        raise BadInput(f"{folder.path}/experiment.toml is damaged: {error}") from error
    return from_table(Experiment, tables, _in_folder(folder))


def _in_folder(folder: RunFolder) -> Where:
    return lambda key: f"{folder.path.name}/experiment.toml: "
