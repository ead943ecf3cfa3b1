"""Who meets whom: a run's players in some seats of a game, a company in the others, and both at play."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from coplay import experiment as experiments
from coplay.errors import BadInput
from coplay.evaluation.adaptation import Learning, Meeting, Played, Protocol, play
from coplay.experiment import Built
from coplay.players.catalogue import make_player
from coplay.players.lineup import Member, part_of, seated
from coplay.players.scripted import ScriptedPlayer, scripted
from coplay.training.devices import in_parts
from coplay.training.run_folder import RunFolder
from coplay.types import Algorithm, Environment, PyTree, stream

PARTS = 2  # the games are played in as many parts, each on a device if there are enough

Say = Callable[[str], None]  # told what is being done


class Focal(NamedTuple):
    """A run whose players are looked at, with the weights of every seed asked for."""

    name: str
    built: Built
    algorithm: Callable[[tuple[int, ...]], Algorithm]  # seats -> its players there
    params: list[PyTree]  # one for each seed
    can_be_told: bool


def open_focal(name: str, overrides: Mapping[str, Any]) -> Focal:
    reference = experiments.parse_run(name)
    folder = RunFolder.open(reference.path)
    built = experiments.build(experiments.with_overrides(experiments.read_run(folder), overrides))
    loaded = experiments.load_params(built, folder, reference.best)
    seeds = range(built.experiment.seeds)
    if ":" in name.partition("@")[2]:
        if reference.seed not in seeds:
            raise BadInput(f"{name}: the run has seeds 0 to {built.experiment.seeds - 1}")
        seeds = [reference.seed]

    def algorithm(seats: tuple[int, ...]) -> Algorithm:
        return part_of(built.members, loaded.stretch.lineup, seats)

    params = [jax.tree.map(lambda x, s=s: x[s], loaded.params) for s in seeds]
    members = {member.name: member for member in built.members}
    can_be_told = any(members[n].build(members[n].seats).told for n in set(loaded.stretch.lineup))
    return Focal(name, built, algorithm, params, can_be_told)


class Table(NamedTuple):
    """A company and where it sits; the other seats are the focal players'."""

    env: Environment
    names: tuple[str, ...]
    seats: tuple[int, ...]  # of the names, in their order
    scripts: dict[int, ScriptedPlayer]  # by seat
    company: Algorithm
    learning: Learning | None = None  # who goes on learning

    @property
    def focal_seats(self) -> tuple[int, ...]:
        return tuple(seat for seat in range(self.env.num_agents) if seat not in self.seats)

    def with_focal(self, algorithm: Algorithm) -> Meeting:
        return Meeting(self.env, algorithm, self.company, self.focal_seats, self.scripts, self.learning)


def sit_down(
    env: Environment, names: Sequence[str], seat: int, rounds: Mapping[str, Any] | None = None
) -> Table:
    """Focal players from `seat` on, as many as there are seats left; then the company, in its order.

    Runs in the company learn nothing more, or go on learning in `rounds` of these settings.
    """
    most = env.num_agents - 1
    if not 1 <= len(names) <= most:
        raise BadInput(
            f"{env.name} here has {env.num_agents} seats: name 1 to {most} others, not {len(names)}"
        )
    if not 0 <= seat <= most:
        raise BadInput(f"seat {seat} must lie between 0 and {most}")
    first = seat + env.num_agents - len(names)
    seats = tuple((first + place) % env.num_agents for place in range(len(names)))
    lineup = [""] * env.num_agents
    for name, place in zip(names, seats, strict=True):
        lineup[place] = name
    players = {name: make_player(name, env) for name in names if not experiments.is_run(name)}
    members = [
        Member(name, _builder(env, name, players, rounds), _places(lineup, name))
        for name in dict.fromkeys(names)
    ]
    scripts = {place: players[name] for name, place in zip(names, seats, strict=True) if name in players}
    return Table(env, tuple(names), seats, scripts, seated(members, tuple(lineup)))


def _builder(
    env: Environment, name: str, players: Mapping[str, ScriptedPlayer], rounds: Mapping[str, Any] | None
):
    if name in players:
        return functools.partial(scripted, players[name], env)
    if rounds is None:
        return experiments.known_player(env, name)
    return experiments.learning_run(name, env, rounds)


def _places(lineup: list[str], name: str) -> tuple[int, ...]:
    return tuple(seat for seat, sitting in enumerate(lineup) if sitting == name)


# --- playing -------------------------------------------------------------------------------------


def met(focal: Focal, table: Table, protocol: Protocol, seed: int, is_told: bool, say: Say) -> list[Played]:
    """What happened, for every seed's weights; the same boards for all of them."""
    meeting = table.with_focal(focal.algorithm(table.focal_seats))
    played = []
    run = player_at(meeting, protocol, is_told)
    for number, params in enumerate(focal.params):
        told = ", told what everyone is after" if is_told else ""
        say(f"{focal.name} with {', '.join(table.names)}{told}: seed {number + 1} of {len(focal.params)}")
        played.append(run(params, seed))
    return played


def player_at(meeting: Meeting, protocol: Protocol, is_told: bool = False):
    """A function (focal weights, seed) -> Played, compiled once for all weights."""
    parts = 1 if meeting.learning else PARTS  # whoever learns, learns from all games
    part = dataclasses.replace(protocol, games=max(1, protocol.games // parts))
    company = meeting.company.init(jax.random.key(0))
    compiled = in_parts(
        lambda focal, key: play(meeting, part, {"focal": focal, "company": company}, key, is_told)
    )

    def run(focal: PyTree, seed: int) -> Played:
        keys = jax.random.split(stream(jax.random.key(seed), "adapt"), parts)
        return _joined(jax.device_get(compiled(focal, keys)), part.kept_games)

    return run


def _joined(played: Played, kept: int) -> Played:
    """[part, step, game, ...] as [step, game, ...]: first the games of every part that went on."""

    def join(x):
        whole = np.moveaxis(x, 0, 1)  # [step, part, game, ...]
        parts = range(whole.shape[1])
        return np.concatenate(
            [whole[:, part, games] for games in (slice(kept), slice(kept, None)) for part in parts], axis=1
        )

    return jax.tree.map(join, played)
