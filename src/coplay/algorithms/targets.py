"""From a round of play to what PPO's loss reads: values, advantages, targets, laid out as columns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from coplay.algorithms import value_scale
from coplay.algorithms.actor_critic import (
    ActorCritic,
    from_columns,
    memory_of,
    peek,
    read_step,
    sequences,
    to_columns,
)
from coplay.algorithms.losses import PolicyRows, TaughtRows
from coplay.algorithms.returns import RETURNS
from coplay.algorithms.rewards import added, learning_reward, outlives_players
from coplay.algorithms.value_scale import ValueScale
from coplay.taps import tap
from coplay.training.devices import masked_mean
from coplay.types import Environment, Memory, Metrics, PyTree, Seated, Trajectory, Transition, pytree

Settings = Any  # returns, discount, trace, learning reward and value normalisation, as in PPOConfig


@pytree
class ImaginedRows:
    """What a policy learns from beside its round, [column, time, seat, step, ...]; shares and weights are in
    the advantage already."""

    policy_input: Float[Array, "*rows feature"]
    policy: PolicyRows
    critic_input: Float[Array, "*rows view"] | tuple[()]  # () where the critic learns from real rows only
    value: Float[Array, "*rows"]  # predicted, normalised
    returns: Float[Array, "*rows"]  # in the game's units
    value_weight: Float[Array, "*rows"]


@pytree
class Batch:
    """One round of play as columns [column, time, seat, ...], a column being one sequence of one game."""

    policy_input: Float[Array, "*rows feature"]
    critic_input: Float[Array, "*rows view"] | tuple[()]  # () where it is the policy's
    policy: PolicyRows
    taught: TaughtRows | tuple[()]  # () where nothing was searched
    valued: Bool[Array, "*rows"]  # rows that teach the critic
    value: Float[Array, "*rows"]  # predicted before the update, normalised
    target: Float[Array, "*rows"]  # normalised
    first: Bool[Array, "*columns"]
    memory: Memory
    imagined: ImaginedRows | tuple[()] = ()
    beside: PyTree = ()  # what terms beside PPO's own read (algorithms/additions.py)


@pytree
class Estimates:
    """What targets are made of, [time, env, seat], in the game's units."""

    reward: Float[Array, "time env seat"]  # that is taught
    value: Float[Array, "time env seat"]
    next_value: Float[Array, "time env seat"]  # of where each step led
    advantage: Float[Array, "time env seat"]
    counts: Bool[Array, "time env seat"]  # rows that teach the policy


@pytree
class ToldRows:
    """What a policy and a critic are about to learn from, [time, env, seat, ...]; values are normalised."""

    policy_input: Float[Array, "*rows feature"]
    policy: PolicyRows
    again: Float[Array, "*rows"]  # log-probabilities of what was done, by the weights as they are now
    valued: Bool[Array, "*rows"]
    value: Float[Array, "*rows"]
    target: Float[Array, "*rows"]
    imagined: ImaginedRows | tuple[()]


class Targets(NamedTuple):
    batch: Batch
    scale: ValueScale  # of values, with this round's returns
    earned: Float[
        Array, "*rows"
    ]  # returns with a trace of 1, in the game's units: what critics are judged by
    figures: Metrics


class Round(NamedTuple):
    """A round of play, and how its arrays are turned into columns of groups and back."""

    model: ActorCritic
    trajectory: Trajectory
    length: int  # of a column

    def columns(self, tree: PyTree) -> PyTree:
        """[time, env, seat, ...] as one row per group, then [column, time, seat, ...]."""
        return self.model.sharing.groups(jax.tree.map(lambda x: to_columns(x, self.length), tree), 2)

    def back(self, tree: PyTree) -> PyTree:
        shape = self.trajectory.steps.before.first.shape
        return jax.tree.map(lambda x: from_columns(x, shape), self.model.sharing.seats(tree, 2))


class Lesson(NamedTuple):
    """Which rows of a round teach, and by which reward. Functions of (steps, seats) -> [time, env, seat]."""

    rows: Callable  # that teach the policy
    reward: Callable
    searched: Callable | None = None  # where a search decided: its policy teaches, not the reward
    valued: Callable | None = None  # that teach the critic, those and more; None: the same
    critic_notes: Callable | None = None  # notes -> what the critic learns with in their place


def in_the_game(steps: Transition, seats: tuple[int, ...]) -> Bool[Array, "time env seat"]:
    return steps.before.active[..., np.array(seats)]


def usual_lesson(settings: Settings) -> Lesson:
    """Every row of a player that is still in the game, by the learning reward of the settings."""
    reward = learning_reward(settings.learning_reward, settings.team_share)
    return Lesson(in_the_game, lambda steps, seats: reward(steps)[..., np.array(seats)])


def make_batch(
    env: Environment,
    model: ActorCritic,
    settings: Settings,
    lesson: Lesson,
    length: int,
    params: Seated,
    trajectory: Trajectory,
) -> "Targets":
    """Everything the loss reads, and how well the critic had foreseen returns."""
    played = Round(model, trajectory, length if model.has_memory else trajectory.steps.before.first.shape[0])
    steps, each, scaled = trajectory.steps, model.sharing.map, standardiser(settings)
    memory = _column_memory(model, trajectory)
    notes = steps.decision.notes
    seen = played.columns(model.views["critic"](steps.before, notes, model.seats, params))
    normal, value, next_value = _values(env, played, params, memory, seen)
    counts = lesson.rows(steps, model.seats)
    reward = lesson.reward(steps, model.seats)
    advantage = advantages(model, settings, steps, reward, value, next_value, settings.trace)
    tap("estimates", lambda: Estimates(reward, value, next_value, advantage, counts))
    returns, counted = played.columns(advantage + value), played.columns(counts)
    valued = played.columns(lesson.valued(steps, model.seats)) if lesson.valued else counted
    scale = each(value_scale.scale_of)(model.sharing.weights(params))
    if settings.value_normalisation:
        scale = each(value_scale.updated)(scale, returns, valued)
    if lesson.critic_notes:
        others = lesson.critic_notes(notes)
        seen = played.columns(model.views["critic"](steps.before, others, model.seats, params))
        normal = _read_critic(played, params, memory, seen)[1]
    batch = Batch(
        policy_input=played.columns(model.views["policy"](steps.before, notes, model.seats, params)),
        critic_input=() if model.same_view else seen,
        policy=PolicyRows(
            legal=played.columns(steps.before.legal[..., model.index, :]),
            action=played.columns(steps.decision.action[..., model.index]),
            log_prob=played.columns(steps.decision.log_prob[..., model.index]),
            advantage=each(scaled)(scale, played.columns(advantage), counted),
            counts=counted,
        ),
        taught=_taught(played, lesson, counts),
        valued=valued,
        value=normal,
        target=each(value_scale.normalised)(scale, returns),
        first=model.sharing.alike(to_columns(steps.before.first, played.length), len(model.seats)),
        memory=memory,
    )
    full = advantages(model, settings, steps, reward, value, next_value, trace=1.0)
    earned = played.columns(full + value)
    return Targets(batch, scale, earned, each(value_fit)(played.columns(value), earned, valued))


def _taught(played: Round, lesson: Lesson, counts: Bool[Array, "time env seat"]) -> TaughtRows | tuple[()]:
    if lesson.searched is None:
        return ()
    steps, model = played.trajectory.steps, played.model
    is_taught = counts & lesson.searched(steps, model.seats)
    return TaughtRows(played.columns(is_taught), played.columns(steps.decision.policy[..., model.index, :]))


def _column_memory(model: ActorCritic, trajectory: Trajectory) -> Memory:
    """Memory at the start of each column, [group, column, seat, hidden]."""
    if not model.has_memory:
        return ()
    columns = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), trajectory.memory)
    return model.sharing.groups(columns, 1)


def _values(env, played: Round, params: Seated, memory: Memory, seen):
    """Predictions as columns in normalised units, and [time, env, seat] in the game's: before, and after.

    The value of `after` is the next row's, except at a cut, where `after` is looked at itself.
    """
    model, steps = played.model, played.trajectory.steps
    weights, each = model.sharing.weights(params), model.sharing.map
    remembered, normal = _read_critic(played, params, memory, seen)
    real = each(_in_the_games_units)
    value = played.back(real(weights, normal))
    after = jnp.concatenate([value[1:], _last_values(model, params, played.trajectory)[None]])
    if env.can_truncate:
        # What was noted before a cut stands in for what would be noted after it.
        shown = played.columns(model.views["critic"](steps.after, steps.decision.notes, model.seats, params))
        at_cut = each(lambda w, m, x: peek(model, w, m, x)[..., 0])(weights, remembered, shown)
        after = jnp.where(steps.after.truncated[..., None], played.back(real(weights, at_cut)), after)
    return normal, value, after


def _read_critic(played: Round, params: Seated, memory: Memory, seen: Float[Array, "*rows view"]):
    """Memory after every step, and predictions as columns in normalised units."""
    model, first = played.model, to_columns(played.trajectory.steps.before.first, played.length)
    remembered, normal = model.sharing.map(lambda w, m, x: sequences(model, "critic", w, m, x, first))(
        model.sharing.weights(params), memory_of(model, memory, "critic"), seen
    )
    return remembered, normal[..., 0]


def _in_the_games_units(weights: PyTree, value: Float[Array, "*rows"]) -> Float[Array, "*rows"]:
    return value_scale.denormalised(value_scale.scale_of(weights), value)


def _last_values(model: ActorCritic, params: Seated, trajectory: Trajectory) -> Float[Array, "env seat"]:
    """Values of where play goes on; unused where the last step ended a game."""
    memory = memory_of(model, trajectory.next_memory, "critic")
    notes = model.notice(params, trajectory.next_memory, trajectory.next)
    normal = read_step(model, "critic", params, memory, trajectory.next, notes)[1][..., 0]
    grouped = model.sharing.groups(normal[:, None], 2)
    weights = model.sharing.weights(params)
    return model.sharing.seats(model.sharing.map(_in_the_games_units)(weights, grouped), 2)[:, 0]


def advantages(
    model: ActorCritic,
    settings: Settings,
    steps: Transition,
    reward: Float[Array, "time env seat"],
    value: Float[Array, "time env seat"],
    next_value: Float[Array, "time env seat"],
    trace: float,
) -> Float[Array, "time env seat"]:
    """What each decision was worth beyond what the critic expected, in the reward that is taught."""
    ends = steps.after.terminated[..., model.index]
    if outlives_players(settings.learning_reward):
        # Who has left still earns its share of what the team goes on to earn, so its return runs on to
        # the end of the game. Its own critic is never trained there: the company's mean value stands in.
        ends = jnp.broadcast_to(jnp.all(steps.after.terminated, axis=-1, keepdims=True), ends.shape)
        next_value = _or_company(next_value, steps.after.active[..., model.index])
        value = _or_company(value, steps.before.active[..., model.index])
    cut = jnp.broadcast_to(steps.after.truncated[..., None], ends.shape)
    estimate = RETURNS[settings.returns]
    return estimate(reward, value, next_value, ends, cut, settings.discount, trace)


def _or_company(
    value: Float[Array, "*rows seat"], holds: Bool[Array, "*rows seat"]
) -> Float[Array, "*rows seat"]:
    """The value where it holds, elsewhere the mean of those that do."""
    sum_of_those = added(jnp.where(holds, value, 0.0))
    return jnp.where(holds, value, sum_of_those / jnp.maximum(jnp.sum(holds, axis=-1, keepdims=True), 1))


def standardiser(settings: Settings) -> Callable:
    """A function of a scale of returns, advantages and which of them count.

    A round's own deviation is large where something rare was paid, so that dividing by it makes little of
    just what is rare; the running deviation of returns is the same with and without."""

    def scaled(scale: ValueScale, advantage: Float[Array, "*rows"], counts: Bool[Array, "*rows"]):
        axes = tuple(range(advantage.ndim))
        centred = advantage - masked_mean(advantage, counts, axes)
        if settings.advantage_scale == "round":
            deviation = jnp.sqrt(masked_mean(centred**2, counts, axes)) + 1e-8
        else:
            deviation = value_scale.mean_and_deviation(scale)[1]
        return jnp.where(counts, centred / deviation, 0.0)

    return scaled


def value_fit(value: Float[Array, "*rows"], returns: Float[Array, "*rows"], counts) -> Metrics:
    """How well the critic had foreseen what was earned up to the end of the round. `returns` have a trace of
    1: others lean on the critic that they are to judge."""
    axes = tuple(range(value.ndim))

    def mean(x):
        return masked_mean(x, counts, axes)

    def variance(x):
        return mean((x - mean(x)) ** 2)

    deviation = jnp.sqrt(variance(returns))
    return {
        "value/explained_variance": 1.0 - variance(returns - value) / jnp.maximum(variance(returns), 1e-8),
        "value/bias": mean(value - returns) / jnp.maximum(deviation, 1e-3),
        "value/return_std": deviation,
        "value/prediction_mean": mean(value),
        "value/prediction_std": jnp.sqrt(variance(value)),
    }
