"""How HOP's models of co-players learn: what did they do, now that it is known what they wanted?

A round is learned from one round late, because games that a round cuts off are labelled when they end. Only
steps of players still in the game that gave a goal away later in it are learned from; of our own seats, if
asked, only those that were under orders: a free player that took a hare may have waited for a stag first.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms.glance import STATES
from coplay.algorithms.ppo import Plan
from coplay.algorithms.sharing import Sharing
from coplay.algorithms.staleness import aged, mean_surprise, unborn
from coplay.opponents.goal_policy import Models, log_chances, wishes
from coplay.opponents.goals import UNKNOWN, hindsight_labels, lost_goals, shown_goals
from coplay.taps import tap
from coplay.training.devices import total
from coplay.training.rollout import is_over
from coplay.training.stages import Fit, PerEnv, fit
from coplay.types import Environment, Key, Metrics, Params, PyTree, Stage, Trajectory, pytree

MOST_WEIGHT = 5.0  # of a rare goal's steps
Settings = Any  # the model_* fields of HOPConfig and chunk_rows


@pytree
class Played:
    """A round as co-players' models learn from it, [env, time, agent, ...]."""

    seen: Float[Array, "env time agent feature"]  # rows and what was legal
    description: Float[Array, "env time agent goal detail"]
    legal: Bool[Array, "env time agent action"]
    action: Int[Array, "env time agent"]
    teaches: Bool[Array, "env time agent"]  # in the game, and to be learned from
    shown: Int[Array, "env time agent"]
    lost: Bool[Array, "env time agent"]  # a goal was gone with this step
    is_over: Bool[Array, "env time"]


@pytree
class Rows:
    """What one model learns from, [column, time, ...]."""

    seen: Float[Array, "*rows feature"]
    legal: Bool[Array, "*rows action"]
    action: Int[Array, "*rows"]
    weight: Float[Array, "*rows"]  # 0 where nothing is to be learned


def opponent_stage(
    env: Environment,
    models: Models,
    sharing: Sharing,
    settings: Settings,
    plan: Plan,
    ordered: Callable | None = None,
) -> Stage:
    """`ordered`, if given, says whose steps are learned from: a function of steps -> [time, env, agent]."""
    optimiser = optax.adam(settings.model_learning_rate, eps=1e-5)

    def loss(weights, rows: Rows):
        log_chance = log_chances(models, weights["model"], rows.seen, rows.legal)
        surprise = -_of_action(log_chance, rows.action)
        is_counted = rows.weight > 0
        figures = _fit(log_chance, surprise, rows.action, is_counted)
        return jnp.sum(jnp.where(is_counted, rows.weight * surprise, 0.0)), figures

    pieces = Fit(settings.model_epochs, settings.model_minibatches, settings.chunk_rows)
    descend = fit(loss, optimiser, pieces)
    each_pair = jax.vmap(jax.vmap(lambda w, o, rows, key: descend({"model": w}, o, rows, _counted, key)))

    def init(params: Params):
        weights = sharing.weights(params)
        state = jax.vmap(jax.vmap(lambda w: optimiser.init({"model": w})))(weights)
        packed = sharing.pack({"optimiser": state, "age": sharing.map(unborn)(weights)}, {})
        return type(packed)(own=packed.own, common=packed.common | {"last": PerEnv(_nothing(env, plan))})

    def update(params: Params, learner, trajectory: Trajectory, key: Key):
        now = _played(env, models, trajectory, ordered)
        before: Played = learner.common["last"].per_env
        label = _labels(settings, before, now) if settings.models == "goals" else jnp.zeros_like(before.shown)
        rows = _rows(models, before, label)
        tap("opponents/round_before", lambda: (rows, before, label))
        keys = _keys(key, models)
        old, kept = sharing.weights(params), sharing.weights(learner)
        learned, state, sums = each_pair(old, kept["optimiser"], rows, keys)
        new, few = learned["model"], _sample(rows)
        age, stale = aged("drift/model_staleness", lambda w: _surprise(models, w, few), kept["age"], old, new)
        packed = sharing.pack({"optimiser": state, "age": age}, {})
        learner = type(packed)(own=packed.own, common=packed.common | {"last": PerEnv(now)})
        return sharing.pack(new, {}), learner, _figures(env.action_names, sums, rows) | stale

    return Stage(init, update)


def _of_action(values: Float[Array, "*rows action"], action: Int[Array, "*rows"]) -> Float[Array, "*rows"]:
    return jnp.sum(jnp.where(jax.nn.one_hot(action, values.shape[-1], dtype=bool), values, 0.0), axis=-1)


def _fit(log_chance: Float[Array, "*rows action"], surprise, action, is_counted: Bool[Array, "*rows"]):
    """Sums over the rows that count: surprise, how often the action was the likeliest or among three, and how
    often each action was taken and foreseen."""
    likelier = jnp.sum(log_chance > -surprise[..., None], axis=-1)

    def add(x: Array) -> Array:
        return jnp.sum(jnp.where(is_counted, x, 0.0))

    figures = {"surprise": add(surprise), "top1": add(likelier == 0), "top3": add(likelier < 3)}
    for index in range(log_chance.shape[-1]):
        figures[f"taken/{index}"] = add(action == index)
        figures[f"foreseen/{index}"] = add((action == index) & (likelier == 0))
    return figures


def _sample(rows: Rows) -> Rows:
    """A thousand for each seat that count, if there are as many; few do, so that some games would not be
    enough. Those of the last games come first, in which no moves were planned. [seat, other, row, ...]"""
    others, games, time = rows.weight.shape[1:]
    number = min(games * time, STATES // others)

    def of_pair(rows: Rows) -> Rows:
        counts = rows.weight.reshape(-1) > 0
        from_end = jnp.nonzero(counts[::-1], size=number, fill_value=counts.size)[0]
        at = counts.size - 1 - from_end  # below 0 for none
        few = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[at], rows)
        return dataclasses.replace(few, weight=jnp.where(at >= 0, few.weight, 0.0))

    return jax.vmap(jax.vmap(of_pair))(rows)


def _surprise(models: Models, weights: PyTree, rows: Rows) -> Float[Array, " seat"]:
    """Cross-entropy of each seat's models, over all its co-players."""
    log_chance = jax.vmap(jax.vmap(lambda w, *x: log_chances(models, w, *x)))(weights, rows.seen, rows.legal)
    return mean_surprise(-_of_action(log_chance, rows.action), rows.weight > 0, (1, 2))


def _keys(key: Key, models: Models) -> Key:
    """One for each pair, by who the co-player is from where the model's owner sits."""
    seats, others = models.others.shape
    return jnp.broadcast_to(jax.random.split(key, others)[None], (seats, others))


def _counted(rows: Rows) -> Float[Array, ""]:
    return jnp.sum(rows.weight > 0).astype(jnp.float32)


# --- rounds --------------------------------------------------------------------------------------


def _played(
    env: Environment, models: Models, trajectory: Trajectory, ordered: Callable | None = None
) -> Played:
    steps = trajectory.steps
    before = steps.before
    teaches = before.active if ordered is None else before.active & ordered(steps)
    arrays = (
        jnp.concatenate([before.observation, before.legal.astype(jnp.float32)], axis=-1),
        wishes(models.goals, before).description,
        before.legal,
        steps.decision.action,
        teaches,
        shown_goals(env, steps),
        lost_goals(models.goals, steps),
        is_over(steps.after),
    )
    return Played(*[jnp.swapaxes(x, 0, 1) for x in arrays])


def _nothing(env: Environment, plan: Plan) -> Played:
    """Before the first round: nobody is there to learn from."""
    shape = (plan.num_envs, plan.num_steps, env.num_agents)
    return Played(
        seen=jnp.zeros((*shape, env.observation_size + env.num_actions)),
        description=jnp.zeros((*shape, len(env.goals.names), env.goals.features)),
        legal=jnp.ones((*shape, env.num_actions), bool),
        action=jnp.zeros(shape, jnp.int32),
        teaches=jnp.zeros(shape, bool),
        shown=jnp.full(shape, UNKNOWN, jnp.int32),
        lost=jnp.zeros(shape, bool),
        is_over=jnp.zeros(shape[:2], bool),
    )


def _labels(settings: Settings, before: Played, now: Played) -> Int[Array, "env time agent"]:
    """What players had been after in the round before, as far as this round tells."""

    def labelled(played: Played, upcoming: Int[Array, "env agent"]):
        shown, lost, is_over = (jnp.swapaxes(x, 0, 1) for x in (played.shown, played.lost, played.is_over))
        return hindsight_labels(shown, is_over, upcoming, lost if settings.labels == "steady" else None)

    _, first = labelled(now, jnp.full_like(now.shown[:, 0], UNKNOWN))
    return jnp.swapaxes(labelled(before, first)[0], 0, 1)


def _rows(models: Models, played: Played, label: Int[Array, "env time agent"]) -> Rows:
    """Everyone's rows with the goal they had, [seat, other, env, time, ...]."""
    counts = played.teaches & (label != UNKNOWN)
    is_label = jax.nn.one_hot(label, played.description.shape[-2], dtype=bool)
    goal = jnp.sum(jnp.where(is_label[..., None], played.description, 0.0), axis=-2)
    weight = jax.vmap(_balanced, in_axes=(2, 2), out_axes=2)(is_label, counts)
    rows = Rows(jnp.concatenate([played.seen, goal], axis=-1), played.legal, played.action, weight)
    return jax.tree.map(lambda x: jnp.moveaxis(x[:, :, models.others], (2, 3), (0, 1)), rows)


def _balanced(
    is_label: Bool[Array, "env time goal"], counts: Bool[Array, "env time"]
) -> Float[Array, "env time"]:
    """Weights by one over how often a goal was seen, with mean 1; rare goals count no more than so much."""
    seen = total(jnp.sum(jnp.where(counts[..., None], is_label, False), axis=(0, 1), dtype=jnp.float32))
    share = seen / jnp.maximum(jnp.sum(seen), 1.0)
    raw = jnp.minimum(1.0 / jnp.maximum(share, 1e-6), MOST_WEIGHT)
    raw = raw / jnp.maximum(jnp.sum(share * raw), 1e-6)
    return jnp.where(counts, jnp.sum(jnp.where(is_label, raw[None, None], 0.0), axis=-1), 0.0)


def _figures(action_names: tuple[str, ...], sums: Metrics, rows: Rows) -> Metrics:
    """By the place of the co-player after each owner: 1 is the next seat. NaN where nothing was seen."""
    samples = total(jnp.sum(rows.weight > 0, axis=(2, 3), dtype=jnp.float32))
    figures: Metrics = {"count/samples/opponents": jnp.sum(samples, axis=1)}
    for other in range(samples.shape[1]):
        place, seen = f"opponents/{other + 1}", samples[:, other] > 0
        for name in ("surprise", "top1", "top3"):
            figures[f"{place}/{name}"] = jnp.where(seen, sums[name][:, other], jnp.nan)
        for index, action in enumerate(action_names):
            taken, foreseen = sums[f"taken/{index}"][:, other], sums[f"foreseen/{index}"][:, other]
            recall = jnp.where(taken > 0, foreseen / jnp.maximum(taken, 1e-9), jnp.nan)
            figures[f"{place}/recall/{action}"] = recall
    return figures
