"""Imagined play: from every real moment of a round a few steps on, and what the actor learns from it.

Each seat imagines for itself. It acts by its current policy, the others as its models of them foretell (or,
as a bound, by their own policies), and the game moves as one member of the world model says (or, as a bound,
as it does). Returns bootstrap at the cut, for a game that is no longer imagined is not over. Rows are made
with the policy that learns from them, in the same round, and thrown away with it.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from coplay.algorithms import value_scale
from coplay.algorithms.actor_critic import ActorCritic, read_rows, to_columns
from coplay.algorithms.losses import PolicyRows, log_policy
from coplay.algorithms.returns import lambda_returns
from coplay.algorithms.targets import ImaginedRows
from coplay.training.devices import total
from coplay.types import EnvState, Key, PyTree, Seated, TimeStep, Trajectory, pytree, stacked, stream


class Imagination(NamedTuple):
    """How to imagine. Games are [game, ...], those of the first seat first; `own` takes from [game, seat,
    ...] what each seat has in its own, [seat, moment, ...]."""

    model: ActorCritic
    steps: int
    branches: int  # from every real moment
    discount: float
    trace: float
    bootstraps: bool  # at the cut; else it is taken for the game's end, as the reference did
    guess: Callable  # notes, own, keys [seat] -> what the others are up to [seat, moment, other, number]
    others: Callable | None  # params, guess, timestep, own -> log chances [seat, moment, other, action]
    move: Callable  # params, state, action, key, first -> state, TimeStep, doubt; one game
    notice: Callable  # params, memory, notes, timestep -> memory, notes


@pytree
class Imagined:
    """What was imagined, [time, env, seat, step, ...], in the game's units; the steps of one branch after
    those of another."""

    policy_input: Float[Array, "*rows feature"]
    critic_input: Float[Array, "*rows view"]
    legal: Bool[Array, "*rows action"]
    action: Int[Array, "*rows"]
    log_prob: Float[Array, "*rows"]
    value: Float[Array, "*rows"]
    advantage: Float[Array, "*rows"]
    reward: Float[Array, "*rows"]
    doubt: Float[Array, "*rows"]  # disagreement of the models up to there, in nats
    counts: Bool[Array, "*rows"]
    # Nobody learns from these; they are told to whoever audits the others.
    next_value: Float[Array, "*rows"]  # of where the step led
    ends: Bool[Array, "*rows"]
    cut: Bool[Array, "*rows"]  # time was up
    company: Bool[Array, "*rows other"]  # who else was in the game, as they sit after this seat


@pytree
class Moment:
    """Where imagined games stand, [game, ...]: as many for every seat as there are real moments."""

    state: EnvState
    timestep: TimeStep
    memory: PyTree
    notes: PyTree
    doubt: Float[Array, " game"]


def imagine(
    imagination: Imagination,
    params: PyTree,
    trajectory: Trajectory,
    memory: PyTree,
    most: Int[Array, ""],
    key: Key,
) -> Imagined:
    """`memory` and the trajectory's notes are those of every real moment, [time, env, ...]. Steps after the
    first `most` count for nothing, and returns are cut there."""
    start = _start(imagination.model, trajectory, memory)
    shape = trajectory.steps.before.first.shape

    def one_branch(key: Key) -> Imagined:
        moments, rows = [start], []
        for step_key in jax.random.split(key, imagination.steps):
            moment, row = _one_step(imagination, params, moments[-1], step_key)
            moments.append(moment)
            rows.append(row)
        rows = stacked(rows)
        return _valued(imagination, params, moments, rows, shape, most)

    branches = jax.vmap(one_branch, out_axes=3)(jax.random.split(key, imagination.branches))
    return jax.tree.map(lambda x: x.reshape(*x.shape[:3], -1, *x.shape[5:]), branches)


def _start(model: ActorCritic, trajectory: Trajectory, memory: PyTree) -> Moment:
    """Every real moment, once for each seat."""
    steps, seats = trajectory.steps, len(model.seats)

    def for_each_seat(tree: PyTree) -> PyTree:
        """[time, env, ...] as [game, ...], the games of a seat side by side."""
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)
        return jax.tree.map(lambda x: jnp.concatenate([x] * seats), rows)

    return Moment(
        state=for_each_seat(steps.state),
        timestep=for_each_seat(steps.before),
        memory=for_each_seat(memory),
        notes=for_each_seat(steps.decision.notes),
        doubt=jnp.zeros(seats * steps.before.first.size),
    )


class Row(NamedTuple):
    """One imagined step, [seat, moment, ...]: each seat in its own games."""

    policy_input: Array
    critic_input: Array
    legal: Array
    action: Array
    log_prob: Array
    reward: Array
    ends: Array
    cut: Array  # time is up
    doubt: Array
    counts: Array
    company: Array


def _one_step(imagination: Imagination, params: PyTree, moment: Moment, key: Key) -> tuple[Moment, Row]:
    model, timestep = imagination.model, moment.timestep
    policy = params["policy"]
    identity = policy.own["seat"]["identity"]
    seen = {name: view(timestep, moment.notes, model.seats, policy) for name, view in model.views.items()}
    own = own_games(model)
    guess = imagination.guess(moment.notes, own, _seat_keys(stream(key, "others"), identity))
    log_own, of_others = company(imagination, params, seen["policy"], timestep, guess)
    by_place = jnp.concatenate([log_own[:, :, None], of_others], axis=2)
    drawn = _each(jax.random.categorical, stream(key, "act"), identity, by_place)  # [seat, moment, place]
    joint = _by_agent(model, drawn)
    games = timestep.first.shape[0]
    first = jnp.repeat(jnp.asarray(model.seats), games // len(model.seats))
    step_keys = _by_seat(_seat_keys(stream(key, "move"), identity), games)
    state, after, more_doubt = jax.vmap(imagination.move, (None, 0, 0, 0, 0))(
        params, moment.state, joint, step_keys, first
    )
    memory, notes = imagination.notice(params, moment.memory, moment.notes, after)
    doubt = moment.doubt + more_doubt
    action = drawn[:, :, 0]
    row = Row(
        policy_input=own(seen["policy"]),
        critic_input=own(seen["critic"]),
        legal=own(timestep.legal[:, model.index]),
        action=action,
        log_prob=jnp.take_along_axis(log_own, action[..., None], axis=-1)[..., 0],
        reward=own(after.reward[:, model.index]),
        ends=own(after.terminated[:, model.index]),
        cut=own(jnp.broadcast_to(after.truncated[:, None], (games, len(model.seats)))),
        doubt=doubt.reshape(len(model.seats), -1),
        counts=own(timestep.active[:, model.index]),
        company=_by_place(model, timestep.active[..., None])[:, :, 1:, 0],
    )
    goes_on = dataclasses.replace(
        after, first=jnp.zeros_like(after.first), active=after.active & ~after.truncated[:, None]
    )
    return Moment(state, goes_on, memory, notes, doubt), row


def _by_seat(keys: Key, games: int) -> Key:
    """A key for every game, from one for every seat."""
    return jax.vmap(lambda key: jax.random.split(key, games // keys.shape[0]))(keys).reshape(-1)


def company(
    imagination: Imagination,
    params: PyTree,
    inputs: Float[Array, "game seat feature"],
    timestep: TimeStep,
    guess: PyTree,
) -> tuple[Float[Array, "seat moment action"], Float[Array, "seat moment other action"]]:
    """Log chances of what each seat does in its own games, and of what everyone else does in them."""
    model, policy = imagination.model, params["policy"]
    own, legal = own_games(model), timestep.legal[:, model.index]
    if imagination.others is None:  # by their own policies: everyone's are asked in every game
        logits = read_rows(model, "policy", policy, (), inputs, timestep.first)[1]
        log_all = log_policy(logits, legal)
        return own(log_all), _by_place(model, log_all)[:, :, 1:]
    by_row = jnp.swapaxes(own(inputs), 0, 1)
    logits = read_rows(model, "policy", policy, (), by_row, jnp.zeros(by_row.shape[0], bool))[1]
    log_own = log_policy(jnp.swapaxes(logits, 0, 1), own(legal))
    return log_own, imagination.others(params, guess, timestep, own)


def _seat_keys(key: Key, identity: Int[Array, " seat"]) -> Key:
    return jax.vmap(jax.random.fold_in, (None, 0))(key, identity)


def own_games(model: ActorCritic) -> Callable[[Array], Array]:
    """From [game, seat, ...] to [seat, moment, ...]: everyone in the games that it imagines."""
    seats = len(model.seats)
    index = np.arange(seats)

    def own(x: Array) -> Array:
        return x.reshape(seats, -1, *x.shape[1:])[index, :, index]

    return own


def _by_place(model: ActorCritic, rows: Shaped[Array, "game agent number"]):
    """[seat, moment, place, number]: everyone by where they sit after the seat that imagines."""
    agents = rows.shape[1]
    order = (model.index[:, None] + np.arange(agents)[None]) % agents
    by_seat = rows.reshape(len(model.seats), -1, *rows.shape[1:])
    return jax.vmap(lambda x, order: x[:, order])(by_seat, jnp.asarray(order))


def _by_agent(model: ActorCritic, rows: Int[Array, "seat moment place"]) -> Int[Array, "game agent"]:
    """And back."""
    agents = rows.shape[2]
    place = (np.arange(agents)[None] - model.index[:, None]) % agents
    return jax.vmap(lambda x, place: x[:, place])(rows, jnp.asarray(place)).reshape(-1, agents)


def _each(draw: Callable, key: Key, identity: Int[Array, " seat"], rows: Array) -> Array:
    """A draw for every seat from a stream of its own, [seat, ...]."""
    return jax.vmap(draw)(_seat_keys(key, identity), rows).astype(jnp.int32)


# --- what it was worth ---------------------------------------------------------------------------


def _valued(imagination: Imagination, params: PyTree, moments: list[Moment], rows: Row, shape, most):
    """Values of every imagined moment, and what each step came to beyond them, bootstrapped at the cut."""
    model, policy = imagination.model, params["policy"]
    later = _values_after(imagination, policy, moments)  # [step, seat, moment]
    value = jnp.stack([values(model, policy, inputs) for inputs in rows.critic_input])
    step = jnp.arange(imagination.steps)[:, None, None]
    cut = rows.cut | (step + 1 >= most)
    goes_on = 1.0 - rows.ends.astype(jnp.float32)
    trace = imagination.trace
    follows = later
    if not imagination.bootstraps:
        follows, trace = jnp.zeros_like(later), 1.0
    returns = lambda_returns(rows.reward, follows, goes_on, cut, imagination.discount, trace)

    def laid_out(x: Array) -> Array:
        """[step, seat, moment, ...] as [time, env, seat, step, ...]."""
        moved = jnp.moveaxis(x, (0, 1, 2), (2, 1, 0))
        return moved.reshape(*shape, *moved.shape[1:])

    return Imagined(
        *[laid_out(x) for x in (rows.policy_input, rows.critic_input, rows.legal, rows.action)],
        log_prob=laid_out(rows.log_prob),
        value=laid_out(value),
        advantage=laid_out(returns - value),
        reward=laid_out(rows.reward),
        doubt=laid_out(rows.doubt),
        counts=laid_out(rows.counts & (step < most)),
        next_value=laid_out(later),
        ends=laid_out(rows.ends),
        cut=laid_out(rows.cut),
        company=laid_out(rows.company),
    )


def _values_after(imagination: Imagination, policy: Seated, moments: list[Moment]):
    """Of where each step led, read with what was noted before it: another note would be another game."""
    model = imagination.model
    own = own_games(model)
    inputs = [
        own(model.views["critic"](after.timestep, before.notes, model.seats, policy))
        for before, after in itertools.pairwise(moments)
    ]
    return jnp.stack([values(model, policy, rows) for rows in inputs])


def values(model: ActorCritic, policy: Seated, rows: Float[Array, "seat moment view"]):
    """By each seat's critic, in the game's units."""
    by_row = jnp.swapaxes(rows, 0, 1)
    first = jnp.zeros(by_row.shape[0], bool)
    normal = read_rows(model, "critic", policy, (), by_row, first)[1][..., 0]
    grouped = model.sharing.groups(normal[:, None], 2)
    real = model.sharing.map(lambda w, x: value_scale.denormalised(value_scale.scale_of(w), x))
    return model.sharing.seats(real(model.sharing.weights(policy), grouped), 2)[:, 0].T


# --- what is learned from ------------------------------------------------------------------------


class Use(NamedTuple):
    """How imagined rows are used."""

    share: Float[Array, ""]  # of the policy's loss; 0 while gates are closed
    doubt: float  # rows weigh exp(-doubt * disagreement), 1 on average
    for_critic: bool
    scaled: Callable  # scale of returns, advantages, which count -> advantages as real ones are scaled


def imagined_rows(
    model: ActorCritic, params: Seated, imagined: Imagined, use: Use, length: int
) -> ImaginedRows:
    """As columns of groups. The surrogate is linear in the advantage, so that a row's weight is put there:
    sums over imagined rows, divided by the number of real ones, are `share` times a weighted mean.

    Where nothing is shared, weights are 0 whatever the models say: a model that has lost its senses must not
    reach anybody through a closed gate, and 0 times NaN would."""
    each = model.sharing.map

    def columns(x: Array) -> Array:
        return model.sharing.groups(to_columns(x, length), 2)

    counts = columns(imagined.counts)
    real = columns(imagined.counts[..., 0])  # whoever is in the game at a real moment imagines
    weight = each(_weights)(columns(jnp.exp(-use.doubt * imagined.doubt)), counts, real)
    scale = each(value_scale.scale_of)(model.sharing.weights(params))
    advantage = each(use.scaled)(scale, columns(imagined.advantage), counts)
    predicted = each(value_scale.normalised)(scale, columns(imagined.value))
    return ImaginedRows(
        policy_input=columns(imagined.policy_input),
        policy=PolicyRows(
            legal=columns(imagined.legal),
            action=columns(imagined.action),
            log_prob=columns(imagined.log_prob),
            advantage=jnp.where(use.share > 0, advantage * weight * use.share, 0.0),
            counts=counts,
        ),
        critic_input=columns(imagined.critic_input) if use.for_critic else (),
        value=predicted,
        returns=columns(imagined.value + imagined.advantage),
        value_weight=jnp.where(
            counts & (use.share > 0), weight * use.share / jnp.maximum(1.0 - use.share, 0.05), 0.0
        ),
    )


def _weights(raw: Float[Array, "*rows"], counts: Bool[Array, "*rows"], real: Bool[Array, "*moments"]):
    """In proportion, so that they add up to the number of real rows."""
    added = total((jnp.sum(jnp.where(counts, raw, 0.0)), jnp.sum(real, dtype=jnp.float32)))
    return raw * (added[1] / jnp.maximum(added[0], 1e-9))
