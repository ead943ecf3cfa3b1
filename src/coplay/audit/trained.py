"""A trained run, played afresh: what its last weights do, foresee and imagine in games nobody learned from.

The run's own experiment with its own networks, in fewer games. Nothing is learned on the way: rates are next
to nothing, so that what is imagined is imagined by the weights that were saved.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from coplay.audit import captured
from coplay.errors import BadInput
from coplay.experiment import (
    Built,
    Experiment,
    algorithms_in_play,
    build,
    job,
    known_player,
    load_params,
    settings_of,
    with_overrides,
)
from coplay.players.catalogue import EVERYWHERE, plain_players
from coplay.players.lineup import Member, seated
from coplay.taps import heard
from coplay.training.job import Job, Stretch
from coplay.training.rollout import start_playing
from coplay.training.run_folder import RunFolder
from coplay.types import Algorithm, Key, PyTree, TimeStep, Trajectory, as_played, stream

# Games and steps, by what is asked about.
SIZES = {"plays": (64, 80), "meets": (64, 80), "plans": (16, 40), "learns": (64, 20)}
WARM_UP = 3  # rounds before the one that is learned from: by then games are at different moments
MOST_SEEDS = 3
STILL = 1e-12  # a rate
AS_SAVED = {
    "epochs": 1,
    "model_epochs": 1,
    "pursuit_epochs": 1,
    "world_steps": 1,
    "learning_rate": STILL,
    "model_learning_rate": STILL,
    "world_learning_rate": STILL,
    "pursuit_learning_rate": STILL,
    "searched_games": 0.0,  # moves are drawn from networks, whose chances are known
    "gates": "off",  # what would be imagined is asked about, whether it was learned from or not
}
UNTRAINED = "how good models become is asked of a trained run"
BY_NETWORK = {"hop": "network", "hop_plus": "policy"}  # how moves are made where nothing is planned


class Trained(NamedTuple):
    """A run at its end."""

    job: Job  # with the line-up that its weights played in
    params: list[PyTree]  # of each seed
    by_network: Algorithm | None = None  # the same players where they plan nothing; asked about plans only


def trained(experiment: Experiment, folder: RunFolder, what: str) -> Trained:
    """The last checkpoint, in games of a size for what is asked: what it "plays", whom it "meets", what it
    "plans" or "learns"."""
    built = build(afresh(experiment, what))
    loaded = load_params(built, folder, best=False)
    seeds = range(min(experiment.seeds, MOST_SEEDS))
    params = [jax.tree.map(lambda x, seed=seed: x[seed], loaded.params) for seed in seeds]
    stretch = loaded.stretch
    if what == "meets":
        stretch, scripts = _among_scripts(built, stretch)
        params = [own | scripts for own in params]
    work = job(built)._replace(stretches=[stretch])
    return Trained(work, params, _by_network(built.experiment, folder) if what == "plans" else None)


def _among_scripts(built: Built, stretch: Stretch) -> tuple[Stretch, PyTree]:
    """The learner in the first of its seats, the game's scripted players in all others; and their weights."""
    names = [name for name in plain_players(built.env) if name not in EVERYWHERE]
    if not names:
        raise BadInput(f"{built.env.name} has no scripted players")
    seat = next(
        seat for seat, name in enumerate(stretch.lineup) if name in algorithms_in_play(built.experiment)
    )
    others = [place for place in range(built.env.num_agents) if place != seat]
    sitting = {place: names[number % len(names)] for number, place in enumerate(others)}
    lineup = tuple(sitting.get(place, stretch.lineup[seat]) for place in range(built.env.num_agents))
    scripts = [
        Member(name, known_player(built.env, name), tuple(p for p in others if sitting[p] == name))
        for name in dict.fromkeys(sitting.values())
    ]
    learners = [member for member in built.members if member.name == stretch.lineup[seat]]
    params = {member.name: member.build(member.seats).init(jax.random.key(0)) for member in scripts}
    return stretch._replace(lineup=lineup, algorithm=seated([*learners, *scripts], lineup)), params


def _by_network(experiment: Experiment, folder: RunFolder) -> Algorithm:
    moves = {
        f"{name}.acts": BY_NETWORK[name] for name in algorithms_in_play(experiment) if name in BY_NETWORK
    }
    return load_params(build(with_overrides(experiment, moves)), folder, best=False).stretch.algorithm


def afresh(experiment: Experiment, what: str) -> Experiment:
    """The same players, in fewer games."""
    length = experiment.rollout.sequence_length
    configs = {name: settings_of(experiment, name) for name in algorithms_in_play(experiment)}
    at_once = math.lcm(*(getattr(config, "minibatches", 1) for config in configs.values()))
    games, steps = SIZES[what]
    games, steps = at_once * -(-games // at_once), length * max(1, steps // length)
    changes: dict[str, Any] = {
        "rollout.num_envs": games,
        "rollout.num_steps": steps,
        "rollout.total_steps": games * steps * -(-experiment.rollout.total_steps // (games * steps)),
        "devices": 1,
        "evaluation.every": 0,
    }
    for name, config in configs.items():
        changes |= {f"{name}.{field}": value for field, value in AS_SAVED.items() if hasattr(config, field)}
        if what != "plans" and name in BY_NETWORK:
            changes[f"{name}.acts"] = BY_NETWORK[name]
    return with_overrides(experiment, changes)


def games_of(run: Trained, key: Key, what: str) -> list[Trajectory]:
    """A round of every seed: as it "plans" when it counts, beside what its networks alone would do; or as it
    plays while it learns, and what it thinks."""
    algorithm, start = run.job.stretches[0].algorithm, _new_games(run)
    by_network = run.by_network if what == "plans" else None
    player = thinking(algorithm) if by_network is None else planning(algorithm, by_network)
    play = captured.quick(captured.collecting(run.job, player))
    keys = jax.random.split(key, len(run.params))
    return [
        play(params, start(stream(own, "start")), stream(own, "play"))[1]
        for params, own in zip(run.params, keys, strict=True)
    ]


def thinking(algorithm: Algorithm) -> Algorithm:
    """The player as it is while it learns, in the company it learns from, with the thoughts it tells when it
    counts."""

    def act(params: PyTree, memory: PyTree, timestep: TimeStep, state: PyTree, key: Key):
        _, told = as_played(algorithm).act(params, memory, timestep, state, key)
        memory, decision = algorithm.act(params, memory, timestep, state, key)
        return memory, dataclasses.replace(decision, thoughts=told.thoughts)

    return algorithm._replace(act=act)


def planning(algorithm: Algorithm, by_network: Algorithm) -> Algorithm:
    """The player as it is when it counts; what it does is planned, and its policy is that of its networks."""

    def act(params: PyTree, memory: PyTree, timestep: TimeStep, state: PyTree, key: Key):
        _, unplanned = as_played(by_network).act(params, memory, timestep, state, key)
        memory, decision = as_played(algorithm).act(params, memory, timestep, state, key)
        return memory, dataclasses.replace(decision, policy=unplanned.policy)

    return algorithm._replace(act=act)


class Update(NamedTuple):
    """A round as it is played while one learns, and what lies in the update after it."""

    trajectory: Trajectory
    taps: dict[str, PyTree]


def updates_of(run: Trained, key: Key) -> list[Update]:
    """One of every seed. Learners are as on the first day; what an update leaves behind is not asked for, so
    that nothing is made of it."""
    algorithm, start = run.job.stretches[0].algorithm, _new_games(run)
    play, learner = captured.collector(run.job, run.job.env), captured.quick(algorithm.learn.init)
    taps = captured.quick(lambda *given: dict(heard(algorithm.learn.update)(*given)[1]))
    found = []
    for params, own in zip(run.params, jax.random.split(key, len(run.params)), strict=True):
        actor, trajectory = start(stream(own, "start")), None
        for round_key in jax.random.split(stream(own, "play"), WARM_UP + 1):
            actor, trajectory, _ = play(params, actor, round_key)
        assert trajectory is not None
        found.append(Update(trajectory, taps(params, learner(params), trajectory, stream(own, "learn"))))
    return found


def _new_games(run: Trained) -> Callable:
    algorithm = run.job.stretches[0].algorithm
    return captured.quick(lambda key: start_playing(run.job.env, algorithm, key, run.job.num_envs))
