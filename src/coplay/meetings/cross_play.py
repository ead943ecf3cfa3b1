"""Cross-play: every player in a seat among copies of every other one."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from coplay import experiment as experiments
from coplay.errors import BadInput
from coplay.evaluation.self_play import play_episodes
from coplay.evaluation.statistics import bootstrap_interval
from coplay.meetings.tables import Say, open_focal
from coplay.players.lineup import Member, seated
from coplay.types import Environment, stream


@dataclasses.dataclass(frozen=True)
class Cell:
    """One player among copies of another (or of itself, in every seat)."""

    player: str
    company: str
    own_return: float  # of the player, mean over the seats it took
    interval: tuple[float, float]  # 95%, over episodes
    per_seat: list[float]
    company_return: float  # mean of the others


@dataclasses.dataclass(frozen=True)
class CrossPlay:
    """The fields are those of `cross-play --json`."""

    players: list[str]
    cells: list[Cell]  # row by row: who plays, then among whom
    seats: list[int]
    episodes: int


def cross_play(
    names: Sequence[str], seats: Sequence[int] | None, episodes: int, seed: int, say: Say
) -> CrossPlay:
    """Every one of `names` (the first is a run, which decides the game) among copies of every one."""
    if len(set(names)) < max(2, len(names)):
        raise BadInput("cross-play takes two players or more, all different")
    env = open_focal(names[0], {}).built.env
    places = list(range(env.num_agents) if seats is None else seats)
    for seat in places:
        if not 0 <= seat < env.num_agents:
            raise BadInput(f"seat {seat} must lie between 0 and {env.num_agents - 1}")
    builds = {name: experiments.known_player(env, name) for name in names}
    cells = []
    for player in names:
        for company in names:
            say(f"{player} among {company}")
            own, others = _returns(env, builds, player, company, places, episodes, seed)
            cells.append(_cell(player, company, own, others))
    return CrossPlay(list(names), cells, places, episodes)


def _returns(env: Environment, builds, player: str, company: str, places, episodes: int, seed: int):
    """[seat, episode] returns of the player in each place, and means of the others."""
    own, others = [], []
    for seat in places:
        lineup = tuple(player if place == seat else company for place in range(env.num_agents))
        key = jax.random.fold_in(stream(jax.random.key(seed), "cross-play"), seat)
        earned = _played(env, builds, lineup, episodes, key)
        own.append(earned[:, seat])
        others.append(np.delete(earned, seat, axis=1).mean(axis=1))
    return np.array(own), np.array(others)


def _played(env: Environment, builds, lineup: tuple[str, ...], episodes: int, key) -> np.ndarray:
    members = [
        Member(name, builds[name], tuple(i for i, n in enumerate(lineup) if n == name))
        for name in dict.fromkeys(lineup)
    ]
    algorithm = seated(members, lineup)
    params = algorithm.init(jax.random.key(0))
    scores = jax.jit(lambda params, key: play_episodes(env, algorithm, params, key, episodes))(params, key)
    return np.asarray(scores.episode_return)


def _cell(player: str, company: str, own: np.ndarray, others: np.ndarray) -> Cell:
    low, high = bootstrap_interval(own.ravel())
    return Cell(
        player=player,
        company=company,
        own_return=float(own.mean()),
        interval=(float(low), float(high)),
        per_seat=[float(x) for x in own.mean(axis=1)],
        company_return=float(others.mean()),
    )
