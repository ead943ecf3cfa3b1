"""A sample of a round's states, to be read again with other weights: before and after an update."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms.actor_critic import ActorCritic, memory_of, sequences, to_columns
from coplay.algorithms.losses import log_policy
from coplay.training.stages import chunk_columns
from coplay.types import Memory, PyTree, Seated, Trajectory

STATES = 1024  # at most, of one device's part of a round
SLICE_ROWS = 140  # steps of games whose generated weights are in memory at a time
SHARE = 4  # and at most one in so many: looking must stay cheap beside learning


class Glance(NamedTuple):
    inputs: Float[Array, "*rows feature"]  # as columns of groups, as `Batch` has them
    memory: Memory
    first: Bool[Array, "column time"]
    legal: Bool[Array, "column time seat action"]
    action: Int[Array, "column time seat"]
    active: Bool[Array, "column time seat"]


class Sample(NamedTuple):
    """Some games of a round, and what their players' policies read there."""

    games: Trajectory
    length: int  # of a column
    glance: Glance


def sample(model: ActorCritic, params: Seated, trajectory: Trajectory, sequence_length: int) -> Sample:
    time, num_envs = trajectory.steps.before.first.shape
    length = sequence_length if model.has_memory else time
    games = some_games(trajectory, how_many(time, num_envs))
    return Sample(games, length, glance(model, params, games, length))


def some_games(trajectory: Trajectory, num_envs: int) -> Trajectory:
    """The round as the first so many games had it."""

    def of_steps(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x[:, :num_envs], tree)

    def of_games(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x[:num_envs], tree)

    return Trajectory(
        of_steps(trajectory.steps),
        of_steps(trajectory.memory),
        of_games(trajectory.next),
        of_games(trajectory.next_memory),
    )


def how_many(time: int, num_envs: int) -> int:
    return max(1, min(STATES, time * num_envs // SHARE) // time)


def glance(
    model: ActorCritic, params: Seated, games: Trajectory, length: int, is_fresh: bool = False
) -> Glance:
    """With memory as it was at the start of each sequence, or empty (`is_fresh`)."""
    steps, index = games.steps, model.index

    def columns(x: Array) -> Array:
        return to_columns(x, length)

    rows = columns(model.views["policy"](steps.before, steps.decision.notes, model.seats, params))
    starts: Memory = ()
    if model.has_memory and is_fresh:
        starts = memory_of(model, model.empty(len(rows)), "policy")
    elif model.has_memory:
        memory = memory_of(model, games.memory, "policy")
        starts = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), memory)
    return Glance(
        inputs=model.sharing.groups(rows, 2),
        memory=model.sharing.groups(starts, 1),
        first=columns(steps.before.first),
        legal=columns(steps.before.legal[..., index, :]),
        action=columns(steps.decision.action[..., index]),
        active=columns(steps.before.active[..., index]),
    )


def policy_at(model: ActorCritic, params: Seated, seen: Glance) -> Float[Array, "state seat action"]:
    """Log-probabilities under these weights, all states in a row."""

    def one_group(weights, memory, inputs):
        def read(memory, inputs, first):
            return sequences(model, "policy", weights, memory, inputs, first)[1]

        return in_slices(model, read, (memory, inputs, seen.first))

    logits = model.sharing.map(one_group)(model.sharing.weights(params), seen.memory, seen.inputs)
    return in_a_row(log_policy(model.sharing.seats(logits, 2), seen.legal))


def in_slices(model: ActorCritic, function: Callable[..., PyTree], columns: PyTree) -> PyTree:
    """`function(*columns)`, a few columns at a time where a generator makes weights for every row of them:
    those of a whole sample would take more memory than learning does."""
    generator = model.networks.get("generator")
    if generator is None or generator.shape.context.is_fixed:
        return function(*columns)
    number, time = columns[-1].shape[:2]
    shape = (-1, chunk_columns(number, time, SLICE_ROWS))
    slices = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), columns)
    made = jax.lax.map(lambda part: function(*part), slices)
    return jax.tree.map(lambda x: x.reshape(number, *x.shape[2:]), made)


def in_a_row(x: Array) -> Array:
    """[column, time, ...] as [state, ...]."""
    return x.reshape(-1, *x.shape[2:])
