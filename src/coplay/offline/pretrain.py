"""Training a part from a file of recorded play, into a folder of its own. PARTS is the catalogue."""

import dataclasses
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from coplay.envs import make_game
from coplay.errors import BadInput, UnknownSetting
from coplay.files import replace_file
from coplay.offline import dataset, moa, training, vae, world
from coplay.offline.dataset import About
from coplay.offline.part import Part
from coplay.offline.pictures import loss_curves
from coplay.offline.training import Training
from coplay.settings import field_types, from_table, parse_text
from coplay.training.part_folder import PartFolder, require_free
from coplay.types import Key, PyTree, stacked, stream


class Kind(NamedTuple):
    """A kind of part: what it is, its settings, and how it is made for a game."""

    description: str
    config: type
    make: Callable[[About, Any], Part]


PARTS = {
    "moa": Kind(
        "a model of other agents, which foretells what they do from what they have done",
        moa.MoaConfig,
        moa.part_of,
    ),
    "vae": Kind(
        "a prior over subgoals (variational), which says what a player may be after from what it sees",
        vae.VaeConfig,
        vae.part_of,
    ),
    "world": Kind(
        "a model of the game, which foretells where a joint move leads and what it pays",
        world.WorldConfig,
        world.part_of,
    ),
}

EARLIER = {"pay": 0.0}  # settings of parts that were made before there was a choice
MEDIANS = moa.MEDIANS  # figures that are medians

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """How training went; the fields are those of `pretrain --json`."""

    part: str  # folder
    kind: str
    rows: int  # that were learned from: joint moves, or whole episodes
    held_out_rows: int
    epochs: int
    train_loss: float
    held_out_loss: float
    gap: float  # held-out less train
    figures: dict[str, float]  # on held-out episodes, after the best epoch
    seconds: float


def pretrain(kind: str, data: str | Path, options: dict[str, str], out: str | Path, say: Say) -> Pretrained:
    """Train `kind` on the file; `options` are settings by name, of the training or of the part."""
    began = time.perf_counter()
    settings, config = settings_of(kind, options)
    require_free(out)
    about, play = dataset.read(data)
    part = PARTS[kind].make(about, config)
    try:
        learned, held = training.apart(len(play.length), settings)
    except ValueError as error:
        raise BadInput(f"{data}: {error}") from error
    rows, episode = (part.learned_rows or part.rows)(play, learned)
    held_out, _ = part.rows(play, held)
    judge, judged = jax.jit(part.judge), training.first_rows(held_out, part.most)
    start = _members(part, settings.seed)
    say(f"{len(episode):,} rows to learn from; the first epoch takes longest, for it is compiled")
    said = dataclasses.asdict(settings) | dataclasses.asdict(config)
    folder = PartFolder.create(out, kind, said, dataclasses.asdict(about), about.env().package)
    table = []
    batch = settings.batch or part.batch
    for epoch in training.epochs(
        part.loss, start, rows, episode, held_out, settings, batch, part.most, part.score, part.beside
    ):
        figures = jax.device_get(judge(epoch.weights, judged, stream(jax.random.key(0), "judge")))
        folder.save(epoch.number, epoch.weights, figures, epoch.held_out_loss)
        table.append(_row(epoch, figures))
        folder.write_table(table)
        say(_line(epoch, settings, table[-1], part.headlines))
    best = min(table, key=lambda row: row["loss/held_out"])
    weights = folder.best_weights(start)
    _draw(folder, {"loss": loss_curves(table)} | part.pictures(weights, judged))
    return Pretrained(
        part=str(folder.path),
        kind=kind,
        rows=len(episode),
        held_out_rows=len(jax.tree.leaves(held_out)[0]),
        epochs=len(table),
        train_loss=best["loss/train"],
        held_out_loss=best["loss/held_out"],
        gap=best["loss/held_out"] - best["loss/train"],
        figures={name: value for name, value in best.items() if name != "epoch"},
        seconds=time.perf_counter() - began,
    )


def evaluate(path: str | Path, data: str | Path, kind: str | None = None) -> dict[str, float]:
    """A saved part's figures on any play of its game, as many rows of it as figures are measured on. Who
    says which kind it is must be right."""
    folder = PartFolder.open(path)
    if kind not in (None, folder.kind):
        raise BadInput(f"{path} holds a trained {folder.kind}, not a {kind}: leave --module out")
    if folder.kind not in PARTS:
        raise BadInput(f"{path} is a {folder.kind!r}, which this coplay does not know")
    about, play = play_of(data, path, folder.said["play"]["game"], folder.said["play"]["options"])
    config_type = PARTS[folder.kind].config
    names = field_types(config_type)
    said = EARLIER | folder.said["settings"]
    said = {name: value for name, value in said.items() if name in names}
    part = PARTS[folder.kind].make(about, from_table(config_type, said, lambda key: ""))
    weights = folder.best_weights(_members(part, 0))
    return mean_figures(part, jax.tree.map(lambda x: x[None], weights), play)


def play_of(
    data: str | Path, path: str | Path, game: str, options: dict[str, Any]
) -> tuple[About, dataset.Episodes]:
    """Recorded play to judge something on that `path` holds and that was trained on this game."""
    about, play = dataset.read(data)
    env, its_own = about.env(), make_game(game, **options)
    if (env.name, env.options) != (its_own.name, its_own.options):
        raise BadInput(f"{path} was trained on {game} {options}, {data} is {about.game} {about.options}")
    return about, play


def mean_figures(part: Part, weights: PyTree, play: dataset.Episodes) -> dict[str, float]:
    """Figures of weights [some, member, ...]: the mean over all of them, tables left out. They are judged on
    the same rows with the same draws, and one after the other, for rows are many."""
    rows = training.first_rows(part.rows(play, np.arange(len(play.length)))[0], part.most)

    def judge(weights: PyTree, rows: PyTree, key: Key) -> dict[str, Any]:
        return jax.lax.map(lambda one: part.judge(one, rows, key), weights)

    figures = jax.device_get(jax.jit(judge)(weights, rows, stream(jax.random.key(0), "judge")))
    return {name: _over_models(name, each) for name, each in figures.items() if each.ndim == 1}


def _over_models(name: str, each: np.ndarray) -> float:
    """The mean; of medians the median, for one that is infinite would hide the others."""
    return float((np.median if name in MEDIANS else np.mean)(each.astype(float)))


def settings_of(kind: str, options: dict[str, str]) -> tuple[Training, Any]:
    """Settings by name: of how it is trained, and of the part itself."""
    config = PARTS[kind].config
    known = {**field_types(Training), **field_types(config)}
    given = {name: parse_text(text) for name, text in options.items()}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise UnknownSetting(unknown[0], known)
    parts = [{n: v for n, v in given.items() if n in field_types(one)} for one in (Training, config)]
    return from_table(Training, parts[0], lambda key: ""), from_table(config, parts[1], lambda key: "")


def _members(part: Part, seed: int) -> PyTree:
    key = stream(jax.random.key(seed), "members")
    each = [part.init(jax.random.fold_in(key, number)) for number in range(part.members)]
    return stacked(each)


def _row(epoch: training.Epoch, figures: dict[str, np.ndarray]) -> dict[str, float | int]:
    losses = {"loss/train": epoch.train_loss, "loss/held_out": epoch.held_out_loss}
    return {"epoch": epoch.number, **losses, **_numbers(figures)}


def _numbers(figures: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(value) for name, value in figures.items() if np.ndim(value) == 0}


def _line(epoch: training.Epoch, settings: Training, row: dict[str, float | int], headlines) -> str:
    shown = ", ".join(f"{name} {row[name]:.5g}" for name in headlines)
    return (
        f"epoch {epoch.number} of {settings.epochs}: loss {row['loss/train']:.4f}, held out "
        f"{row['loss/held_out']:.4f} (gap {row['loss/held_out'] - row['loss/train']:+.4f}); {shown}"
    )


def _draw(folder: PartFolder, figures: dict[str, Any]) -> None:
    for name, figure in figures.items():
        content = io.BytesIO()
        FigureCanvasAgg(figure).print_png(content)
        replace_file(folder.path / "pictures" / f"{name}.png", content.getvalue())
