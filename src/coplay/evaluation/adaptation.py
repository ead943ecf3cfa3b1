"""Few-shot adaptation: some focal players among others they have never met, episode after episode.

The company stays the same, so what was seen of it in one episode can be used in the next. All games play
for the length of ten full episodes, in which everything is watched; a quarter of them then goes on to the
end, and episodes that end in the last quarter of the steps are the score.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.players.lineup import join
from coplay.players.scripted import ScriptedPlayer
from coplay.training.rollout import play_step, start_playing
from coplay.training.stages import no_learning
from coplay.types import (
    Algorithm,
    Decision,
    Environment,
    Key,
    Params,
    Thoughts,
    Transition,
    as_played,
    pytree,
    stream,
)

UNKNOWN = -1  # a goal that nobody declares
WATCHED_EPISODES = 10


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How long one plays, and in how many games side by side."""

    steps: int = 2400
    games: int = 256
    kept: float = 0.25  # share of the games that go on to the end
    scored: float = 0.25  # share of the steps, at the end, whose episodes count

    def watched_steps(self, env: Environment) -> int:
        return min(self.steps, WATCHED_EPISODES * env.horizon)

    @property
    def kept_games(self) -> int:
        return max(1, round(self.games * self.kept))


class Meeting(NamedTuple):
    """Who meets whom. Algorithms act for their own seats only, in seat order."""

    env: Environment
    focal: Algorithm
    company: Algorithm
    seats: tuple[int, ...]  # of the focal players
    scripts: dict[int, ScriptedPlayer]  # by seat, of those in the company that are scripted


@pytree
class Ends:
    """Every step's verdict on every game, [step, game, ...]."""

    over: Bool[Array, "*step game"]
    episode_return: Float[Array, "*step game agent"]  # of the episode so far
    length: Int[Array, "*step game"]


@pytree
class Seen:
    """What happened, and what the first focal player made of it, [step, game, ...]."""

    steps: Transition  # without notes and thoughts
    goal: Int[Array, "*step game agent"]  # what everyone was truly after, UNKNOWN where not declared
    belief: Float[Array, "*step game other goal"] | tuple[()]  # () for players that hold none
    prediction: Float[Array, "*step game other action"] | tuple[()]


@pytree
class Played:
    """All of a meeting, for one set of weights."""

    early: Ends  # of all games
    late: Ends  # of the games that went on
    seen: Seen  # early steps


def play(meeting: Meeting, protocol: Protocol, params: Params, key: Key, is_told: bool = False) -> Played:
    """`params` has "focal" and "company". With `is_told` the focal players are told what others are after."""
    env, table = meeting.env, _as_one(meeting, is_told)
    watched = protocol.watched_steps(env)
    keys = jax.random.split(stream(key, "play"), protocol.steps)

    def one_step(actor, key):
        actor, transition, ended = play_step(env, table, params, actor, key)
        ends = Ends(ended.over, ended.episode_return, ended.episode_length)
        return actor, (ends, transition)

    def watched_step(actor, key):
        actor, (ends, transition) = one_step(actor, key)
        return actor, (ends, _seen(meeting, transition))

    def later_step(actor, key):
        actor, (ends, _) = one_step(actor, key)
        return actor, ends

    actor = start_playing(env, table, key, protocol.games)
    actor, (early, seen) = jax.lax.scan(watched_step, actor, keys[:watched])
    actor = jax.tree.map(lambda x: x[: protocol.kept_games], actor)
    _, late = jax.lax.scan(later_step, actor, keys[watched:])
    return Played(early, late, seen)


def _as_one(meeting: Meeting, is_told: bool) -> Algorithm:
    """Everyone at the table as one. The company decides first, so that the focal players can be told."""
    focal, company = as_played(meeting.focal), as_played(meeting.company)
    others = tuple(seat for seat in range(meeting.env.num_agents) if seat not in meeting.seats)

    def act(params, memory, timestep, state, key: Key):
        theirs, their_decision = company.act(
            params["company"], memory["company"], timestep, state, stream(key, "company")
        )
        ours = memory["focal"]
        if is_told and focal.told is not None:
            ours = focal.told(ours, _goals(their_decision, others, meeting.env.num_agents))
        ours, decision = focal.act(params["focal"], ours, timestep, state, stream(key, "focal"))
        joined = join([meeting.seats, others], [decision, their_decision])
        return {"focal": ours, "company": theirs}, joined

    def watch(params, memory, transition: Transition):
        parts = {"focal": focal, "company": company}
        return {name: part.watch(params[name], memory[name], transition) for name, part in parts.items()}

    return Algorithm(
        init=lambda key: {"focal": focal.init(key), "company": company.init(key)},
        remember=lambda games: {"focal": focal.remember(games), "company": company.remember(games)},
        act=act,
        watch=watch,
        learn=no_learning,
    )


def _goals(decision: Decision, seats: tuple[int, ...], num_agents: int) -> Int[Array, "env agent"]:
    """What those in `seats` say they are after; UNKNOWN for the others."""
    nobody = jnp.full((decision.action.shape[0], num_agents), UNKNOWN, jnp.int32)
    goal = decision.thoughts.goal
    return nobody if isinstance(goal, tuple) else nobody.at[:, np.array(seats)].set(goal)


def _seen(meeting: Meeting, transition: Transition) -> Seen:
    """Thoughts of the first focal player only."""
    decision, place = transition.decision, meeting.seats[0]
    bare = dataclasses.replace(decision, notes=(), thoughts=Thoughts())
    belief, prediction = jax.tree.map(
        lambda x: x[:, place], (decision.thoughts.belief, decision.thoughts.prediction)
    )
    everyone = tuple(range(meeting.env.num_agents))
    return Seen(
        steps=dataclasses.replace(transition, decision=bare),
        goal=_goals(decision, everyone, len(everyone)),
        belief=belief,
        prediction=prediction,
    )
