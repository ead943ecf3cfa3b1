"""A trained part on disk.

part.json              what it is: kind, settings, the play it learned from, versions
checkpoints/           its weights after each epoch (`training/checkpoint.py`)
evaluation.csv         every epoch's figures on held-out episodes, one row each
evaluation/NNN.npz     the same with tables (confusion, ...)
pictures/*.png
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
from coplay.offline.dataset import About
from coplay.training import checkpoint
from coplay.types import PyTree

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class PartFolder:
    """Make it with `create` or `open`."""

    path: Path

    @classmethod
    def create(cls, path: str | Path, kind: str, settings: dict[str, Any], about: About) -> "PartFolder":
        folder = cls(Path(path))
        if folder.path.exists() and any(folder.path.iterdir()):
            raise BadInput(f"{path} holds something already; name another folder with --out")
        said = {"format": FORMAT, "kind": kind, "settings": settings, "play": dataclasses.asdict(about)}
        replace_file(folder.path / "part.json", json.dumps(said, indent=1).encode())
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "PartFolder":
        folder = cls(Path(path))
        if not (folder.path / "part.json").is_file():
            raise BadInput(f"{path} is no trained part: it has no part.json (`coplay pretrain` makes one)")
        if folder.said.get("format") != FORMAT:
            raise BadInput(f"{path} has format {folder.said.get('format')!r}; this coplay reads {FORMAT}")
        return folder

    @property
    def said(self) -> dict[str, Any]:
        """What part.json says."""
        try:
            said = json.loads((self.path / "part.json").read_bytes())
        except ValueError as error:
            raise BadInput(f"{self.path / 'part.json'} is damaged; restore it from a copy") from error
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
