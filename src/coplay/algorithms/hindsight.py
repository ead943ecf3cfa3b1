"""Subgoals chosen in hindsight: where a co-player soon was, and which of those places was worth most to us.

A frozen prior (`opponents/prior.py`) says what a player that sees this may be after. Afterwards it is known
what a co-player came to see in its next steps; among these moments the one is chosen by which the critic
values the present most (`optimistic`) or least (`conservative`). What was read of the co-player is kept near
that, and early in training some rows are learned with it in the place of what was read.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms.actor_critic import ActorCritic, read_rows
from coplay.algorithms.readers import Reading
from coplay.opponents.goal_policy import sights, wishes
from coplay.opponents.prior import PriorModel, embedded
from coplay.opponents.subgoals import Subgoal
from coplay.types import Key, PyTree, Seated, Trajectory, Transition, pytree, stream

Settings = Any  # the selector fields of HOPPlusConfig


@pytree
class Chosen:
    """[time, env, seat, other, ...]."""

    target: Subgoal
    is_used: Bool[Array, "*pair"]  # in the place of what was read


class Selector(NamedTuple):
    prior: PriorModel
    settings: Settings


def chosen_in_hindsight(
    selector: Selector,
    model: ActorCritic,
    params: PyTree,
    trajectory: Trajectory,
    others: Int[Array, "seat other"],
    share: Float[Array, ""],
    key: Key,
) -> Chosen:
    """For every moment of a round, and a `share` of them to be used."""
    steps, horizon = trajectory.steps, selector.settings.horizon
    seen = sights(steps.before, wishes(selector.prior.env.goals, steps.before))
    places = embedded(selector.prior, params["prior"].common["prior"], seen)  # [time, env, agent, number]
    ahead = jnp.arange(1, horizon + 1)
    worth = jax.lax.map(lambda h: _worth(model, params["policy"], steps, _later(places, h), others), ahead)
    possible = jax.vmap(lambda h: is_possible(steps.before.first, steps.before.active, h))(ahead)[..., others]
    sign = 1.0 if selector.settings.selector == "optimistic" else -1.0
    best = jnp.argmax(jnp.where(possible, sign * worth, -jnp.inf), axis=0) + 1
    best = jnp.where(jnp.any(possible, axis=0), best, 0)  # nothing left: where it is
    target = jax.tree.map(lambda x: _picked(x[:, :, others], best), places)
    return Chosen(target, _drawn(share, best.shape, params["policy"], key))


def mixed(notes: PyTree, chosen: Chosen) -> PyTree:
    """Notes with what was chosen where that is to be used."""
    read = notes["reading"].subgoal.mean
    return _with_mean(notes, jnp.where(chosen.is_used[..., None], chosen.target.mean, read))


def _with_mean(notes: PyTree, mean: Float[Array, "*pair number"]) -> PyTree:
    reading: Reading = notes["reading"]
    subgoal = dataclasses.replace(reading.subgoal, mean=mean)
    return notes | {"reading": dataclasses.replace(reading, subgoal=subgoal)}


def _later(places: Subgoal, steps: Int[Array, ""]) -> Float[Array, "time env agent number"]:
    """Means so many steps on; what lies beyond the round is not asked for."""
    return jnp.roll(places.mean, -steps, axis=0)


def is_possible(
    first: Bool[Array, "time env"], active: Bool[Array, "time env agent"], steps: Int[Array, ""]
) -> Bool[Array, "time env agent"]:
    """Whether a player is still in the same game so many steps on, within the round."""
    length = first.shape[0]
    episode = jnp.cumsum(first, axis=0)
    is_within = (jnp.arange(length) + steps < length)[:, None]
    same = (jnp.roll(episode, -steps, axis=0) == episode) & is_within
    return same[..., None] & jnp.roll(active, -steps, axis=0)


def _worth(model: ActorCritic, policy: Seated, steps: Transition, later, others):
    """Of every moment, to every seat, if one co-player after the other were after that: [time, env, seat,
    other]."""

    def one(place: Int[Array, ""]) -> Float[Array, "time env seat"]:
        is_it = (jnp.arange(others.shape[1]) == place)[:, None]
        notes = steps.decision.notes
        notes = _with_mean(notes, jnp.where(is_it, later[:, :, others], notes["reading"].subgoal.mean))
        rows = model.views["critic"](steps.before, notes, model.seats, policy)
        flat = rows.reshape(-1, *rows.shape[2:])
        value = read_rows(model, "critic", policy, (), flat, jnp.zeros(flat.shape[0], bool))[1][..., 0]
        return value.reshape(rows.shape[:-1])

    return jnp.moveaxis(jax.lax.map(one, jnp.arange(others.shape[1])), 0, -1)


def _picked(
    x: Float[Array, "time env seat other number"], steps: Int[Array, "time env seat other"]
) -> Float[Array, "time env seat other number"]:
    """So many steps on."""
    time = jnp.arange(x.shape[0]).reshape(-1, 1, 1, 1) + steps
    return jnp.take_along_axis(x, time[..., None], axis=0)


def _drawn(share: Float[Array, ""], shape: tuple[int, ...], policy: Seated, key: Key):
    """A share of the rows, every seat's by a stream of its own."""
    time, env, _, other = shape
    keys = jax.vmap(jax.random.fold_in, (None, 0))(stream(key, "mix"), policy.own["seat"]["identity"])
    units = jax.vmap(lambda k: jax.random.uniform(k, (time, env, other)), out_axes=2)(keys)
    return units < share
