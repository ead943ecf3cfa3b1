"""Few-shot adaptation of a run's players: every seed of it, with scores that random play and a best response
put to scale, and the same players told what everyone is after beside it.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coplay import experiment as experiments
from coplay.errors import BadInput
from coplay.evaluation import adaptation_figures as figures
from coplay.evaluation import anchors as tables
from coplay.evaluation.adaptation import Learning, Played, Protocol
from coplay.evaluation.anchors import Anchors
from coplay.evaluation.statistics import bootstrap_interval
from coplay.meetings.anchoring import anchors_of
from coplay.meetings.tables import Focal, Say, Table, met, open_focal, sit_down
from coplay.players.catalogue import make_player, players_of, settled
from coplay.players.scripted import ScriptedPlayer
from coplay.training.run_folder import RunFolder
from coplay.types import Environment

AFTER_CHANGE = 20  # episodes looked at after a company has changed
STANDARD = Protocol()


@dataclasses.dataclass(frozen=True)
class Adaptation:
    """How a run's players did in a company; the fields are those of `adapt --json`."""

    run: str
    company: list[str]
    seats: list[int]  # of the focal players
    normalised: float | None  # 0 random play, 1 best response; None where the two hardly differ
    interval: tuple[float, float] | None  # 95%, over seeds, or over games below three seeds
    after_5_episodes: float | None  # normalised mean of episodes 6 to 10
    raw: float  # mean return of episodes that end in the last quarter
    raw_interval: tuple[float, float]
    raw_after_5_episodes: float
    per_step: float  # return per step there: a fixed number of steps favours short games
    random: float
    best: float
    best_from: str
    curve: list[float]  # mean return of episode 1, 2, ...
    change: dict[str, float] | None  # of a company that changes: before, after, share of the best
    opponent_model: dict[str, float] | None  # means over seeds
    belief: dict[str, Any] | None  # in the true goal, by step of the episode; means over seeds
    steps_to_90: float | None
    oracle_goals: dict[str, float | None] | None  # the same players, told what everyone is after
    per_seed: list[float]
    learning: list[str]  # who went on learning: "focal", "company"; scores are to the scale of frozen ones
    seeds: int
    games: int
    steps: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Companies:
    """How they did in one company after another; means are over those whose scores can be normalised."""

    companies: list[Adaptation]
    mean: float | None  # None where no score can be normalised
    worst: float | None
    mean_after_5_episodes: float | None


def over_companies(each: list[Adaptation]) -> Companies:
    scores = [one.normalised for one in each if one.normalised is not None]
    early = [one.after_5_episodes for one in each if one.after_5_episodes is not None]
    if not scores:
        return Companies(each, None, None, None)
    return Companies(each, float(np.mean(scores)), min(scores), float(np.mean(early)))


def adapt(
    name: str,
    company: Sequence[str],
    overrides: Mapping[str, Any] | None = None,
    protocol: Protocol = STANDARD,
    seat: int = 0,
    seed: int = 0,
    with_oracle: bool = True,
    learning: Sequence[str] = (),
    say: Say = lambda text: None,
) -> Adaptation:
    """The run's players in `company`: every trained seed, or the one that is named.

    Of "focal" and "company", those named in `learning` go on learning, every seed from where it stands.
    """
    began = time.perf_counter()
    if learning:
        protocol = dataclasses.replace(protocol, kept=1.0)
    rounds = _rounds(name, company, overrides or {}, learning, protocol.games)
    focal = open_focal(name, {**(overrides or {}), **(rounds if "focal" in learning else {})})
    table = sit_down(focal.built.env, company, seat, rounds if "company" in learning else None)
    known = anchors_of(focal.built, table, say)
    if learning:
        pace = Learning(tuple(learning), rounds["rollout.num_steps"], rounds["rollout.sequence_length"])
        table = table._replace(learning=pace)
    found = met(focal, table, protocol, seed, False, say)
    has_goals = bool(table.scripts) and focal.can_be_told
    is_told_too = with_oracle and has_goals and not learning
    told = met(focal, table, protocol, seed, True, say) if is_told_too else None
    return _summary(focal, table, known, protocol, found, told, time.perf_counter() - began)


def _rounds(
    name: str, company: Sequence[str], overrides: Mapping[str, Any], learning: Sequence[str], games: int
) -> dict[str, Any]:
    """How those who go on learning collect what they learn from: as the first of them did in training, but
    on one device and at a rate that does not fall."""
    if not learning:
        return {}
    learners = [name] if "focal" in learning else []
    learners += [one for one in company if experiments.is_run(one)] if "company" in learning else []
    if "company" in learning and not any(map(experiments.is_run, company)):
        raise BadInput(f"nobody in {', '.join(company)} is a trained run, so none of them can go on learning")
    first = experiments.read_run(RunFolder.open(experiments.parse_run(learners[0]).path))
    if "focal" in learning:
        first = experiments.with_overrides(first, overrides)
    job = experiments.job(experiments.build(first))
    return {
        "devices": 1,
        "anneal": False,
        "rollout.num_envs": games,
        "rollout.num_steps": job.num_steps,
        "rollout.sequence_length": job.sequence_length,
    }


# --- the figures ---------------------------------------------------------------------------------


def _summary(
    focal: Focal,
    table: Table,
    anchors: Anchors,
    protocol: Protocol,
    played: list[Played],
    told: list[Played] | None,
    seconds: float,
) -> Adaptation:
    each = [figures.episodes(one.early, one.late, table.focal_seats, protocol.kept_games) for one in played]
    by_game = [figures.scores(one, protocol) for one in each]
    raw, interval = _with_interval(by_game)
    is_flat = tables.are_close(anchors, table.env.ceiling)

    def anchored(value: float) -> float:
        return tables.normalised(value, anchors)

    def scaled(value: float) -> float | None:
        return None if is_flat else anchored(value)

    few = float(np.mean([figures.few_shot(one).mean() for one in each]))
    curves = [figures.curve(one, protocol) for one in each]
    curve = np.mean([c[: min(map(len, curves))] for c in curves], axis=0)
    seat = table.focal_seats[0]
    belief = _believed(played, seat)
    return Adaptation(
        run=focal.name,
        company=list(table.names),
        seats=list(table.focal_seats),
        normalised=scaled(raw),
        interval=None if is_flat else (anchored(interval[0]), anchored(interval[1])),
        after_5_episodes=scaled(few),
        raw=raw,
        raw_interval=interval,
        raw_after_5_episodes=few,
        per_step=float(np.mean([figures.per_step(one, protocol) for one in each])),
        random=anchors.random,
        best=anchors.best,
        best_from=anchors.best_from,
        curve=[float(x) for x in curve],
        change=_change(table, curve, anchors),
        opponent_model=_foreseen(table, played),
        belief=belief,
        steps_to_90=belief["steps_to_90"] if belief else None,
        oracle_goals=_oracle(told, table, protocol, scaled),
        per_seed=[float(x.mean()) for x in by_game],
        learning=list(table.learning.parts) if table.learning else [],
        seeds=len(played),
        games=protocol.games,
        steps=protocol.steps,
        seconds=seconds,
    )


def _with_interval(by_game: list[np.ndarray]) -> tuple[float, tuple[float, float]]:
    means = np.array([scores.mean() for scores in by_game])
    low, high = bootstrap_interval(means if len(means) >= 3 else np.concatenate(by_game))
    return float(means.mean()), (float(low), float(high))


def _oracle(told: list[Played] | None, table: Table, protocol: Protocol, scaled):
    if told is None:
        return None
    each = [figures.episodes(one.early, one.late, table.focal_seats, protocol.kept_games) for one in told]
    raw, interval = _with_interval([figures.scores(one, protocol) for one in each])
    return {"raw": raw, "raw_interval": interval, "normalised": scaled(raw)}


def _change(table: Table, curve: np.ndarray, anchors: Anchors) -> dict[str, float] | None:
    """The episodes about the moment at which somebody in the company becomes another."""
    moments = [after for name in table.names if (after := settled(name)[1])]
    if not moments or max(moments) + AFTER_CHANGE > len(curve):
        return None
    moment = max(moments)
    later = float(curve[moment : moment + AFTER_CHANGE].mean())
    return {
        "after_episode": moment,
        "before": float(curve[max(0, moment - 10) : moment].mean()),
        "next_20": later,
        "share_of_best": later / anchors.best,
    }


def _believed(played: list[Played], seat: int) -> dict[str, Any] | None:
    """How sure they were of what the others are truly after, as a mean over seeds."""
    found = [one for one in (figures.belief_figures(p.seen, seat) for p in played) if one is not None]
    if not found:
        return None
    by_step = zip(*[one["in_true_goal"] for one in found], strict=True)
    means = {name: _mean_of([one[name] for one in found]) for name in found[0] if name != "in_true_goal"}
    return {"in_true_goal": [_mean_of(values) for values in by_step], **means}


def _mean_of(values: Sequence[float | None]) -> float | None:
    """Of those that are there."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _foreseen(table: Table, played: list[Played]) -> dict[str, float] | None:
    """How well the company was foreseen beside an exact filter, as a mean over seeds."""
    known, seat = _known(table.env), table.focal_seats[0]
    each = [figures.model_figures(one.seen, seat, table.scripts, known) for one in played]
    found = [one for one in each if one is not None]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]} if found else None


def _known(env: Environment) -> list[ScriptedPlayer]:
    """The game's shipped players that need no options."""
    made = []
    for name in players_of(env):
        try:
            made.append(make_player(name, env))
        except BadInput:
            continue
    return made
