"""Is what a run imagines, and what its searches say, of a kind with what follows? By its last weights."""

from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float

from coplay.audit.by_seed import Shown, by_every_seed, by_third, weighed
from coplay.audit.finding import Check, Outcome
from coplay.audit.subject import Budget, Subject
from coplay.audit.trained import Update
from coplay.errors import BadInput
from coplay.experiment import settings_of
from coplay.types import Key, Trajectory

APART = 10  # steps between rows that are taken to be independent
FEWEST = 100  # rows
BINS, SHUFFLED, MOST = 24, 200, 4096
# Of the spread of returns. Who plans earns more than its critic, which learned from who does not, expects.
TOO_MUCH, TOO_LITTLE = 0.2, 0.5
LEAST = 1e-9  # chance that anything is given
GROWS = 0.1  # nats from the first third of training to the last


def imagining(subject: Subject) -> list[Update]:
    """Updates of every seed, if it imagines anything."""
    subject.trained("learns")
    assert subject.experiment is not None
    if not getattr(settings_of(subject.experiment, subject.learner), "imagines", False):
        raise BadInput("nobody imagines anything here")
    return subject.trained_updates()


# --- 7.3 rewards and returns ---------------------------------------------------------------------


class Sources(NamedTuple):
    """The same figure of rows that were played and of rows that were imagined, [time, row]; NaN: no row."""

    real: Float[np.ndarray, "time row"]
    imagined: Float[np.ndarray, "time row"]


def imagined_alike(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is as much imagined to be paid, now and later, as really is?"""
    statistic = "mean of imagined rewards or returns less that of real ones, in deviations of these"
    seeds = [_sources(one) for one in imagining(subject)]
    shifts = [{name: shifted(sources) for name, sources in seed.items()} for seed in seeds]
    worst = [max(seed.values(), key=lambda shown: shown.size) for seed in shifts]
    told = ", ".join(f"{name} {np.median([seed[name].size for seed in shifts]):.3g}" for name in shifts[0])
    return weighed(
        statistic,
        [shown._replace(p=min(1.0, len(shifts[0]) * shown.p)) for shown in worst],
        0.5,
        0.1,
        f"world_pay, opponent_skill; by kind: {told}",
        unit="deviations",
        drawing={"kind": "several", "drawings": [_histograms(name, seeds) for name in seeds[0]]},
    )


def _sources(one: Update) -> dict[str, Sources]:
    made, imagined = one.taps["estimates"], one.taps["imagined"]
    real, counts = np.asarray(made.counts), np.asarray(imagined.counts)
    counts = counts & real[..., None]  # who follows orders does not imagine what it would do if it were free
    returns = made.advantage + made.value, imagined.advantage + imagined.value
    return {
        "rewards": Sources(_rows(made.reward, real), _rows(imagined.reward, counts)),
        "returns": Sources(_rows(returns[0], real), _rows(returns[1], counts)),
    }


def _rows(x: Any, counts: Bool[np.ndarray, "time *rows"]) -> Float[np.ndarray, "time row"]:
    return np.where(counts, np.asarray(x), np.nan).reshape(len(counts), -1)


def shifted(sources: Sources) -> Shown:
    """How far the means are apart, and whether the two are drawn alike (Kolmogorov and Smirnov)."""
    deviation = max(float(np.nanstd(sources.real)), 1e-6)
    real, imagined = (x[::APART][np.isfinite(x[::APART])] for x in sources)
    if min(len(real), len(imagined)) < FEWEST:
        raise BadInput("hardly anything was imagined")
    shift = abs(float(np.nanmean(sources.imagined) - np.nanmean(sources.real)))
    error = float(np.sqrt(real.var() / len(real) + imagined.var() / len(imagined)))
    p = float(np.asarray(scipy.stats.ks_2samp(real, imagined, method="asymp"))[1])
    return Shown(shift / deviation, error / deviation, p)


def _histograms(name: str, seeds: list[dict[str, Sources]]) -> dict[str, Any]:
    values = {
        source: np.concatenate([getattr(seed[name], source).ravel() for seed in seeds])
        for source in Sources._fields
    }
    values = {source: x[np.isfinite(x)] for source, x in values.items()}
    low, high = (float(f([f(x) for x in values.values()])) for f in (np.min, np.max))
    edges = np.linspace(low, max(high, low + 1e-6), BINS + 1)
    groups = [{"name": source, "counts": np.histogram(x, edges)[0].tolist()} for source, x in values.items()]
    return {"kind": "histograms", "title": name, "x_name": name, "edges": edges.tolist(), "groups": groups}


# --- 7.5 what policies read ----------------------------------------------------------------------


def told_apart(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Can one tell from what is read of the others whether a moment is real?"""
    statistic = "share of moments that a linear probe rightly calls real or imagined by their subgoals"
    seeds = [_subgoals(subject, one) for one in imagining(subject)]
    return weighed(
        statistic,
        [probed(*given, seed=number) for number, given in enumerate(seeds)],
        0.9,
        0.7,
        "subgoals of imagined moments (imagined_rows)",
    )


def _subgoals(subject: Subject, one: Update) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Subgoals as policies read them, whether each is imagined, and in which game; as many of either."""
    own = subject.env.observation_size
    real, imagined = one.taps["rows"], one.taps["imagined"]
    if real.policy_input.shape[-1] <= own:
        raise BadInput("policies read nothing of the others here")
    counts = np.asarray(real.policy.counts)
    both = [
        (np.asarray(real.policy_input)[..., None, own:], counts[..., None]),
        (np.asarray(imagined.policy_input)[..., own:], np.asarray(imagined.counts) & counts[..., None]),
    ]
    rows, games = zip(*(_some(x, counted) for x, counted in both), strict=True)
    fewest = min(map(len, rows))
    is_imagined = np.repeat([False, True], fewest)
    return (
        np.concatenate([x[:fewest] for x in rows]),
        is_imagined,
        np.concatenate([g[:fewest] for g in games]),
    )


def _some(x: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that count, up to so many, spread over all of them, and the games they are of."""
    at = np.argwhere(counts)
    if len(at) < FEWEST:
        raise BadInput("hardly anything was imagined")
    at = at[np.random.default_rng(0).permutation(len(at))[:MOST]]
    return x[tuple(at.T)], at[:, 1]


def probed(
    rows: Float[np.ndarray, "row number"],
    is_imagined: Bool[np.ndarray, " row"],
    game: np.ndarray,
    seed: int = 0,
) -> Shown:
    """A linear probe learns from every second game and is asked about the others; p by probes that learn from
    games of which real and imagined rows were exchanged at random, as if what comes of those were normal."""
    label = np.where(is_imagined, 1.0, -1.0)
    spread = rows.std(axis=0)
    inputs = np.concatenate(
        [(rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0), np.ones((len(rows), 1))], 1
    )
    is_exchanged = np.random.default_rng(seed).random((SHUFFLED, int(game.max()) + 1)) < 0.5
    exchanged = np.where(is_exchanged[:, game], -label, label)
    found = _accuracy(inputs, np.concatenate([label[None], exchanged]).T, game % 2 == 0)
    control = found[1:]
    deviation = max(float(control.std()), 1e-3)
    p = float(scipy.stats.norm.sf((found[0] - control.mean()) / deviation))
    return Shown(float(found[0]), deviation, p)


def _accuracy(
    inputs: Float[np.ndarray, "row number"],
    labels: Float[np.ndarray, "row probe"],
    learns: Bool[np.ndarray, " row"],
) -> Float[np.ndarray, " probe"]:
    """On rows that it did not learn from."""
    weights = np.linalg.lstsq(inputs[learns], labels[learns], rcond=None)[0]
    return (((inputs[~learns] @ weights) > 0) == (labels[~learns] > 0)).mean(axis=0)


# --- 6.15 what searches say ----------------------------------------------------------------------


def search_targets(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does what follows bring what a search said it would?"""
    statistic = "mean of what searches expect less what then came, as a share of the spread of what came"
    subject.trained("plans")
    assert subject.experiment is not None
    config = settings_of(subject.experiment, subject.learner)
    if getattr(config, "acts", "") != "search":
        raise BadInput("nobody plans here")
    games = subject.trained_games("plans")
    off, error = (
        np.array(x) for x in zip(*(_off(subject, one, config.discount) for one in games), strict=True)
    )
    beyond = np.maximum(off - TOO_MUCH, -off - TOO_LITTLE)
    apart = [_divergence(subject, one) for one in games]
    thirds = by_third(subject, "search/loss")
    is_growing = np.full(len(games), thirds is not None and grows(thirds))
    look = (
        f"planning; models of co-players (opponent_skill), the critic at leaves; give or take {error[0]:.2g};"
        f" searches diverge from networks by {np.median(apart):.3g} nats" + _told_growth(thirds)
    )
    surely = beyond > 3.0 * error  # a few games tell little
    drawing = _search_drawing(off, apart, thirds)
    return by_every_seed(statistic, off, surely, (beyond > 0) | is_growing, TOO_MUCH, look, drawing=drawing)


def _off(subject: Subject, games: Trajectory, discount: float) -> tuple[float, float]:
    notes = games.steps.decision.notes[subject.learner]
    if "search/q" not in notes:
        raise BadInput("this player does not tell what its searches found")
    seats, steps = subject.seats, games.steps
    action = np.asarray(steps.decision.action)[..., seats]
    expected = np.take_along_axis(np.asarray(notes["search/q"]), action[..., None], axis=-1)[..., 0]
    ends = np.asarray(steps.after.terminated)[..., seats]
    came, is_whole = earned(np.asarray(steps.after.reward)[..., seats], ends, discount)
    return off_by(expected, came, is_whole & np.asarray(steps.before.active)[..., seats])


def earned(
    reward: Float[np.ndarray, "time env seat"], ends: Bool[np.ndarray, "time env seat"], discount: float
) -> tuple[Float[np.ndarray, "time env seat"], Bool[np.ndarray, "time env seat"]]:
    """Discounted sums to the end of each player's game, and whether that was seen."""
    came, is_whole = np.zeros_like(reward), np.zeros_like(ends)
    later, known = np.zeros_like(reward[0]), np.zeros_like(ends[0])
    for time in reversed(range(len(reward))):
        later = reward[time] + discount * np.where(ends[time], 0.0, later)
        known = known | ends[time]
        came[time], is_whole[time] = later, known
    return came, is_whole


def off_by(
    expected: Float[np.ndarray, "time env seat"],
    came: Float[np.ndarray, "time env seat"],
    counts: Bool[np.ndarray, "time env seat"],
) -> tuple[float, float]:
    """By how much more was expected than came, in deviations of what came, and its standard error: games are
    independent, moves in one are not."""
    if counts.sum() < FEWEST:
        raise BadInput("hardly any game ended")
    deviation = max(float(came[counts].std()), 1e-6)
    more = np.where(counts, expected - came, 0.0)
    mean = float(more.sum() / counts.sum())
    by_game = np.where(counts, more - mean, 0.0).sum(axis=(0, 2))
    error = float(np.sqrt((by_game**2).sum()) / counts.sum())
    return mean / deviation, error / deviation


def _divergence(subject: Subject, games: Trajectory) -> float:
    visits = np.asarray(games.steps.decision.notes[subject.learner]["search/visits"])
    policy = np.asarray(games.steps.decision.policy)[:, :, subject.seats]
    return divergence(visits, policy, np.asarray(games.steps.before.active)[:, :, subject.seats])


def divergence(
    visits: Float[np.ndarray, "time env seat action"],
    policy: Float[np.ndarray, "time env seat action"],
    counts: Bool[np.ndarray, "time env seat"],
) -> float:
    """Mean of KL(search, network), in nats: sum_a p(a) log(p(a) / q(a)), p by how often a search visits."""
    p = visits / np.maximum(visits.sum(axis=-1, keepdims=True), LEAST)
    apart = p * (np.log(np.maximum(p, LEAST)) - np.log(np.maximum(policy, LEAST)))
    return float(apart.sum(axis=-1)[counts].mean())


def grows(thirds: Float[np.ndarray, "seed third"]) -> bool:
    """In every seed from third to third, and by more than a margin in all."""
    return bool((np.diff(thirds, axis=1) > 0).all() and (thirds[:, 2] - thirds[:, 0] > GROWS).all())


def _told_growth(thirds: Float[np.ndarray, "seed third"] | None) -> str:
    """Divergence itself is not logged while a run learns; their cross-entropy is, which is never below it."""
    if thirds is None:
        return " (of the last weights: whether it grows is not logged)"
    first, middle, last = np.median(thirds, axis=0)
    what = "grows" if grows(thirds) else "does not grow"
    return f"; their cross-entropy {what} by thirds of training: {first:.3g}, {middle:.3g}, {last:.3g}"


def _search_drawing(
    off: Float[np.ndarray, " seed"], apart: list[float], thirds: Float[np.ndarray, "seed third"] | None
) -> dict[str, Any]:
    seeds = [f"seed {number}" for number in range(len(off))]
    figures = {
        "kind": "table",
        "title": "what searches expect, and how far they are from networks",
        "rows": seeds,
        "columns": ["too much, in deviations", "KL of search from network, in nats"],
        "values": np.stack([off, apart], axis=1).round(4).tolist(),
    }
    by_training = (
        []
        if thirds is None
        else [
            {
                "kind": "table",
                "title": "cross-entropy of searches and networks by thirds of training, in nats",
                "rows": [f"seed {number}" for number in range(len(thirds))],
                "columns": ["first", "middle", "last"],
                "values": thirds.round(4).tolist(),
            }
        ]
    )
    return {"kind": "several", "drawings": [figures, *by_training]}


SEARCHES = (
    Check(
        "search_targets",
        "models",
        "Does what follows bring what searches say?",
        "judgement",
        "planning",
        search_targets,
        ("search", "tree_company"),
    ),
)
IMAGINED = (
    Check(
        "imagined_alike",
        "value",
        "Is as much imagined to be paid as is?",
        "test",
        "nets",
        imagined_alike,
        ("world_pay", "imagined_range", "imagined_ends"),
    ),
    Check(
        "told_apart",
        "value",
        "Are real and imagined moments read alike?",
        "test",
        "algorithms",
        told_apart,
        ("imagined_rows",),
    ),
)
