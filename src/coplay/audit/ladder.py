"""At which rung does a symptom start? A learner's parts added one by one, over the same seeds.

`rungs` takes an experiment apart, `climb` trains what is left of it at every rung, `first_rung` says where a
symptom appears first, and `sharing` what becomes of an order of seats once all have the same weights. It
tells where to look and raises no alarm: eight pairs of seeds cannot show a p below 0.008.
"""

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

from coplay import experiment as experiments
from coplay import runs
from coplay.audit.finding import Check, Outcome, not_run
from coplay.audit.phenomenon import FEWEST_SEEDS, LAST, MARGIN, at_end
from coplay.audit.small_scale import at_small_scale
from coplay.audit.subject import Budget, Subject
from coplay.errors import BadInput
from coplay.evaluation.compare import curve
from coplay.evaluation.statistics import bootstrap_interval, iqm, pages_l
from coplay.experiment import Built, Experiment
from coplay.training import checkpoint
from coplay.training.devices import forget_programs
from coplay.training.run_folder import RunFolder
from coplay.types import Environment, Key

# --- the rungs -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Rung:
    name: str
    adds: str  # in words, to the rung below
    experiment: Experiment | None  # None where its settings are refused
    refused: str = ""  # why
    twin_of: str = ""  # the rung that this one is but for whose weights are whose
    parameters: str = ""  # whose they are


@dataclasses.dataclass(frozen=True)
class Step:
    """A rung of some algorithm: the same with these settings, or another algorithm in its place."""

    name: str
    adds: str
    without: dict[str, Any] = dataclasses.field(default_factory=dict)
    plays: str = ""
    unless: dict[str, Any] = dataclasses.field(default_factory=dict)  # it adds nothing where these are set


NO_ORDERS = {"ordered_games": 0.0}
NO_MODELS = {"subgoals": "none", "prior": "", "models_from": "", "between": "none", "goal_gate": "none"}
NOT_READ = {"policy_reads": False, "reads": "subgoals"}
NO_WORLD = {"world": "none", "world_from": ""}
NOT_IMAGINED = {"real_share": 1.0, "acts": "policy"}
EVEN_BELIEFS = {"within": "none", "between": "none"}
NO_SEARCH = {"searched_games": 0.0, "acts": "network"}

OWN_ROWS = Step("ppo", "a critic that sees its own row, with the settings of the full one", plays="ppo")
LADDERS = {
    "hop_plus": (
        Step("ppo", "no part but PPO", NO_ORDERS | NO_MODELS | NOT_READ | NO_WORLD | NOT_IMAGINED),
        Step(
            "company",
            "seats that follow orders in some games",
            NO_MODELS | NOT_READ | NO_WORLD | NOT_IMAGINED,
        ),
        Step("opponents", "models of co-players that nobody asks", NOT_READ | NO_WORLD | NOT_IMAGINED),
        Step(
            "subgoals",
            "a policy and a critic that read subgoals",
            NO_WORLD | NOT_IMAGINED,
            unless={"subgoals": "none"},
        ),
        Step("world", "a model of the game that nobody asks", NOT_IMAGINED),
        Step("full", "learning from what is imagined, and plans where they are made"),
    ),
    "hop": (
        Step("ppo", "PPO with the settings of the full one", plays="ppo"),
        Step("opponents", "orders, and models of co-players; beliefs stay even", EVEN_BELIEFS | NO_SEARCH),
        Step("beliefs", "beliefs about what the others want", NO_SEARCH),
        Step("full", "search"),
    ),
    "mappo": (OWN_ROWS, Step("full", "a critic that sees everyone's rows")),
    "happo": (
        OWN_ROWS,
        Step("mappo", "a critic that sees everyone's rows", plays="mappo"),
        Step("full", "updates in turns"),
    ),
    "hyper_mappo": (
        OWN_ROWS,
        Step("mappo", "a critic that sees everyone's rows", plays="mappo"),
        Step("full", "weights that a generator moves"),
    ),
}
ONE_RUNG = Step("full", "the experiment as it is")


def rungs(experiment: Experiment) -> list[Rung]:
    """From the barest to the full learner, then the first and the last with weights shared the other way."""
    built, learners = experiments.build(experiment), experiments.algorithms_in_play(experiment)
    if not learners:
        raise BadInput("nobody learns in this experiment: there is no ladder to climb")
    if len(learners) > 1:
        return [Rung(ONE_RUNG.name, ONE_RUNG.adds, experiment)]
    (own,) = learners
    steps = [step for step in LADDERS.get(own, (ONE_RUNG,)) if not _is_pointless(step, experiment)]
    found = [_rung(step.name, step.adds, lambda s=step: _at(experiment, own, s)) for step in steps]
    ladder, num_seats = _without_repeats(found), len(_seats_of(built, own))
    return [*ladder, *(_twin(rung, num_seats) for rung in [*ladder[:1], *ladder[1:][-1:]])]


def _rung(name: str, adds: str, make: Callable[[], Experiment], twin_of: str = "") -> Rung:
    """With the reason in place of settings that nothing can be built of."""
    try:
        made = make()
        experiments.build(made)
    except (BadInput, ValueError) as refused:
        return Rung(name, adds, None, str(refused), twin_of)
    return Rung(name, adds, made, "", twin_of, _config(made).parameters)


def _is_pointless(step: Step, experiment: Experiment) -> bool:
    return any(getattr(_config(experiment), name) == value for name, value in step.unless.items())


def _at(experiment: Experiment, own: str, step: Step) -> Experiment:
    if step.plays:
        return _played_by(experiment, own, step.plays)
    changes = {f"{own}.{name}": value for name, value in step.without.items()}
    return experiments.with_overrides(experiment, changes)


def _played_by(experiment: Experiment, own: str, other: str) -> Experiment:
    """Another algorithm in its place, which takes over every setting that both have."""
    ours, theirs = getattr(experiment, own), getattr(experiment, other)
    known = {field.name for field in dataclasses.fields(theirs)}
    both = {f.name: getattr(ours, f.name) for f in dataclasses.fields(ours) if f.name in known}

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(other if name == own else name for name in names)

    return dataclasses.replace(
        experiment,
        algorithm=other,
        lineup=renamed(experiment.lineup),
        schedule=tuple(dataclasses.replace(p, lineup=renamed(p.lineup)) for p in experiment.schedule),
        **{other: dataclasses.replace(theirs, **both)},
    )


def _without_repeats(ladder: list[Rung]) -> list[Rung]:
    """Without rungs that add nothing here; the last one says what the earliest of its equals adds."""
    *lower, full = ladder
    kept: list[Rung] = []
    for rung in lower:
        if rung.experiment == full.experiment:
            return [*kept, dataclasses.replace(full, adds=rung.adds)]
        if rung.experiment is None or all(rung.experiment != other.experiment for other in kept):
            kept.append(rung)
    return [*kept, full]


def _twin(rung: Rung, num_seats: int) -> Rung:
    """The same with shared weights in place of one's own, or the other way round."""
    other = "shared" if rung.parameters == "per_agent" else "per_agent"
    name, adds = f"{rung.name}_{other}", f"as {rung.name}, parameters={other}"
    given = rung.experiment
    if given is None or num_seats < 2:
        return Rung(name, adds, None, rung.refused or "one seat learns: nobody shares its weights", rung.name)
    (learner,) = experiments.algorithms_in_play(given)
    change = {f"{learner}.parameters": other}
    return _rung(name, adds, lambda: experiments.with_overrides(given, change), rung.name)


def _config(experiment: Experiment) -> Any:
    return getattr(experiment, experiments.algorithms_in_play(experiment)[0])


def _seats_of(built: Built, learner: str) -> list[int]:
    """Where it sits at the end."""
    return [seat for seat, name in enumerate(built.stretches[-1].lineup) if name == learner]


# --- training them -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Climbed:
    """A trained rung: figures of every seed over the last fifth of training, those that it has."""

    rung: Rung
    returns: Float[np.ndarray, "seed seat"]  # of seats that learn
    to_earn: float  # beyond random play
    per_seed: dict[str, Float[np.ndarray, " seed"]]
    seconds: float = 0.0

    @property
    def seeds(self) -> int:
        return len(self.returns)


def climb(
    ladder: list[Rung],
    seeds: int,
    steps: int | None,
    folder: Path,
    watcher: runs.Watcher | None = None,
    tell: Callable[[str], None] = lambda says: None,
) -> list[Climbed]:
    """Every rung trained over the same seeds, or read where that was done before; `steps` None: as many as
    the experiment says. Fewer rungs if the watcher wants to stop."""
    climbed = []
    for number, rung in enumerate(ladder, start=1):
        tell(f"{number} of {len(ladder)}: {rung.name} ({rung.refused or rung.adds})")
        if rung.experiment is None:
            continue
        began = time.perf_counter()
        run = _trained(_sized(rung.experiment, seeds, steps), folder / rung.name, watcher or runs.Watcher())
        if run is None:
            break
        climbed.append(dataclasses.replace(read(rung, run), seconds=time.perf_counter() - began))
    return climbed


def _sized(experiment: Experiment, seeds: int, steps: int | None) -> Experiment:
    changes = {"seeds": seeds, "evaluation.every": 0, "saving.tensorboard": False}
    changes |= {} if steps is None else {"steps": steps}
    return runs.resolve(experiments.with_overrides(experiment, changes))


def _trained(given: Experiment, path: Path, watcher: runs.Watcher) -> RunFolder | None:
    """The run's folder, finished: as found, gone on with or made; None if it was stopped."""
    if not path.exists():
        run = runs.train(given, path, watcher, pages=False)
    else:
        folder = RunFolder.open(path)
        if experiments.read_run(folder) != given:
            raise BadInput(f"{path} was trained with other settings; take another --out, or remove it")
        if not checkpoint.steps(folder.checkpoints):
            raise BadInput(f"{path} was stopped before it had saved anything; remove it and repeat this")
        if checkpoint.newest_meta(folder.checkpoints)["updates"] >= given.rollout.num_updates:
            return folder
        run = runs.resume(path, watcher=watcher, pages=False)
    forget_programs()
    return None if run.finished is None or run.finished.stopped else run.folder


def read(rung: Rung, run: RunFolder) -> Climbed:
    """The figures of a finished run; what it does not tell for every seed is left out."""
    assert rung.experiment is not None
    built = experiments.build(rung.experiment)
    learners = experiments.algorithms_in_play(rung.experiment)
    seats = [seat for learner in learners for seat in _seats_of(built, learner)]
    known = set(run.read_metrics()["metric"].unique().to_pylist())
    if "return" not in known:
        raise BadInput(f"{run.path}: no episode ended while it was trained; take more --steps")
    returns = at_end(run)[:, seats]
    to_earn = _to_earn(built.env, returns)
    per_seed = {"return": returns.mean(axis=1)}
    if len(set(built.env.alike)) <= 1 and len(set(built.stretches[-1].lineup)) == 1 and len(seats) > 1:
        per_seed["seat_order"] = rises(returns) / to_earn
    for name in ("loss", "explained_variance"):
        if f"value/{name}" in known:
            per_seed[f"value_{name}"] = _late(run, f"value/{name}")
    surprises = [f"opponents/{name}surprise" for name in ("even_", "", "true_")]
    if known.issuperset(surprises):
        per_seed["opponent_skill"] = skill(*(_late(run, name) for name in surprises))
    whole = {name: values for name, values in per_seed.items() if np.isfinite(values).all()}
    return Climbed(rung, returns, to_earn, whole)


def _to_earn(env: Environment, returns: Float[np.ndarray, "seed seat"]) -> float:
    """From random play to the ceiling; the largest return seen, where the game does not say."""
    if env.ceiling is not None and env.random_return is not None:
        return float(env.ceiling - env.random_return)
    return max(float(np.abs(returns).max()), 1e-9)


def rises(returns: Float[np.ndarray, "seed seat"]) -> Float[np.ndarray, " seed"]:
    """How much more the last seat earns than the first, along the straight line nearest to all of them."""
    place = np.arange(returns.shape[1]) - (returns.shape[1] - 1) / 2
    return returns @ place / (place @ place) * (returns.shape[1] - 1)


def skill(
    even: Float[np.ndarray, " seed"], own: Float[np.ndarray, " seed"], true: Float[np.ndarray, " seed"]
) -> Float[np.ndarray, " seed"]:
    """Of what there is to foresee beyond an even guess, the share that is foreseen; NaN where that is less
    than a hundredth of a nat."""
    there = even - true
    return np.where(there > 0.01, (even - own) / np.where(there > 0.01, there, 1.0), np.nan)


def _late(run: RunFolder, metric: str) -> Float[np.ndarray, " seed"]:
    steps, values = curve(run, metric)
    late = values[:, steps >= steps.min() + (1.0 - LAST) * (steps.max() - steps.min())]
    return np.ma.masked_invalid(late).mean(axis=1).filled(np.nan)


# --- symptoms ------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A figure with its interval (95%), and whether the symptom is there; None: too few seeds to say."""

    value: float
    low: float
    high: float
    is_there: bool | None = None
    p: float | None = None


class Symptom(NamedTuple):
    says: str
    figure: str  # per seed
    measure: Callable[[Climbed, Climbed], Measured]  # of a rung and the first one
    is_ratio: bool = False  # compared by division


def spread(values: Float[np.ndarray, " seed"]) -> Measured:
    """The mean over seeds with Student's interval, which stays honest where seeds are few."""
    mean, number = float(np.mean(values)), len(values)
    if number < 2:
        return Measured(mean, np.nan, np.nan)
    error = float(np.std(values, ddof=1)) / math.sqrt(number)
    width = float(scipy.stats.t.ppf(0.975, number - 1)) * error
    return Measured(mean, mean - width, mean + width)


def _order(rung: Climbed, first: Climbed) -> Measured:
    found, p = spread(rung.per_seed["seat_order"]), pages_l(rung.returns).p
    return found._replace(is_there=p < 0.01 and abs(found.value) > MARGIN, p=p)


def _return(rung: Climbed, first: Climbed) -> Measured:
    """Its level; the symptom is a loss against the first rung."""
    values = rung.per_seed["return"]
    lost = spread(values - first.per_seed["return"])
    is_there = lost.high < 0 and lost.value < -MARGIN * rung.to_earn
    return Measured(iqm(values), *bootstrap_interval(values, iqm), is_there)


def _value_loss(rung: Climbed, first: Climbed) -> Measured:
    """By what the first rung's is multiplied."""
    ratio = compared(rung, first, "value_loss")
    return ratio._replace(is_there=ratio.low > 1 and ratio.value > 1.5)


def _explained(rung: Climbed, first: Climbed) -> Measured:
    found = spread(rung.per_seed["value_explained_variance"])
    return found._replace(is_there=found.high < 0)


def _skill(rung: Climbed, first: Climbed) -> Measured:
    found = spread(rung.per_seed["opponent_skill"])
    return found._replace(is_there=found.high < 0.3)


SYMPTOMS = {
    "seat_order": Symptom("seats are ranked by their numbers", "seat_order", _order),
    "return": Symptom("less is earned than on the first rung", "return", _return),
    "value_loss": Symptom("the critic errs more than on the first rung", "value_loss", _value_loss, True),
    "explained_variance": Symptom(
        "the critic explains less than nothing", "value_explained_variance", _explained
    ),
    "opponent_skill": Symptom("co-players are hardly foreseen", "opponent_skill", _skill),
}


def measured(rung: Climbed, first: Climbed, symptom: str) -> Measured | None:
    """None where the rung does not tell. Few seeds give figures and no judgement."""
    figure = SYMPTOMS[symptom].figure
    if figure not in rung.per_seed or (symptom != "opponent_skill" and figure not in first.per_seed):
        return None
    found = SYMPTOMS[symptom].measure(rung, first)
    return found if rung.seeds >= FEWEST_SEEDS else found._replace(is_there=None)


def compared(rung: Climbed, other: Climbed, symptom: str) -> Measured:
    """The difference of two rungs, or their ratio, seed by seed."""
    figure, is_ratio = SYMPTOMS[symptom].figure, SYMPTOMS[symptom].is_ratio
    ours, theirs = rung.per_seed[figure], other.per_seed[figure]
    if not is_ratio:
        return spread(ours - theirs)
    found = spread(np.log(ours) - np.log(theirs))
    return Measured(math.exp(found.value), math.exp(found.low), math.exp(found.high))


class First(NamedTuple):
    """Where a symptom appears first, and how far that rung is from the one below."""

    symptom: str
    rung: str | None
    below: str | None
    difference: Measured | None
    says: str


def first_rung(climbed: list[Climbed], symptom: str) -> First:
    ladder = _proper(climbed)
    found = [(place, measured(rung, ladder[0], symptom)) for place, rung in enumerate(ladder)]
    told = [(place, figure) for place, figure in found if figure is not None]
    if not told:
        return First(symptom, None, None, None, "no rung tells")
    if any(figure.is_there is None for _, figure in told):
        return First(symptom, None, None, None, _too_few(ladder[0].seeds))
    there = [place for place, figure in told if figure.is_there]
    if not there:
        return First(symptom, None, None, None, "on no rung")
    place, name = there[0], ladder[there[0]].rung.name
    if place == told[0][0]:
        why = "the first rung: no part brings it" if place == 0 else "the first rung that tells"
        return First(symptom, name, None, None, f"first at {name}, {why}")
    below = ladder[place - 1]
    if SYMPTOMS[symptom].figure not in below.per_seed:
        return First(symptom, name, None, None, f"first at {name}; {below.rung.name} does not tell")
    difference = compared(ladder[place], below, symptom)
    return First(symptom, name, below.rung.name, difference, _beside(name, below, difference, symptom))


def _proper(climbed: list[Climbed]) -> list[Climbed]:
    """Without twins, unless there is nothing else."""
    return [rung for rung in climbed if not rung.rung.twin_of] or climbed


def _too_few(seeds: int) -> str:
    return f"not enough seeds: {seeds}, and it takes {FEWEST_SEEDS} to judge"


def _beside(name: str, below: Climbed, difference: Measured, symptom: str) -> str:
    what = "times" if SYMPTOMS[symptom].is_ratio else "more than"
    interval = f"{difference.value:.3g} {what} {below.rung.name}'s"
    interval += f" (95% {difference.low:.3g} to {difference.high:.3g})"
    doubt = "" if _is_told(difference, symptom) else "; these two rungs cannot be told apart"
    return f"first at {name}: {interval}{doubt}"


def _is_told(difference: Measured, symptom: str) -> bool:
    same = 1.0 if SYMPTOMS[symptom].is_ratio else 0.0
    return difference.low > same or difference.high < same


class Shared(NamedTuple):
    """An order of seats with weights of one's own against shared ones."""

    rung: str
    difference: Measured | None  # of the order: shared less independent
    says: str


def sharing(climbed: list[Climbed]) -> list[Shared]:
    """For every rung that was climbed both ways."""
    by_name = {rung.rung.name: rung for rung in climbed}
    pairs = [(by_name[twin.rung.twin_of], twin) for twin in climbed if twin.rung.twin_of in by_name]
    return [_shared(rung, twin) for rung, twin in pairs]


def _shared(rung: Climbed, twin: Climbed) -> Shared:
    independent, shared = sorted((rung, twin), key=lambda one: one.rung.parameters != "per_agent")
    name = rung.rung.name
    alone, together = (measured(one, one, "seat_order") for one in (independent, shared))
    if alone is None or together is None:
        return Shared(name, None, "seats cannot be compared")
    difference = compared(shared, independent, "seat_order")
    if alone.is_there is None or together.is_there is None:
        return Shared(name, difference, _too_few(rung.seeds))
    return Shared(name, difference, _order_says(alone, together, difference))


def _order_says(alone: Measured, together: Measured, difference: Measured) -> str:
    if together.is_there:
        stays = "stays under shared weights" if alone.is_there else "is there under shared weights only"
        return f"the order of seats {stays}: look at envs and book-keeping"
    if not alone.is_there:
        return "no order of seats, shared or not"
    if not _is_told(difference, "seat_order"):
        return "an order of seats with weights of one's own; too few seeds to say that sharing ends it"
    return "the order of seats goes with sharing: look at data and keys per seat"


# --- as numbers, and as a check --------------------------------------------------------------------


def as_numbers(ladder: list[Rung], climbed: list[Climbed]) -> dict[str, Any]:
    """Plain numbers: every rung with its symptoms, where each appears first, and shared against own."""
    done = {rung.rung.name: rung for rung in climbed}
    return {
        "rungs": [_one(rung, done.get(rung.name), climbed) for rung in ladder],
        "first": [_plain(first_rung(climbed, name)) for name in SYMPTOMS] if climbed else [],
        "sharing": [_plain(found) for found in sharing(climbed)],
    }


def _one(rung: Rung, done: Climbed | None, climbed: list[Climbed]) -> dict[str, Any]:
    told: dict[str, Any] = {"name": rung.name, "adds": rung.adds, "twin_of": rung.twin_of}
    if done is None:
        return told | {"not_run": rung.refused or "there was no time"}
    figures = {name: measured(done, _proper(climbed)[0], name) for name in SYMPTOMS}
    return told | {
        "not_run": "",
        "parameters": rung.parameters,
        "seeds": done.seeds,
        "by_seat": _plain(done.returns.mean(axis=0).tolist()),
        "seconds": round(done.seconds, 1),
        "symptoms": {name: _plain(figure) for name, figure in figures.items() if figure is not None},
    }


def _plain(value: Any) -> Any:
    """Named tuples as tables; numbers that are not finite as None."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}  # pyright: ignore
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


UPDATES = 64
ENOUGH_SECONDS = 240.0


def ladder(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """At a small scale: which part brings which symptom? Told, not judged."""
    statistic = f"symptoms by rung, {budget.seeds} seeds and {UPDATES} updates each"
    if subject.experiment is None or not experiments.algorithms_in_play(subject.experiment):
        return not_run(statistic, "nobody learns here")
    if not budget.is_full and _seconds_left(budget) < ENOUGH_SECONDS:
        return not_run(statistic, "the ladder is climbed by `coplay ablate`, or with --full")
    small = at_small_scale(subject.experiment, gates_open=False)
    steps = UPDATES * small.rollout.steps_per_update
    bare = {"saving.every": UPDATES, "evaluation.every": 0}  # curves are enough
    all_rungs = rungs(experiments.with_overrides(small, bare))
    if sum(rung.experiment is not None for rung in all_rungs) < 2:
        return not_run(statistic, "there is one rung: nothing to compare it with")
    done = _climbed_in_time(all_rungs, steps, budget)
    if len(done) < 2:
        return not_run(statistic, "fewer than two rungs were finished in time")
    return _told(statistic, as_numbers(all_rungs, done), budget.seeds)


def _climbed_in_time(all_rungs: list[Rung], steps: int, budget: Budget) -> list[Climbed]:
    """The two ends, and of the others as many as there is time for, if they take as long as the longest."""
    done: list[Climbed] = []
    with tempfile.TemporaryDirectory() as folder:
        for rung in _ends_first(all_rungs):
            longest = max((one.seconds for one in done), default=0.0)
            if len(done) >= 2 and not budget.is_full and _seconds_left(budget) < longest:
                break
            done += climb([rung], budget.seeds, steps, Path(folder), _Until(budget))
    names = [rung.name for rung in all_rungs]
    return sorted(done, key=lambda one: names.index(one.rung.name))


def _told(statistic: str, told: dict[str, Any], seeds: int) -> Outcome:
    climbed = [rung for rung in told["rungs"] if not rung["not_run"]]
    found = [f"{SYMPTOMS[one['symptom']].says}: {one['says']}" for one in told["first"] if one["rung"]]
    found += [f"{one['rung']}: {one['says']}" for one in told["sharing"]]
    return Outcome(
        statistic,
        figure=float(len(climbed)),
        verdict="pass",
        next="; ".join(found),
        unit="rungs",
        n=seeds,
        drawing={
            "kind": "ladder",
            "title": "symptoms by rung",
            "rungs": told["rungs"],
            "first": {one["symptom"]: one["rung"] for one in told["first"] if one["rung"]},
            "sharing": told["sharing"],
        },
    )


def _ends_first(all_rungs: list[Rung]) -> list[Rung]:
    """So that the two ends are there if time is short."""
    lower = [rung for rung in all_rungs if not rung.twin_of]
    ends = [*lower[:1], *lower[1:][-1:]]
    return [*ends, *(rung for rung in all_rungs if rung.twin_of), *lower[1:-1]]


def _seconds_left(budget: Budget) -> float:
    return budget.seconds - (time.monotonic() - budget.began)


class _Until(runs.Watcher):
    """Wants to stop once the time is over, unless there is no hurry."""

    def __init__(self, budget: Budget):
        self.budget = budget

    def wants_stop(self) -> bool:
        return self.budget.is_spent and not self.budget.is_full


LADDER = (Check("ladder", "ladder", "At which rung does it start?", "judgement", "", ladder),)
