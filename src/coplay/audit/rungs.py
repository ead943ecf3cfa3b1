"""A learner taken apart: the rungs of its ladder, each the experiment with one part more."""

import dataclasses
from collections.abc import Callable
from typing import Any

from coplay import experiment as experiments
from coplay.algorithms.own import is_own
from coplay.errors import BadInput
from coplay.experiment import Built, Experiment


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
    """A rung of some algorithm: the same with these settings, or another algorithm in its place with them."""

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
NOT_HELD = {"align_weight": 0.0}

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
        dataclasses.replace(OWN_ROWS, without=NOT_HELD),
        Step("mappo", "a critic that sees everyone's rows", NOT_HELD, plays="mappo"),
        Step("full", "weights that a generator moves, and what keeps them gentle"),
    ),
}
ONE_RUNG = Step("full", "the experiment as it is")


def rungs(experiment: Experiment) -> list[Rung]:
    """From the barest to the full learner, then the first and the last with weights shared the other way."""
    built, learners = experiments.build(experiment), experiments.algorithms_in_play(experiment)
    if not learners:
        raise BadInput("nobody learns in this experiment: there is no ladder to climb")
    if len(learners) > 1 or is_own(learners[0]):
        return [Rung(ONE_RUNG.name, ONE_RUNG.adds, experiment)]
    (own,) = learners
    steps = [step for step in LADDERS.get(own, (ONE_RUNG,)) if not _is_pointless(step, experiment)]
    found = [_rung(step.name, step.adds, lambda s=step: _at(experiment, own, s)) for step in steps]
    ladder, num_seats = _without_repeats(found), len(seats_of(built, own))
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
    changes = {f"{own}.{name}": value for name, value in step.without.items()}
    changed = experiments.with_overrides(experiment, changes)
    return _played_by(changed, own, step.plays) if step.plays else changed


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
    return experiments.settings_of(experiment, experiments.algorithms_in_play(experiment)[0])


def seats_of(built: Built, learner: str) -> list[int]:
    """Where it sits at the end."""
    return [seat for seat, name in enumerate(built.stretches[-1].lineup) if name == learner]
