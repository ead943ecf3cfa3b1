"""What every seat makes of everyone else: a subgoal read from what they have done, and how that is learned.

A seat has two networks for each co-player, in the order they sit after it (`opponents/subgoals.py`): one
reads the co-player's rows of the episode and says where its subgoal may be, the other says what it does next,
given that. Both learn from what it then did; from nothing else is a subgoal made. Only steps of players still
in the game count. A fifth of the games is held out, and tells how well the others are foreseen now.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms.actor_critic import from_columns, to_columns
from coplay.algorithms.sharing import Sharing
from coplay.diagnostics import gates
from coplay.opponents.goal_policy import sights, those_after, wishes
from coplay.opponents.subgoals import Subgoal, SubgoalModel, infer, log_chances, spread, subgoal_model
from coplay.training.devices import masked_mean, total
from coplay.training.stages import Fit, fit
from coplay.types import (
    Environment,
    Key,
    Metrics,
    PyTree,
    Seated,
    Stage,
    TimeStep,
    Trajectory,
    pytree,
    stream,
)

OTHERS = "others"  # the networks' name among a seat's weights
Settings = Any  # the subgoal and model_* fields of HOPPlusConfig


class Readers(NamedTuple):
    """The networks without weights; weights come separately, [other, ...] for every seat."""

    model: SubgoalModel
    others: np.ndarray  # [seat, other]: who sits after each of our seats
    sharing: Sharing


def readers(env: Environment, seats: tuple[int, ...], settings: Settings, sharing: Sharing):
    """The networks, and a function that initialises one seat's."""
    model, init_one = subgoal_model(env, settings.subgoal_size, settings.model_hidden)

    def init(key: Key) -> PyTree:
        each = [init_one(jax.random.fold_in(key, place)) for place in range(env.num_agents - 1)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)

    return Readers(model, those_after(seats, env.num_agents), sharing), init


def blank(reader: Readers, num_envs: int) -> Float[Array, "env seat other hidden"]:
    """Nothing read yet."""
    return jnp.zeros((num_envs, *reader.others.shape, reader.model.width))


def sights_of(reader: Readers, timestep: TimeStep) -> Float[Array, "*batch seat other feature"]:
    """What is read of every co-player."""
    seen = sights(timestep, wishes(reader.model.env.goals, timestep))
    return seen[..., reader.others, :]


def read_others(reader: Readers, params: Seated, memory: Float[Array, "env seat other hidden"], timestep):
    """What is remembered after this moment, and where everyone's subgoal may be: [env, seat, other, ...]."""
    sharing, first = reader.sharing, timestep.first[:, None]

    def one_group(weights, memory, seen):
        return _read(reader, weights[OTHERS], memory, seen, first)

    groups = sharing.groups
    read = sharing.map(one_group)
    seen = groups(sights_of(reader, timestep)[:, None], 2)
    out = sharing.seats(read(sharing.weights(params), groups(memory, 1), seen), 2)
    return jax.tree.map(lambda x: x[:, 0], out)


def read_rounds(reader: Readers, params: Seated, trajectory: Trajectory, length: int):
    """What had been read of everyone after every row of a round, [time, env, seat, other, hidden]."""
    sharing, steps = reader.sharing, trajectory.steps
    first = to_columns(steps.before.first, length)
    seen = sharing.groups(to_columns(sights_of(reader, steps.before), length), 2)
    memory = sharing.groups(_starts(trajectory), 1)
    read = sharing.map(lambda w, m, x: _read(reader, w[OTHERS], m, x, first)[0])
    columns = sharing.seats(read(sharing.weights(params), memory, seen), 2)
    return from_columns(columns, steps.before.first.shape)


def _starts(trajectory: Trajectory) -> Float[Array, "column seat other hidden"]:
    """Memory at the start of every column."""
    return jnp.swapaxes(trajectory.memory, 0, 1).reshape(-1, *trajectory.memory.shape[2:])


def _read(
    reader: Readers,
    weights: PyTree,  # [other, ...]
    memory: Float[Array, "column seat other hidden"],
    seen: Float[Array, "column time seat other feature"],
    first: Bool[Array, "column time"],
) -> tuple[Float[Array, "column time seat other hidden"], Subgoal]:
    """Whole sequences."""
    columns, time, seats = seen.shape[:3]
    fresh = jnp.repeat(first.T, seats, axis=1)

    def one(weights, memory, seen):
        rows = jnp.moveaxis(seen, 1, 0).reshape(time, columns * seats, -1)
        out = infer(reader.model, weights, memory.reshape(columns * seats, -1), rows, fresh)
        return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(time, columns, seats, -1), 0, 1), out)

    return jax.vmap(one, in_axes=(0, 2, 3), out_axes=3)(weights, memory, seen)


def foreseen(
    reader: Readers,
    weights: PyTree,  # [other, ...]
    seen: Float[Array, "*rows seat other feature"],
    legal: Bool[Array, "*rows seat other action"],
    subgoal: Float[Array, "*rows seat other number"],
) -> Float[Array, "*rows seat other action"]:
    """Log probabilities of what every co-player does next, if that is what it is up to."""
    axis = seen.ndim - 2
    each = jax.vmap(lambda w, *x: log_chances(reader.model, w, *x), (0, axis, axis, axis), axis)
    return each(weights, seen, legal, subgoal)


def foretold(
    reader: Readers,
    params: Seated,
    seen: Float[Array, "row seat other feature"],
    legal: Bool[Array, "row seat other action"],
    subgoal: Float[Array, "row seat other number"],
) -> Float[Array, "row seat other action"]:
    """The same, by every seat with its own weights."""
    sharing = reader.sharing
    each = sharing.map(lambda w, *x: foreseen(reader, w[OTHERS], *x))
    return sharing.seats(each(sharing.weights(params), *sharing.groups((seen, legal, subgoal), 1)), 1)


# --- learning ------------------------------------------------------------------------------------


@pytree
class Rows:
    """What the networks learn from, [column, time, seat, other, ...]."""

    seen: Float[Array, "*rows feature"]
    legal: Bool[Array, "*rows action"]
    action: Int[Array, "*rows"]
    counts: Bool[Array, "*rows"]
    held_out: Bool[Array, "*rows"]
    noise: Float[Array, "*rows number"]  # what subgoals are drawn with
    policy: Float[Array, "*rows action"]  # the co-player's own
    first: Bool[Array, "*columns"]
    memory: Float[Array, "*starts hidden"]  # at the start of each column


def subgoal_stage(reader: Readers, settings: Settings, length: int) -> Stage:
    optimiser = optax.adam(settings.model_learning_rate, eps=1e-5)
    sharing = reader.sharing

    def loss(weights, rows: Rows):
        told, subgoal = _told(reader, weights[OTHERS], rows)
        cost = settings.subgoal_weight * spread(subgoal) - _of_action(told, rows)[..., 0]
        return jnp.sum(jnp.where(rows.counts & ~rows.held_out, cost, 0.0)), {}

    pieces = Fit(settings.model_epochs, settings.model_minibatches, settings.chunk_rows)
    descend = fit(loss, optimiser, pieces)

    def init(params: Seated):
        state = sharing.map(lambda w: optimiser.init({OTHERS: w[OTHERS]}))(sharing.weights(params))
        return sharing.pack({"optimiser": state}, {})

    def update(params: Seated, learner: Seated, trajectory: Trajectory, key: Key):
        rows = _rows(reader, params, trajectory, length, stream(key, "noise"))
        weights = sharing.weights(params)
        keys = sharing.keys(stream(key, "fit"), params.own["seat"]["identity"])
        learned, state, _ = sharing.map(
            lambda w, o, rows, k: descend({OTHERS: w[OTHERS]}, o, rows, _counted, k)
        )(weights, sharing.weights(learner)["optimiser"], rows, keys)
        figures = sharing.map(lambda w, rows: _figures(reader, w[OTHERS], rows))(learned, rows)
        packed = sharing.pack(weights | learned, params.own["seat"])
        return packed, sharing.pack({"optimiser": state}, {}), figures

    return Stage(init, update)


def _rows(reader: Readers, params: Seated, trajectory: Trajectory, length: int, key: Key) -> Rows:
    """A round as one row per group, then [column, time, seat, other, ...]."""
    steps, others = trajectory.steps, reader.others
    before, sharing = steps.before, reader.sharing
    shape = (*before.first.shape, others.shape[1], reader.model.size)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, params.own["seat"]["identity"])
    noise = jax.vmap(lambda k: jax.random.normal(k, shape), out_axes=2)(keys)
    by_pair = [
        sights_of(reader, before),
        before.legal[:, :, others],
        steps.decision.action[:, :, others],
        before.active[:, :, others],
        _held_out(before.active[:, :, others]),
        noise,
        steps.decision.policy[:, :, others],
    ]
    columns = [sharing.groups(to_columns(x, length), 2) for x in by_pair]
    first = sharing.alike(to_columns(before.first, length), len(others))
    return Rows(*columns, first=first, memory=sharing.groups(_starts(trajectory), 1))


def _held_out(rows: Bool[Array, "time env seat other"]) -> Bool[Array, "time env seat other"]:
    """Whether a game is one that nobody learns from."""
    games = rows.shape[1]
    is_held = jnp.arange(games) < gates.held_out(games)
    return jnp.broadcast_to(is_held[None, :, None, None], rows.shape)


def _told(reader: Readers, weights: PyTree, rows: Rows) -> tuple[Float[Array, "*rows action"], Subgoal]:
    """Log probabilities of what everyone may do, under subgoals that are drawn; and where those may be."""
    _, subgoal = _read(reader, weights, rows.memory, rows.seen, rows.first)
    drawn = subgoal.mean + jnp.exp(subgoal.log_std) * rows.noise
    return foreseen(reader, weights, rows.seen, rows.legal, drawn), subgoal


def _of_action(log_chance: Float[Array, "*rows action"], rows: Rows) -> Float[Array, "*rows 1"]:
    return jnp.take_along_axis(log_chance, rows.action[..., None], axis=-1)


def _counted(rows: Rows) -> Float[Array, ""]:
    return jnp.sum(rows.counts & ~rows.held_out, dtype=jnp.float32)


def _figures(reader: Readers, weights: PyTree, rows: Rows) -> Metrics:
    """On games that nobody has learned from, over all co-players of a group: surprise beside that of the
    players' own policies and that of a guess over what is legal."""
    counts = rows.counts & rows.held_out
    axes = tuple(range(counts.ndim))
    told, subgoal = _told(reader, weights, rows)
    true = jnp.log(jnp.maximum(rows.policy, 1e-9))
    chosen, best = _of_action(told, rows), _of_action(true, rows)
    evenly = jnp.log(jnp.sum(rows.legal, axis=-1).astype(jnp.float32))

    def mean(x: Array) -> Array:
        return masked_mean(x, counts, axes)

    return {
        "opponents/surprise": mean(-chosen[..., 0]),
        "opponents/true_surprise": mean(-best[..., 0]),
        "opponents/even_surprise": mean(evenly),
        "opponents/top1": mean(jnp.sum(told > chosen, axis=-1) == 0),
        "opponents/true_top1": mean(jnp.sum(true > best, axis=-1) == 0),
        "opponents/top3": mean(jnp.sum(told > chosen, axis=-1) < 3),
        "opponents/macro_f1": macro_f1(told, rows.action, counts),
        "opponents/true_macro_f1": macro_f1(true, rows.action, counts),
        "subgoal/spread": mean(spread(subgoal)),
        "subgoal/deviation": jnp.sqrt(
            mean(jnp.mean((subgoal.mean - _mean_of(mean, subgoal.mean)) ** 2, axis=-1))
        ),
    }


def macro_f1(
    told: Float[Array, "*rows action"], action: Int[Array, "*rows"], counts: Bool[Array, "*rows"]
) -> Float[Array, ""]:
    """F1 of foretelling each action as the likeliest, averaged over the actions that were taken."""
    actions, axes = told.shape[-1], tuple(range(counts.ndim))
    is_told = jax.nn.one_hot(jnp.argmax(told, axis=-1), actions, dtype=bool) & counts[..., None]
    is_taken = jax.nn.one_hot(action, actions, dtype=bool) & counts[..., None]
    said, taken, right = total(
        tuple(jnp.sum(x, axes, dtype=jnp.float32) for x in (is_told, is_taken, is_told & is_taken))
    )
    f1 = 2.0 * right / jnp.maximum(said + taken, 1.0)
    return jnp.sum(jnp.where(taken > 0, f1, 0.0)) / jnp.maximum(jnp.sum(taken > 0), 1)


def _mean_of(mean, x: Float[Array, "*rows number"]) -> Float[Array, "*one number"]:
    parts = jnp.stack([mean(x[..., i]) for i in range(x.shape[-1])])
    return parts.reshape((1,) * (x.ndim - 1) + (-1,))
