"""Proximal policy optimisation for the seats of a game, and MAPPO: the same with a joint-view critic.

A policy and a critic network; parameters per agent, shared, or shared and told who it is. Rows of
players that have left are in no loss and no statistic; `terminated` ends a return, `truncated` does not.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from coplay.algorithms import value_scale
from coplay.algorithms.actor_critic import (
    CRITIC_HEADS,
    ActorCritic,
    actor_critic,
    as_algorithm,
    memory_of,
    sequences,
)
from coplay.algorithms.additions import Additions, nothing_added
from coplay.algorithms.alignment import alignment
from coplay.algorithms.drift_watch import Judged, drift_watch, not_watched
from coplay.algorithms.glance import sample
from coplay.algorithms.losses import (
    TaughtRows,
    Terms,
    ToldTerms,
    clipped_policy_loss,
    clipped_value_loss,
    log_policy,
    taught_loss,
    told_terms,
    value_errors,
    weighed,
)
from coplay.algorithms.ppo_config import PPOConfig
from coplay.algorithms.rewards import learning_reward
from coplay.algorithms.targets import (
    Batch,
    ImaginedRows,
    Lesson,
    Round,
    ToldRows,
    make_batch,
    usual_lesson,
)
from coplay.algorithms.value_scale import ValueScale
from coplay.algorithms.views import View, joint_view, own_view
from coplay.taps import TERMS, tap
from coplay.training.devices import total
from coplay.training.stages import Fit, fit, in_order
from coplay.types import Algorithm, Environment, Key, Metrics, PyTree, Seated, Stage, Trajectory

FEWEST_COLUMNS = 16  # of a gradient chunk that is read tick by tick, where there are so many
ROWS = "rows/"  # figures: how many rows taught the policy and how many the search


class Plan(NamedTuple):
    """What a learner must know of the run around it."""

    num_updates: int
    sequence_length: int
    num_envs: int
    num_steps: int


def ppo(
    env: Environment,
    seats: tuple[int, ...],
    config: PPOConfig,
    plan: Plan,
    critic_view: View = own_view,
    watched: bool = True,
) -> Algorithm:
    """Not `watched`: the same weights and no word of how far they move (for `coplay bench drift`)."""
    learning_reward(config.learning_reward, config.team_share)  # a bad name is refused before anything runs
    model, init = actor_critic(env, seats, config, {"policy": own_view, "critic": critic_view})
    return as_algorithm(
        model, init, in_order({"policy": ppo_stage(env, model, config, plan, watched=watched)})
    )


def mappo(
    env: Environment, seats: tuple[int, ...], config: PPOConfig, plan: Plan, watched: bool = True
) -> Algorithm:
    return ppo(env, seats, config, plan, joint_view, watched)


def ppo_stage(
    env: Environment,
    model: ActorCritic,
    config: PPOConfig,
    plan: Plan,
    lesson: Lesson | None = None,
    extra: Additions | None = None,
    learners: Callable | None = None,
    watched: bool = True,
) -> Stage:
    """Targets from the round, then a few epochs of descent, every group of seats by itself: all at once, or
    as `learners(descend, log_prob)` has them."""
    lesson, extra = lesson or usual_lesson(config), extra or _added(model, config)
    config = _clipped_by_team(config, len(model.seats))
    each, weights_of = model.sharing.map, model.sharing.weights
    optimiser = _optimiser(config, plan, extra.rates)
    surrogate = functools.partial(_policy_loss, config, extra)
    watch = drift_watch(model, surrogate) if watched else not_watched
    loss = functools.partial(_loss, model, config, extra)
    descend = fit(
        loss,
        optimiser,
        Fit(config.epochs, config.minibatches, _chunk_rows(model, config, plan), _goes_on(config)),
    )

    def told(networks: PyTree, batch: Batch) -> ToldTerms:
        return told_terms(loss, lambda *now: _terms(model, config, extra, *now)[0], networks, batch)

    def all_at_once(networks, optimisers, batch, count, keys):
        return each(lambda w, o, b, k: descend(w, o, b, count, k))(networks, optimisers, batch, keys)

    log_prob = functools.partial(_log_prob, extra)
    descend_all = learners(descend, log_prob) if learners else all_at_once

    def init(params):
        networks = _networks(model, weights_of(params))
        return _learner(model, each(optimiser.init)(networks), watch.init(params), extra.init(params))

    def update(params, learner, trajectory: Trajectory, key: Key, beside: Beside | None = None):
        batch, scale, earned, figures = make_batch(
            env, model, config, lesson, plan.sequence_length, params, trajectory
        )
        batch = _mixed(batch, beside, each(value_scale.normalised), scale) if beside else batch
        state = weights_of(learner).get("extra", ())
        batch = extra.prepare(params, state, trajectory, batch)
        keys = model.sharing.keys(key, params.own["seat"]["identity"])
        before = weights_of(params)
        tap("rows", lambda: _told(model, trajectory, plan, batch, log_prob, before))
        tap(TERMS + "policy", lambda: each(told)(_networks(model, before), batch))
        networks, optimiser_state, sums = descend_all(
            _networks(model, before), weights_of(learner)["optimiser"], batch, _counted, keys
        )
        figures |= _named(sums) | _counters(config, each(_counted)(batch))
        figures |= extra.tell(figures, state)
        weights = before | networks | ({"scale": scale} if "scale" in before else {})
        after = model.sharing.pack(weights, params.own["seat"])
        seen = sample(model, params, trajectory, plan.sequence_length)
        judged = Judged(batch, earned, figures["value/explained_variance"])
        kept, moved = watch.look(params, after, weights_of(learner)["watch"], judged, seen)
        after, state, more = extra.finish(after, state, seen.glance, moved["drift/kl"])
        return after, _learner(model, optimiser_state, kept, state), figures | moved | more

    return Stage(init, update)


def _added(model: ActorCritic, config: PPOConfig) -> Additions:
    return alignment(model, config) if config.align_weight else nothing_added(model)


def _told(
    model: ActorCritic, trajectory: Trajectory, plan: Plan, batch: Batch, log_prob: Callable, weights: PyTree
) -> ToldRows:
    """What is about to be learned from, and how likely it is under the weights that are about to learn."""
    played = Round(model, trajectory, plan.sequence_length if model.has_memory else plan.num_steps)
    again = model.sharing.map(log_prob)(_networks(model, weights), batch)
    rows = (batch.policy_input, batch.policy, again, batch.valued, batch.value, batch.target, batch.imagined)
    return ToldRows(*played.back(rows))


def _clipped_by_team(config: PPOConfig, players: int) -> PPOConfig:
    """Ratios of n players multiply: each within a clip of 0.2, eight together may reach 1.2^8 = 4.3."""
    return dataclasses.replace(config, clip=config.clip / players) if config.clip_by_team else config


def _learner(model: ActorCritic, optimiser_state: PyTree, watched: PyTree, state: PyTree) -> Seated:
    own = {"extra": state} if state else {}
    return model.sharing.pack({"optimiser": optimiser_state, "watch": watched} | own, {})


def _chunk_rows(model: ActorCritic, config: PPOConfig, plan: Plan) -> int:
    """Memory is read tick by tick, each tick for all columns of a chunk: too few would be slow. Where whole
    actors are made for every row, as few as are asked for: they are large."""
    is_large = getattr(config, "made", "") == "full"
    fewest = FEWEST_COLUMNS * plan.sequence_length if model.has_memory and not is_large else 0
    return max(config.chunk_rows, fewest)


def _goes_on(config: PPOConfig) -> Callable | None:
    """Whether another epoch is begun: not once policies have moved by half more than they may."""
    if config.stop_kl is None:
        return None
    most = 1.5 * config.stop_kl
    return lambda sums: _named(sums)["policy/kl"] <= most


class Beside(NamedTuple):
    """Rows that were not played, and their share of the policy's loss."""

    rows: ImaginedRows
    share: Float[Array, ""]


def _mixed(batch: Batch, beside: Beside, normalised: Callable, scale: ValueScale) -> Batch:
    """The surrogate is linear in the advantage, so the real rows' share is put there. Imagined returns are
    put to the scale that this round's real ones have."""
    policy = dataclasses.replace(batch.policy, advantage=batch.policy.advantage * (1.0 - beside.share))
    rows = dataclasses.replace(beside.rows, returns=normalised(scale, beside.rows.returns))
    return dataclasses.replace(batch, policy=policy, imagined=rows)


def _networks(model: ActorCritic, weights: PyTree) -> PyTree:
    """What is learned by descent here: not the critic's scale, nor what others have put there."""
    return {name: weights[name] for name in model.networks}


def _optimiser(config: PPOConfig, plan: Plan, rates: dict[str, float]) -> optax.GradientTransformation:
    steps = plan.num_updates * config.epochs * config.minibatches
    falls = [optax.scale_by_schedule(optax.linear_schedule(1.0, 0.0, steps))] if config.anneal else []
    parts = [clip_each_part(config.max_grad_norm), optax.scale_by_adam(eps=1e-5), *falls]
    return optax.chain(*parts, step_by(config.learning_rate, rates))


def _loss(
    model: ActorCritic, config: PPOConfig, extra: Additions, weights, batch: Batch
) -> tuple[Array, Metrics]:
    terms, figures = _terms(model, config, extra, weights, batch)
    return weighed(terms, loss_terms(config)), figures


def _terms(
    model: ActorCritic, config: PPOConfig, extra: Additions, weights, batch: Batch
) -> tuple[Terms, Metrics]:
    """What the loss is put together from, and figures."""

    def read(name: str, inputs) -> Array:
        memory = memory_of(model, batch.memory, name)
        return sequences(model, name, weights, memory, inputs, batch.first)[1]

    logits, more_terms, more_figures = extra.speak(weights, batch)
    value = read("critic", batch.policy_input if model.same_view else batch.critic_input)[..., 0]
    logits, rows, taught, value, old_value, target, valued = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[3:]),
        (logits, batch.policy, batch.taught, value, batch.value, batch.target, batch.valued),
    )
    value_loss = clipped_value_loss(value, old_value, target, valued, config.value_clip, config.huber)
    terms = {"value": value_loss} | more_terms
    decided = {}
    if isinstance(taught, TaughtRows):
        terms["search"] = taught_loss(logits, rows.legal, taught)
        decided["search"] = taught.is_taught
        rows = dataclasses.replace(rows, counts=rows.counts & ~taught.is_taught)
    terms["policy"], terms["entropy"], figures = clipped_policy_loss(
        logits, rows, config.clip, config.surrogate_floor
    )
    if isinstance(batch.imagined, ImaginedRows):
        more, figures_there, decided["imagined"] = _imagined_terms(config, read, batch.imagined)
        terms, figures = terms | more, figures | figures_there
    figures |= more_figures
    figures |= {f"{name}/loss": terms[name] for name in ("value", "search") if name in terms}
    decided["policy"] = rows.counts
    figures |= {ROWS + name: jnp.sum(counts, dtype=jnp.float32) for name, counts in decided.items()}
    return terms, figures


def _policy_loss(config: PPOConfig, extra: Additions, weights: PyTree, batch: Batch) -> Array:
    """PPO's surrogate alone, as a mean over the rows that count."""
    logits = extra.speak(weights, batch)[0].reshape(-1, batch.policy.legal.shape[-1])
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), batch.policy)
    loss = clipped_policy_loss(logits, rows, config.clip, config.surrogate_floor)[0]
    return loss / jnp.maximum(jnp.sum(rows.counts), 1)


def _log_prob(extra: Additions, weights: PyTree, batch: Batch) -> Float[Array, "column time seat"]:
    """Of the actions taken, under these weights."""
    log_all = log_policy(extra.speak(weights, batch)[0], batch.policy.legal)
    return jnp.take_along_axis(log_all, batch.policy.action[..., None], axis=-1)[..., 0]


def _imagined_terms(config: PPOConfig, read: Callable, rows: ImaginedRows):
    """The same losses over rows that were imagined, their figures, and which rows counted."""
    rows = jax.tree.map(lambda x: x.reshape(*x.shape[:2], -1, *x.shape[4:]), rows)  # steps among the seats
    policy = jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), rows.policy)
    logits = read("policy", rows.policy_input)
    surrogate, _, figures = clipped_policy_loss(logits.reshape(-1, logits.shape[-1]), policy, config.clip)
    terms = {"imagined": surrogate}
    if not isinstance(rows.critic_input, tuple):
        value = read("critic", rows.critic_input)[..., 0]
        error = value_errors(value, rows.value, rows.returns, config.value_clip, config.huber)
        terms["imagined_value"] = jnp.sum(jnp.where(rows.policy.counts, error * rows.value_weight, 0.0))
        figures["value/loss"] = jnp.sum(jnp.where(rows.policy.counts, error, 0.0))
    return terms, {f"imagined/{name}": x for name, x in figures.items()}, policy.counts


def loss_terms(config: PPOConfig) -> dict[str, float]:
    """What the loss is made of, and with which weight; a term of weight 0 is left out of the program."""
    terms = {"policy": 1.0, "entropy": -config.entropy_weight, "value": config.value_weight}
    terms |= {"search": getattr(config, "search_weight", 0.0)}
    if getattr(config, "real_share", 1.0) < 1:
        terms |= {"imagined": 1.0, "imagined_value": config.value_weight}
    terms |= config.added_terms
    return {name: weight for name, weight in terms.items() if weight}


def _counted(batch: Batch) -> Float[Array, ""]:
    return jnp.sum(batch.valued).astype(jnp.float32)


def _named(sums: Metrics) -> Metrics:
    """Figures of policy and search per row that each decided; gradients by the network they move."""
    names = {"grad_norm/critic": "value/grad_norm", "epochs": "policy/epochs"}
    names |= {f"grad_norm/{part}": f"{part}/grad_norm" for part in ("policy", "generator", CRITIC_HEADS)}

    def per_row(name: str) -> Array:
        share = sums.get(ROWS + name.partition("/")[0])  # of the rows that teach anything
        return sums[name] if share is None else sums[name] / jnp.maximum(share, 1e-6)

    return {names.get(name, name): per_row(name) for name in sums if not name.startswith(ROWS)}


def _counters(config: PPOConfig, samples: Float[Array, "*group"]) -> Metrics:
    return {
        "count/updates/policy": jnp.full_like(samples, config.epochs * config.minibatches),
        "count/samples/policy": total(samples) * config.epochs,
    }


def step_by(rate: float, others: dict[str, float]) -> optax.GradientTransformation:
    """Steps downhill of so much; of the networks named in `others`, of that much.

    Rates are kept in the optimiser's state, so that runs which differ in nothing else share their program."""

    def init(params):
        return {name: jnp.float32(others.get(name, rate)) for name in params}

    def step(updates, state, params=None):
        moved = {name: jax.tree.map(lambda x, r=state[name]: -r * x, part) for name, part in updates.items()}
        return moved, state

    return optax.GradientTransformation(init, step)


def clip_each_part(most: float) -> optax.GradientTransformation:
    """Scale each network's gradient to at most `most`, so that a loud critic cannot silence the policy."""

    def clip(updates, state, params=None):
        def one(part):
            norm = optax.global_norm(part)
            scale = jnp.minimum(1.0, most / jnp.maximum(norm, 1e-12))
            return jax.tree.map(lambda x: x * scale, part)

        return {name: one(part) for name, part in updates.items()}, state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), clip)
