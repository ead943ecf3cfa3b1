"""Who sits where: several players, each an Algorithm for its own seats, joined into one for the game.

Seats are fixed when the program is built. A schedule changes the line-up between chunks: every member's
weights are there from the start, with a row for each seat it will ever hold, so nothing is reset when it
sits down elsewhere or has to wait for its turn.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coplay.types import (
    NEEDS,
    Algorithm,
    Decision,
    Key,
    Metrics,
    PyTree,
    Seated,
    Stage,
    Thoughts,
    TimeStep,
    Trajectory,
    as_played,
    begun,
    stream,
)

Build = Callable[[tuple[int, ...]], Algorithm]  # the same player, made for these seats


class Member(NamedTuple):
    """A player, and the seats it holds at one time or another."""

    name: str
    build: Build
    seats: tuple[int, ...]


def seated(members: list[Member], lineup: tuple[str, ...]) -> Algorithm:
    """The line-up as one Algorithm. `lineup[i]` names the member in seat i; the others wait."""
    playing = [_playing(member, lineup) for member in members if member.name in lineup]
    whole = {member.name: _whole(member, playing) for member in members}
    return Algorithm(
        init=lambda key: {name: player.init(stream(key, name)) for name, player in whole.items()},
        remember=lambda num_envs: {part.name: part.algorithm.remember(num_envs) for part in playing},
        act=lambda *arguments: _act(playing, *arguments),
        play=lambda *arguments: _act([_at_its_best(part) for part in playing], *arguments),
        watch=lambda params, memory, transition: {
            part.name: part.algorithm.watch(part.rows(params[part.name]), memory[part.name], transition)
            for part in playing
        },
        learn=_learn(whole, playing, len(lineup)),
        told=lambda memory, goals: {part.name: _told(part, memory[part.name], goals) for part in playing},
        begin=lambda params: {name: begun(player, params[name]) for name, player in whole.items()},
        reads_states=any(part.algorithm.reads_states for part in playing),
        needs=max((part.algorithm.needs for part in playing), key=NEEDS.index, default=NEEDS[0]),
        reaches=tuple(
            (f"{part.name}/{name}", where) for part in playing for name, where in part.algorithm.reaches
        ),
        still=tuple(f"{part.name}/{name}" for part in playing for name in part.algorithm.still),
        judged=tuple(f"{part.name}/{name}" for part in playing for name in part.algorithm.judged),
        in_turns=any(part.algorithm.in_turns for part in playing),
    )


def part_of(members: list[Member], lineup: tuple[str, ...], seats: tuple[int, ...]) -> Algorithm:
    """A line-up's players in some of its seats only."""
    kept = tuple(name if seat in seats else "" for seat, name in enumerate(lineup))
    return seated(members, kept)


class Playing(NamedTuple):
    """A member at the table: made for the seats it holds now, with its rows of the weights."""

    name: str
    algorithm: Algorithm
    seats: tuple[int, ...]
    rows: Callable[[PyTree], PyTree]  # take the rows of these seats
    put_back: Callable[[PyTree, PyTree], PyTree]


def _playing(member: Member, lineup: tuple[str, ...]) -> Playing:
    seats = tuple(seat for seat in member.seats if lineup[seat] == member.name)
    algorithm = member.build(seats)
    if seats == member.seats:
        return Playing(member.name, algorithm, seats, lambda tree: tree, lambda old, new: new)
    index = np.array([member.seats.index(seat) for seat in seats])
    return Playing(
        name=member.name,
        algorithm=algorithm,
        seats=seats,
        rows=lambda tree: _map_seated(lambda old: _take(old, index), tree),
        put_back=lambda old, new: _map_seated(lambda o, n: _put(o, n, index), old, new),
    )


def _whole(member: Member, playing: list[Playing]) -> Algorithm:
    """The player for every seat it will ever hold, made now: no network is made while a program is traced."""
    at_table = [part.algorithm for part in playing if (part.name, part.seats) == (member.name, member.seats)]
    return at_table[0] if at_table else member.build(member.seats)


def _map_seated(function, *trees):
    return jax.tree.map(function, *trees, is_leaf=lambda x: isinstance(x, Seated))


def _take(old: Seated, index: np.ndarray) -> Seated:
    return Seated(own=jax.tree.map(lambda x: x[index], old.own), common=old.common)


def _put(old: Seated, new: Seated, index: np.ndarray) -> Seated:
    return Seated(own=jax.tree.map(lambda o, n: o.at[index].set(n), old.own, new.own), common=new.common)


def _act(playing: list[Playing], params, memory, timestep: TimeStep, state, key: Key):
    remembered, decisions = {}, []
    for part in playing:
        rows = part.rows(params[part.name])
        remembered[part.name], decision = part.algorithm.act(
            rows, memory[part.name], timestep, state, stream(key, part.name)
        )
        decisions.append(decision)
    return remembered, _join(playing, decisions)


def _join(playing: list[Playing], decisions: list[Decision]) -> Decision:
    """Everybody's rows, in seat order; notes stay with those who made them, by name."""
    notes = {part.name: decision.notes for part, decision in zip(playing, decisions, strict=True)}
    joined = decisions[0] if len(decisions) == 1 else join([part.seats for part in playing], decisions)
    return dataclasses.replace(joined, notes=notes)


def join(seats: Sequence[tuple[int, ...]], decisions: Sequence[Decision]) -> Decision:
    """Decisions for different seats as one, in seat order and without notes."""
    places = np.argsort([seat for own in seats for seat in own])

    def in_order(*rows: jax.Array) -> jax.Array:
        return jnp.concatenate(rows, axis=1)[:, places]

    bare = [dataclasses.replace(decision, notes=(), thoughts=Thoughts()) for decision in decisions]
    told = {
        name: _filled([getattr(d.thoughts, name) for d in decisions], decisions, silence)
        for name, silence in (("goal", -1), ("belief", jnp.nan), ("prediction", jnp.nan))
    }
    thoughts = Thoughts(**{name: in_order(*rows) if rows else () for name, rows in told.items()})
    return dataclasses.replace(jax.tree.map(in_order, *bare), thoughts=thoughts)


def _filled(told: list, decisions: Sequence[Decision], silence: float | int) -> list[jax.Array]:
    """Everybody's thoughts of one kind, with `silence` for those who tell none; nothing if nobody does."""
    spoken = next((rows for rows in told if not isinstance(rows, tuple)), None)
    if spoken is None:
        return []
    return [
        jnp.full((*decision.action.shape, *spoken.shape[2:]), silence, spoken.dtype)
        if isinstance(rows, tuple)
        else rows
        for rows, decision in zip(told, decisions, strict=True)
    ]


def _told(part: Playing, memory, goals):
    return part.algorithm.told(memory, goals) if part.algorithm.told else memory


def _at_its_best(part: Playing) -> Playing:
    return part._replace(algorithm=as_played(part.algorithm))


def seen_by(trajectory: Trajectory, name: str) -> Trajectory:
    """The round as one member knows it: with its own memory and notes."""
    decision = trajectory.steps.decision
    steps = dataclasses.replace(
        trajectory.steps, decision=dataclasses.replace(decision, notes=decision.notes[name])
    )
    return dataclasses.replace(
        trajectory, steps=steps, memory=trajectory.memory[name], next_memory=trajectory.next_memory[name]
    )


def _learn(whole: dict[str, Algorithm], playing: list[Playing], num_agents: int) -> Stage:
    def init(params):
        return {name: player.learn.init(params[name]) for name, player in whole.items()}

    def update(params, learner, trajectory: Trajectory, key: Key):
        params, learner = dict(params), dict(learner)
        figures: Metrics = {}
        for part in playing:
            name = part.name
            rows, state, more = part.algorithm.learn.update(
                part.rows(params[name]),
                part.rows(learner[name]),
                seen_by(trajectory, name),
                stream(key, name),
            )
            params[name] = part.put_back(params[name], rows)
            learner[name] = part.put_back(learner[name], state)
            for metric, value in more.items():
                figures[metric] = _spread(figures.get(metric), value, part.seats, num_agents)
        return params, learner, figures

    return Stage(init, update)


def _spread(so_far, value: jax.Array, seats: tuple[int, ...], num_agents: int) -> jax.Array:
    """A member's figures in its seats' places, one value per agent; NaN where nobody learns."""
    so_far = jnp.full(num_agents, jnp.nan) if so_far is None else so_far
    return so_far.at[np.array(seats)].set(jnp.broadcast_to(value, (len(seats),)))
