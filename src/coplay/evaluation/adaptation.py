"""Few-shot adaptation: some focal players among others they have never met, episode after episode.

The company stays the same, so what was seen of it in one episode can be used in the next. All games play
for the length of ten full episodes, in which everything is watched; some of them then go on to the end, and
episodes that end in the last quarter of the steps are the score. Weights stay as they are, or those who go
on learning do so after every round of some steps, from all games together.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.players.lineup import join, seen_by
from coplay.players.scripted import ScriptedPlayer
from coplay.training.rollout import collect, is_over, play_step, start_playing
from coplay.types import (
    Actor,
    Algorithm,
    Decision,
    Environment,
    Key,
    Params,
    Stage,
    Thoughts,
    Trajectory,
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


class Learning(NamedTuple):
    """Who goes on learning, and after how many steps each time."""

    parts: tuple[str, ...]  # "focal", "company" or both
    num_steps: int
    sequence_length: int


class Meeting(NamedTuple):
    """Who meets whom. Algorithms act for their own seats only, in seat order."""

    env: Environment
    focal: Algorithm
    company: Algorithm
    seats: tuple[int, ...]  # of the focal players
    scripts: dict[int, ScriptedPlayer]  # by seat, of those in the company that are scripted
    learning: Learning | None = None


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
    if meeting.learning:
        return _play_and_learn(meeting, meeting.learning, protocol, params, key)
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


def _play_and_learn(
    meeting: Meeting, learning: Learning, protocol: Protocol, params: Params, key: Key
) -> Played:
    """In rounds, the last of them cut where the steps end. All games go on: `protocol` keeps them all."""
    env, table = meeting.env, _as_one(meeting, is_told=False)

    def one_round(carry, key):
        actor, params, learner = carry
        now, trajectory, _ = collect(
            env, table, params, actor, stream(key, "collect"), learning.num_steps, learning.sequence_length
        )
        params, learner, _ = table.learn.update(params, learner, trajectory, stream(key, "learn"))
        return (now, params, learner), (_ends(actor, trajectory.steps), trajectory.steps)

    def watched_round(carry, key):
        carry, (ends, steps) = one_round(carry, key)
        return carry, (ends, jax.vmap(lambda step: _seen(meeting, step))(steps))

    def later_round(carry, key):
        carry, (ends, _) = one_round(carry, key)
        return carry, ends

    def in_steps(rounds, steps: int):
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:steps], rounds)

    early_rounds = -(-protocol.watched_steps(env) // learning.num_steps)
    keys = jax.random.split(stream(key, "rounds"), -(-protocol.steps // learning.num_steps))
    carry = start_playing(env, table, key, protocol.games), params, table.learn.init(params)
    carry, (early, seen) = jax.lax.scan(watched_round, carry, keys[:early_rounds])
    _, late = jax.lax.scan(later_round, carry, keys[early_rounds:])
    watched = min(early_rounds * learning.num_steps, protocol.steps)
    return Played(in_steps(early, watched), in_steps(late, protocol.steps - watched), in_steps(seen, watched))


def _ends(actor: Actor, steps: Transition) -> Ends:
    """What a round's steps came to in every game, from where it stood before them."""

    def one_step(carry, after):
        episode_return, length = carry[0] + after.reward, carry[1] + 1
        over = is_over(after)
        going_on = jnp.where(over[:, None], 0.0, episode_return), jnp.where(over, 0, length)
        return going_on, Ends(over, episode_return, length)

    return jax.lax.scan(one_step, (actor.episode_return, actor.episode_length), steps.after)[1]


def _as_one(meeting: Meeting, is_told: bool) -> Algorithm:
    """Everyone at the table as one. The company decides first, so that the focal players can be told."""
    focal, company = as_played(meeting.focal), as_played(meeting.company)
    parts = {"focal": focal, "company": company}
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
        notes = {"focal": decision.notes, "company": their_decision.notes}
        return {"focal": ours, "company": theirs}, dataclasses.replace(joined, notes=notes)

    def watch(params, memory, transition: Transition):
        return {name: part.watch(params[name], memory[name], transition) for name, part in parts.items()}

    return Algorithm(
        init=lambda key: {name: part.init(key) for name, part in parts.items()},
        remember=lambda games: {name: part.remember(games) for name, part in parts.items()},
        act=act,
        watch=watch,
        learn=_each_its_own(
            {name: parts[name].learn for name in (meeting.learning.parts if meeting.learning else ())}
        ),
    )


def _each_its_own(stages: dict[str, Stage]) -> Stage:
    """Those who go on learning, each from its own side of what happened."""

    def update(params, learner, trajectory: Trajectory, key: Key):
        params, learner = dict(params), dict(learner)
        for name, stage in stages.items():
            params[name], learner[name], _ = stage.update(
                params[name], learner[name], seen_by(trajectory, name), stream(key, name)
            )
        return params, learner, {}

    return Stage(lambda params: {name: stage.init(params[name]) for name, stage in stages.items()}, update)


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
