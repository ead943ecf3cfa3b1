"""A trained part on disk.

- part.json: what it is: kind, settings, the play it learned from
- versions.json: commit, packages, hardware
- checkpoints/: its weights after each epoch (`training/checkpoint.py`)
- evaluation.csv: every epoch's figures on held-out episodes, one row each
- evaluation/NNN.npz: the same with tables (confusion, ...)
- pictures/*.png
"""

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from coplay.errors import BadInput
from coplay.files import replace_file
from coplay.training import checkpoint
from coplay.training.run_folder import collect_versions
from coplay.types import PyTree

FORMAT = 1


def is_part(path: str | Path) -> bool:
    return (Path(path) / "part.json").is_file()


def require_free(path: str | Path) -> None:
    """For a folder that is to be made: nothing may be lost."""
    path = Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"{path} holds something already; name another folder with --out")


@dataclasses.dataclass(frozen=True)
class PartFolder:
    """Make it with `create` or `open`."""

    path: Path

    @classmethod
    def create(
        cls, path: str | Path, kind: str, settings: dict[str, Any], play: dict[str, Any], package: str = ""
    ) -> "PartFolder":
        """A new one; `package` is that of the game, where it is not ours."""
        require_free(path)
        folder = cls(Path(path))
        versions = json.dumps(collect_versions(package), indent=1)
        replace_file(folder.path / "versions.json", versions.encode())
        said = {"format": FORMAT, "kind": kind, "settings": settings, "play": play}
        replace_file(folder.path / "part.json", json.dumps(said, indent=1).encode())
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "PartFolder":
        folder = cls(Path(path))
        if not is_part(path):
            raise BadInput(f"{path} is no trained part: it has no part.json (`coplay pretrain` makes one)")
        said = folder.said
        if said.get("format") != FORMAT:
            raise BadInput(f"{path} has format {said.get('format')!r}; this coplay reads {FORMAT}")
        if not {"kind", "settings", "play"} <= set(said):
            raise BadInput(f"{path}: part.json does not say all that it should; restore it from a copy")
        return folder

    @property
    def said(self) -> dict[str, Any]:
        """What part.json says."""
        try:
            said = json.loads((self.path / "part.json").read_bytes())
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise BadInput(f"{self.path / 'part.json'} is damaged; restore it from a copy")
        return said

    @property
    def kind(self) -> str:
        return self.said["kind"]

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def save(self, epoch: int, weights: PyTree, figures: dict[str, Any], loss: float) -> None:
        """An epoch's weights and what they came to."""
        checkpoint.save(self.checkpoints, epoch, weights, {"score": -loss})
        tables = {name.replace("/", "_"): np.asarray(value) for name, value in figures.items()}
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **tables)
        replace_file(self.path / "evaluation" / f"{epoch:03d}.npz", content.getvalue())

    def write_table(self, rows: list[dict[str, float | int]]) -> None:
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        replace_file(self.path / "evaluation.csv", text.getvalue().encode())

    def best_weights(self, like: PyTree) -> PyTree:
        """Of the epoch with the smallest held-out loss."""
        found = checkpoint.best(self.checkpoints)
        if found is None:
            raise BadInput(f"{self.path} has no finished epoch yet")
        return checkpoint.load(self.checkpoints, like, found[0])[0]
