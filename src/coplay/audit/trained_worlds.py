"""How good did a run's model of the game become? Asked of its last weights, on moves made afresh.

What becomes of a board with one move, and what pays; how errors grow over several: `trained_growth.py`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from coplay.audit import captured
from coplay.audit.by_seed import by_every_seed, judged
from coplay.audit.finding import Check, Outcome, not_run
from coplay.audit.learned_world import Chances, Foretold, foretold_of, learned_world
from coplay.audit.subject import Budget, Subject
from coplay.audit.trained_growth import growth
from coplay.nets import world as worlds
from coplay.nets.world import World
from coplay.offline.planes import channel_names, decibel, plane_errors
from coplay.types import Board, Entities, Key

LEAST = 1e-9  # chance that anything is given
FEWEST = 20  # changes of a kind of thing, or payments, before anything is said of it


# --- 6.6, 6.7 what becomes of a board ------------------------------------------------------------


def world_skill(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is it foreseen what moves and what vanishes?"""
    statistic = "share of what moves or vanishes that is foreseen, of the kind that is foreseen worst"
    seeds, entities = foretold_of(subject), subject.env.entities
    assert entities is not None, "the game has been refused otherwise"
    by_kind = [skills(entities, seed) for seed in seeds]
    known = [name for name in by_kind[0] if all(name in found for found in by_kind)]
    if not known:
        return not_run(statistic, "hardly anything moved or vanished")
    middle = {name: float(np.median([found[name] for found in by_kind])) for name in known}
    worst = np.array([min(found[name] for name in known) for found in by_kind])
    told = ", ".join(f"{name} {value:.3f}" for name, value in middle.items())
    look = f"what the world model remembers (world_rows); by kind: {told}"
    noises = [noise(learned_world(subject).world, seed) for seed in seeds]
    ratios = {name: float(np.median([getattr(found, name) for found in noises])) for name in RATIOS}
    look += "; PSNR " + ", ".join(f"{ratios[name]:.1f} dB {what}" for name, what in RATIOS.items())
    drawings = [_boards_drawing(entities, seeds[0]), *_noise_drawings(noises)]
    drawing = {"kind": "several", "drawings": drawings}
    return judged(statistic, worst, 0.2, 0.6, look, drawing=drawing, unit="skill")


def skills(entities: Entities, seed: Foretold) -> dict[str, float]:
    """By kind, 1 less the squared error as a share of that of saying that nothing moves; not of kinds of
    which hardly anything changed."""
    made, chance = seed.moves, seed.chance
    here, there = np.asarray(made.before.here), np.asarray(made.before.there)
    step, stays = np.asarray(made.happened.step), np.asarray(made.happened.there)
    errors = {"players": (squared_error(chance.step, step)[here], 2.0 * (step != 0)[here])}
    of_things = squared_error(chance.there, stays.astype(int))
    for number, kind in enumerate(entities.kinds):
        rows = there & (np.asarray(entities.kind_of) == number)[None]
        errors[kind] = (of_things[rows], 2.0 * (~stays)[rows])
    return {
        name: 1.0 - float(error.sum() / still.sum())
        for name, (error, still) in errors.items()
        if still.sum() >= 2 * FEWEST
    }


def squared_error(
    chance: Float[np.ndarray, "*row choice"], choice: Int[np.ndarray, "*row"]
) -> Float[np.ndarray, "*row"]:
    """Of chances against what happened: 0 if that was certain, 2 if something else was."""
    happened = np.arange(chance.shape[-1]) == choice[..., None]
    return ((chance - happened) ** 2).sum(axis=-1)


class Noise(NamedTuple):
    """What is off on boards drawn as chances of every cell (`offline/planes.py`); ratios of signal to noise
    (PSNR) in decibels."""

    error: dict[str, float]  # squared, by channel: every player, every kind of thing
    pooled: float  # of the error over all
    by_channel: float  # mean of the channels' ratios
    by_board: float  # mean of the boards' ratios


RATIOS = {"pooled": "over all", "by_channel": "mean over channels", "by_board": "mean over boards"}


def noise(world: World, seed: Foretold) -> Noise:
    foreseen = worlds.Foreseen(*(jnp.log(jnp.maximum(x, LEAST)) for x in seed.chance))
    told = captured.quick(lambda *given: plane_errors(world, *given))(foreseen, seed.moves)
    error = {name: float(told[f"mse/{name}"]) for name in channel_names(world)}
    by_channel = np.mean([_decibel(x) for x in error.values()])
    return Noise(error, float(told["psnr/pooled"]), float(by_channel), float(told["psnr/mean"]))


def _decibel(error: float) -> float:
    return float(decibel(jnp.float32(error)))


def _noise_drawings(noises: list[Noise]) -> list[dict[str, Any]]:
    """By channel, the median of all seeds; and ratios by seed."""
    channels = list(noises[0].error)
    errors = [float(np.median([found.error[name] for found in noises])) for name in channels]
    by_channel = {
        "kind": "table",
        "title": "chances of cells against where players and things then were",
        "rows": channels,
        "columns": ["squared error", "PSNR in dB"],
        "values": [[float(f"{error:.4g}"), round(_decibel(error), 2)] for error in errors],
    }
    by_seed = {
        "kind": "table",
        "title": "PSNR in dB",
        "rows": [f"seed {number}" for number in range(len(noises))],
        "columns": list(RATIOS.values()),
        "values": [[round(getattr(found, name), 2) for name in RATIOS] for found in noises],
    }
    return [by_channel, by_seed]


def _boards_drawing(entities: Entities, seed: Foretold) -> dict[str, Any]:
    """The move that was foreseen worst."""
    made, chance = seed.moves, seed.chance
    error = np.where(made.before.here, squared_error(chance.step, np.asarray(made.happened.step)), 0.0)
    row = int(error.sum(axis=1).argmax())
    one = jax.tree.map(lambda x: np.asarray(x)[row], (made.before, made.after))
    before, after = one
    told = Chances(*(x[row] for x in chance))
    pairs = {
        "players": (_cells(entities, after.players, after.here), players_told(entities, before, told.step)),
        "things": (
            _cells(entities, after.things, after.there),
            _cells(entities, before.things, np.where(before.there, told.there[:, 1], 0.0)),
        ),
    }
    drawings = [_frames(entities, name, *pair) for name, pair in pairs.items()]
    return {"kind": "several", "drawings": drawings}


def players_told(
    entities: Entities, before: Board, chance: Float[np.ndarray, "agent choice"]
) -> Float[np.ndarray, " cell"]:
    """How many players are expected on each cell; a step onto no cell is not taken."""
    cells = np.zeros(entities.num_cells)
    shift = [rows * entities.width + columns for rows, columns in entities.steps]
    for player in np.flatnonzero(before.here):
        for step, by in enumerate(shift):
            to = int(before.players[player]) + by
            to = to if 0 <= to < entities.num_cells else int(before.players[player])
            cells[to] += chance[player, step]
    return cells


def _cells(entities: Entities, at: np.ndarray, weight: np.ndarray) -> Float[np.ndarray, " cell"]:
    return np.bincount(np.clip(at, 0, entities.num_cells - 1), weight.astype(float), entities.num_cells)


def _frames(entities: Entities, name: str, true: np.ndarray, told: np.ndarray) -> dict[str, Any]:
    frames = {"true": true, "predicted": told, "difference": told - true}
    return {
        "kind": "boards",
        "title": f"{name} after the move that was foreseen worst",
        "frames": [
            {"name": what, "values": np.round(cells, 4).reshape(-1, entities.width).tolist()}
            for what, cells in frames.items()
        ],
    }


def world_possible(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Could the boards that are foretold follow?"""
    share = np.array([float(seed.is_possible.mean()) for seed in foretold_of(subject)])
    look = "heads of the world model, what it remembers"
    return judged("share of foretold boards that could follow", share, 0.95, 0.99, look)


# --- 6.8 what pays -------------------------------------------------------------------------------


def world_pay(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does the model of the game know what pays?"""
    statistic = "recall of the reward it knows worst, among those that were paid"
    values, seeds = np.array(subject.env.reward_values or ()), foretold_of(subject)
    tables = [confusion(len(values), *_paid(seed)) for seed in seeds]
    recall = np.array([worst_recall(values, table) for table in tables])
    if not np.isfinite(recall).any():
        return not_run(statistic, "hardly anything was paid")
    recall = np.where(np.isfinite(recall), recall, np.nanmedian(recall))
    by_seat = np.median([_slopes(values, seed) for seed in seeds], axis=0)
    slope = np.array([slope_of(values, *_paid(seed)) for seed in seeds])
    off = (slope < 0.8) | (slope > 1.25)
    look = f"rare rewards in what the world model remembers; slope on what was paid: {np.median(slope):.3g}"
    drawing = _pay_drawing(values, np.sum(tables, axis=0))
    told = {"by_seat": tuple(map(float, by_seat)), "drawing": drawing}
    return by_every_seed(statistic, recall, (recall < 0.5) | off, recall < 0.9, 0.5, look, **told)


def _paid(seed: Foretold, seat: int | slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
    """Places of rewards that were paid to who was there, and chances of each."""
    here = np.asarray(seed.moves.before.here)[:, seat]
    return np.asarray(seed.moves.happened.reward)[:, seat][here], seed.chance.reward[:, seat][here]


def _slopes(values: Float[np.ndarray, " value"], seed: Foretold) -> list[float]:
    return [slope_of(values, *_paid(seed, seat)) for seat in range(seed.chance.reward.shape[1])]


def confusion(
    count: int, paid: Int[np.ndarray, " row"], chance: Float[np.ndarray, "row value"]
) -> Float[np.ndarray, "paid value"]:
    """How much of each reward is expected where each was paid, in rows."""
    table = np.zeros((count, count))
    np.add.at(table, paid, chance)
    return table


def worst_recall(values: Float[np.ndarray, " value"], table: Float[np.ndarray, "paid value"]) -> float:
    """Of rewards other than 0 that were paid often enough; NaN if none was."""
    rows = table.sum(axis=1)
    asked = (values != 0) & (rows >= FEWEST)
    return float(np.min(np.diag(table)[asked] / rows[asked])) if asked.any() else float("nan")


def slope_of(
    values: Float[np.ndarray, " value"], paid: Int[np.ndarray, " row"], chance: Float[np.ndarray, "row value"]
) -> float:
    """Of what is expected on what was paid; 1 where always the same was."""
    true, told = values[paid], chance @ values
    centred = true - true.mean()
    square = float(centred @ centred)
    return float(centred @ told) / square if square > 0 else 1.0


def _pay_drawing(
    values: Float[np.ndarray, " value"], table: Float[np.ndarray, "paid value"]
) -> dict[str, Any]:
    paid = np.flatnonzero(table.sum(axis=1) > 0)
    return {
        "kind": "matrix",
        "title": "what was paid, and what was expected to be",
        "rows": [f"{values[i]:.3g}" for i in paid],
        "columns": [f"{value:.3g}" for value in values],
        "values": np.round(table[paid], 1).tolist(),
        "row_name": "paid",
        "column_name": "expected",
    }


WORLDS = (
    Check(
        "world_skill",
        "models",
        "Is it foreseen what moves?",
        "judgement",
        "nets",
        world_skill,
        ("world_rows",),
    ),
    Check(
        "world_possible",
        "models",
        "Are foretold boards possible?",
        "judgement",
        "nets",
        world_possible,
        ("world_rows", "world_skill"),
    ),
    Check("world_pay", "models", "Is it known what pays?", "judgement", "nets", world_pay, ("world_rows",)),
    Check(
        "growth",
        "models",
        "Do errors of the world model breed?",
        "judgement",
        "nets",
        growth,
        ("world_skill", "world_possible"),
    ),
)
