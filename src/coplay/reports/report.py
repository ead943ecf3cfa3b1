"""The report of a run: one HTML file that needs nothing else, made from the run folder alone."""

import datetime
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from coplay.errors import BadInput
from coplay.files import replace_file
from coplay.reports import board, replay
from coplay.reports.curves import WHOLE_GAME, Curve, at_the_end, curves_of, draw, mean
from coplay.reports.episodes import load_episode, newest_episode
from coplay.reports.templating import render
from coplay.training.run_folder import RunFolder

# Metric, title, and what a reader should look for.
DRAWN = (
    ("eval/return", "Return when evaluated", "What each seat earns in an episode of the evaluation games."),
    ("return", "Return while training", "The same in the episodes it learned from."),
    (
        "policy/entropy",
        "Entropy of the policy",
        "How undecided players are, in nats; it falls as they settle.",
    ),
    (
        "value/explained_variance",
        "Explained variance of the critic",
        "1 is a perfect forecast of returns, 0 is no better than their mean, below 0 is worse.",
    ),
    ("policy/kl", "KL from the old policy", "How far each update moved the policy, in nats."),
)


def write_report(run_path: Path | str) -> Path:
    """Write report.html into the run folder and return its path."""
    run = RunFolder.open(run_path)
    metrics = run.read_metrics()
    curves = {metric: curves_of(metrics, metric) for metric, _, _ in DRAWN}
    settings, raw_settings = _settings(run.experiment_toml)
    page = render(
        "report.html.j2",
        title=_title(run, settings),
        description=dict(settings).get("description", ""),
        headline=_headline(run, metrics),
        score=_score(curves),
        legend=_legend(curves),
        drawings=_drawings(curves),
        absent=[f"{title} ({metric})" for metric, title, _ in DRAWN if not curves[metric]],
        replay=_replay(run),
        settings=settings,
        raw_settings=raw_settings,
        versions=_flat(run.versions),
    )
    replace_file(run.report, page.encode())
    return run.report


class Score(NamedTuple):
    """How well the run plays at its end, over the last fifth of its steps."""

    source: str  # the metric it is read from
    mean: float
    lowest_seed: float
    highest_seed: float
    seeds: int
    seats: list[tuple[str, str, float]]  # name, colour, mean over seeds


def _score(curves: dict[str, list[Curve]]) -> Score | None:
    for metric in ("eval/return", "return"):
        group = [curve for curve in curves[metric] if curve.seat != WHOLE_GAME] or curves[metric]
        if group:
            by_seat = np.stack([at_the_end(curve) for curve in group])  # [seat, seed]
            by_seed = mean(by_seat, axis=0)
            return Score(
                source=metric,
                mean=float(mean(by_seed, axis=0)),
                lowest_seed=float(np.nanmin(by_seed)),
                highest_seed=float(np.nanmax(by_seed)),
                seeds=len(by_seed),
                seats=[
                    (_seat_name(curve.seat), _seat_colour(curve.seat), float(level))
                    for curve, level in zip(group, mean(by_seat, axis=1), strict=True)
                ],
            )
    return None


def _headline(run: RunFolder, metrics: pa.Table) -> list[tuple[str, str]]:
    """Label and figure, in the order a reader asks for them."""
    if metrics.num_rows == 0:
        return []
    steps = max(int(metrics["step"].to_numpy().max()), *_saved_steps(run))
    seeds = len(np.unique(metrics["seed"].to_numpy()))
    lines = [("Steps" if seeds == 1 else "Steps of each seed", f"{steps:,}"), ("Seeds", f"{seeds}")]
    if run.needs:
        lines.append(("To play", run.needs))
    timing = run.read_timing()
    if timing.num_rows:
        seconds = float(timing["seconds"].to_numpy().sum())
        lines.append(("Time", str(datetime.timedelta(seconds=round(seconds)))))
        lines.append(("Steps per second", f"{steps * seeds / max(seconds, 1e-9):,.0f}"))
        lines.append(("Peak memory", f"{timing['peak_memory_bytes'].to_numpy().max() / 1e9:.2f} GB"))
    return lines


def _saved_steps(run: RunFolder) -> list[int]:
    """Rows carry the step their weights had before an update; the last update shows in a checkpoint only."""
    return [0, *(int(file.stem.removeprefix("step-")) for file in run.checkpoints.glob("step-*.json"))]


def _legend(curves: dict[str, list[Curve]]) -> list[tuple[str, str]]:
    seats = sorted({curve.seat for group in curves.values() for curve in group})
    return [(_seat_name(seat), _seat_colour(seat)) for seat in seats]


def _seat_name(seat: int) -> str:
    return "whole game" if seat == WHOLE_GAME else f"seat {seat} (player {board.symbol(seat)})"


def _seat_colour(seat: int) -> str:
    return board.PLAYER_COLOURS[-1] if seat == WHOLE_GAME else board.colour(seat)


def _drawings(curves: dict[str, list[Curve]]) -> list[tuple[str, str, Markup]]:
    return [
        (title, sentence, Markup(draw(curves[metric], name=f"drawing-{number}")))
        for number, (metric, title, sentence) in enumerate(DRAWN)
        if curves[metric]
    ]


def _replay(run: RunFolder) -> tuple[Markup | None, str]:
    """The newest episode's player, and a sentence about it."""
    path = newest_episode(run.episodes)
    if path is None:
        return None, "No episode was saved with this run."
    try:
        episode = load_episode(path)
    except BadInput as problem:
        return None, f"The newest episode cannot be shown: {problem}."
    returns = ", ".join(f"{total:g}" for total in episode.returns[-1])
    sentence = f"{path.name}: {episode.game}, {episode.num_moves} steps, returns {returns}."
    return Markup(replay.as_html(episode)), sentence


# --- settings and versions ---------------------------------------------------------------------------


def _title(run: RunFolder, settings: list[tuple[str, str]]) -> str:
    return dict(settings).get("name") or run.path.resolve().name


def _settings(text: str) -> tuple[list[tuple[str, str]], str | None]:
    """The settings as lines of a table, or the text as it is where it cannot be parsed."""
    try:
        return _flat(tomllib.loads(text)), None
    except tomllib.TOMLDecodeError:
        return [], text


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested tables as dotted names, plain values first."""
    plain = [(prefix + key, _shown(value)) for key, value in values.items() if not isinstance(value, dict)]
    nested = [_flat(value, f"{prefix}{key}.") for key, value in values.items() if isinstance(value, dict)]
    return plain + [line for lines in nested for line in lines]


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}"  # as TOML may write it
    return "none" if value is None else str(value)
