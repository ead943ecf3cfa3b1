"""What every seat makes of everyone else while it plays: a subgoal read from what they have done.

A seat has two networks for each co-player, in the order they sit after it, or two for any of them
(`opponents/subgoals.py`): one reads the co-player's rows of the episode and says where its subgoal may be,
the other says what it does next, given that. Both may also go by what was kept of earlier episodes
(`opponents/kept.py`). What a subgoal says of its player's next pay is a reading of its own. How they learn:
`subgoal_stage.py`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from coplay.algorithms.actor_critic import from_columns, to_columns
from coplay.algorithms.sharing import Sharing
from coplay.opponents import kept
from coplay.opponents.goal_policy import sights, those_after, wishes
from coplay.opponents.kept import Kept
from coplay.opponents.subgoals import (
    Subgoal,
    SubgoalModel,
    drawn,
    infer,
    log_chances,
    pay_chances,
    subgoal_model,
)
from coplay.types import Environment, Key, PyTree, Seated, TimeStep, Trajectory, pytree, stacked

OTHERS = "others"  # the networks' name among a seat's weights
Settings = Any  # the subgoal and model_* fields of HOPPlusConfig


class Readers(NamedTuple):
    """The networks without weights; weights come separately, [model, ...] for every seat: a model for each
    co-player, or one for any of them."""

    model: SubgoalModel
    others: np.ndarray  # [seat, other]: who sits after each of our seats
    sharing: Sharing
    keeps: bool  # something of earlier episodes
    tells_pay: bool  # what everyone seems to be paid next is noted, too


@pytree
class Read:
    """What is remembered of everyone's episode so far, and of earlier ones where that is kept."""

    hidden: Float[Array, "*batch seat other hidden"]
    kept: Kept | tuple[()]


@pytree
class Reading:
    """What is noted of everyone at one moment."""

    subgoal: Subgoal  # [*batch, seat, other, number]
    kept: Float[Array, "*batch seat other kept"] | tuple[()]  # as it is told; () where nothing is kept
    pay: Float[Array, "*batch seat other prospect"] | tuple[()] = ()  # chances; () where nobody asks


@pytree
class LearnedRows:
    """What models of co-players are about to learn from, [time, env, seat, other, ...], for who audits it."""

    seen: Float[Array, "*rows feature"]
    action: Int[Array, "*rows"]
    counts: Bool[Array, "*rows"]
    taught: Bool[Array, "*rows"]  # counts, and is not held out


def readers(env: Environment, seats: tuple[int, ...], settings: Settings, sharing: Sharing):
    """The networks, and a function that initialises one seat's."""
    keeps = settings.between == "average"
    width = settings.subgoal_size + kept.EXTRA if keeps else 0
    model, init_one = subgoal_model(
        env, settings.subgoal_size, settings.model_hidden, width, foretells_pay=settings.pay > 0
    )
    models = env.num_agents - 1 if settings.model_of == "each" else 1

    def init(key: Key) -> PyTree:
        each = [init_one(jax.random.fold_in(key, place)) for place in range(models)]
        return stacked(each)

    tells_pay = settings.policy_reads and settings.reads == "pay"
    return Readers(model, those_after(seats, env.num_agents), sharing, keeps, tells_pay), init


def blank(reader: Readers, num_envs: int) -> Read:
    """Nothing read yet, of anybody."""
    pairs = (num_envs, *reader.others.shape)
    empty = kept.nothing_kept(pairs, reader.model.size) if reader.keeps else ()
    return Read(jnp.zeros((*pairs, reader.model.width)), empty)


def sights_of(reader: Readers, timestep: TimeStep) -> Float[Array, "*batch seat other feature"]:
    """What is read of every co-player."""
    seen = sights(timestep, wishes(reader.model.env.goals, timestep))
    return seen[..., reader.others, :]


def read_others(reader: Readers, params: Seated, memory: Read, timestep: TimeStep) -> tuple[Read, Reading]:
    """What is remembered after this moment of play, and what is noted of everyone."""
    if isinstance(memory.kept, tuple):
        hidden, reading = read_on(reader, params, memory.hidden, (), timestep)
        return Read(hidden, ()), reading
    earlier = kept.another_episode(memory.kept, timestep.first)
    hidden, reading = read_on(reader, params, memory.hidden, kept.told(earlier), timestep)
    is_here = timestep.active[:, reader.others]
    return Read(hidden, kept.with_reading(earlier, reading.subgoal.mean, is_here)), reading


def read_on(
    reader: Readers,
    params: Seated,
    hidden: Float[Array, "env seat other hidden"],
    told: Float[Array, "env seat other kept"] | tuple[()],
    timestep: TimeStep,
) -> tuple[Float[Array, "env seat other hidden"], Reading]:
    """One moment more of the episode."""
    sharing, first = reader.sharing, timestep.first[:, None]

    def one_group(weights, hidden, seen):
        hidden, subgoal = read_columns(reader, weights[OTHERS], hidden, seen, first)
        pay = jnp.exp(prospect_of(reader, weights[OTHERS], subgoal.mean)) if reader.tells_pay else ()
        return hidden, subgoal, pay

    seen = with_kept(sights_of(reader, timestep), told)
    out = sharing.map(one_group)(
        sharing.weights(params), sharing.groups(hidden, 1), sharing.groups(seen[:, None], 2)
    )
    hidden, subgoal, pay = jax.tree.map(lambda x: x[:, 0], sharing.seats(out, 2))
    return hidden, Reading(subgoal, told, pay)


def prospect_of(
    reader: Readers,
    weights: PyTree,  # [model, ...]
    subgoal: Float[Array, "*rows seat other number"],
) -> Float[Array, "*rows seat other prospect"]:
    """Log chances of what every co-player is paid next, if that is what it is up to."""
    return about_each(lambda w, x: pay_chances(reader.model, w, x), weights, subgoal)


def read_rounds(
    reader: Readers, params: Seated, trajectory: Trajectory, memory: Read, reading: Reading, length: int
) -> Float[Array, "time env seat other hidden"]:
    """What had been read of everyone after every row of a round. `memory` is that of the start of every
    sequence, `reading` what was noted."""
    sharing, steps = reader.sharing, trajectory.steps
    first = to_columns(steps.before.first, length)
    seen = with_kept(sights_of(reader, steps.before), reading.kept)
    read = sharing.map(lambda w, m, x: read_columns(reader, w[OTHERS], m, x, first)[0])
    columns = read(
        sharing.weights(params),
        sharing.groups(starts_of(memory), 1),
        sharing.groups(to_columns(seen, length), 2),
    )
    return from_columns(sharing.seats(columns, 2), steps.before.first.shape)


def starts_of(memory: Read) -> Float[Array, "column seat other hidden"]:
    """At the start of every column."""
    return jnp.swapaxes(memory.hidden, 0, 1).reshape(-1, *memory.hidden.shape[2:])


def read_columns(
    reader: Readers,
    weights: PyTree,  # [model, ...]
    hidden: Float[Array, "column seat other hidden"],
    seen: Float[Array, "column time seat other feature"],
    first: Bool[Array, "column time"],
) -> tuple[Float[Array, "column time seat other hidden"], Subgoal]:
    """Whole sequences."""
    columns, time = first.shape
    pairs, hidden, seen = seen.shape[2:4], by_model(weights, hidden), by_model(weights, seen)
    each = seen.shape[2]  # pairs that a model reads
    fresh = jnp.repeat(first.T, each, axis=1)

    def one(weights, hidden, seen):
        rows = jnp.moveaxis(seen, 1, 0).reshape(time, columns * each, -1)
        out = infer(reader.model, weights, hidden.reshape(columns * each, -1), rows, fresh)
        return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(time, columns, each, -1), 0, 1), out)

    out = jax.vmap(one, in_axes=(0, 2, 3), out_axes=3)(weights, hidden, seen)
    return jax.tree.map(lambda x: x.reshape(columns, time, *pairs, -1), out)


def by_model(weights: PyTree, x: Array) -> Array:
    """[..., seat, other, number] as [..., pair, model, number]: the pairs that each model is about."""
    models = jax.tree.leaves(weights)[0].shape[0]
    return x.reshape(*x.shape[:-3], -1, models, x.shape[-1])


def supposed(reading: Reading, key: Key) -> Float[Array, "*pair number"]:
    """What a co-player is taken to be up to: a drawn subgoal, and what was kept of it."""
    return with_kept(drawn(reading.subgoal, key), reading.kept)


def likeliest(reading: Reading) -> Float[Array, "*pair number"]:
    """The same with the subgoal where it most likely is."""
    return with_kept(reading.subgoal.mean, reading.kept)


def with_kept(x: Float[Array, "*pair number"], told: Array | tuple[()]) -> Float[Array, "*pair more"]:
    """With what was kept behind it, if anything is."""
    return x if isinstance(told, tuple) else jnp.concatenate([x, told], axis=-1)


def foreseen(
    reader: Readers,
    weights: PyTree,  # [model, ...]
    seen: Float[Array, "*rows seat other feature"],
    legal: Bool[Array, "*rows seat other action"],
    supposed: Float[Array, "*rows seat other number"],
) -> Float[Array, "*rows seat other action"]:
    """Log probabilities of what every co-player does next, if that is what it is up to."""
    return about_each(lambda w, *x: log_chances(reader.model, w, *x), weights, seen, legal, supposed)


def about_each(ask: Callable, weights: PyTree, *rows: Shaped[Array, "*rows seat other _"]) -> Array:
    """What every model says of the pairs that it is about."""
    pairs, axis = rows[0].shape[:-1], rows[0].ndim - 2
    each = jax.vmap(ask, (0, *[axis] * len(rows)), axis)
    return each(weights, *[by_model(weights, x) for x in rows]).reshape(*pairs, -1)


def foretold(
    reader: Readers,
    params: Seated,
    seen: Float[Array, "row seat other feature"],
    legal: Bool[Array, "row seat other action"],
    supposed: Float[Array, "row seat other number"],
) -> Float[Array, "row seat other action"]:
    """The same, by every seat with its own weights."""
    sharing = reader.sharing
    each = sharing.map(lambda w, *x: foreseen(reader, w[OTHERS], *x))
    return sharing.seats(each(sharing.weights(params), *sharing.groups((seen, legal, supposed), 1)), 1)
