"""What players carry in mind about each other: beliefs of every seat about everyone who sits after it.

Beliefs move when something was seen (`watched`), before any reset, so that the end of an episode counts;
what is kept between episodes lies with the pair and starts afresh with new company. Beside what another one
wants there is the chance that it wants nothing and acts on a whim; otherwise every stumble of a random
player would be taken, and remembered, for a wish.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from coplay.opponents.belief import (
    after_action,
    after_showing,
    floored,
    over_possible,
    whim_after_action,
)
from coplay.opponents.between import Between, Episode
from coplay.opponents.goal_policy import Models, Wishes, policies, wishes
from coplay.opponents.goals import UNKNOWN
from coplay.types import PyTree, TimeStep, Transition, pytree


class Habits(NamedTuple):
    """How minds are made up."""

    between: Between  # what is kept from one episode to the next
    within: bool = True  # without it, beliefs stay through an episode what they were at its start
    whim: float = 0.0  # chance at first that a player wants nothing
    whim_stays: float = 0.9  # share of an episode's last word on it that the next one begins with


@pytree
class Mind:
    log_belief: Float[Array, "env seat other goal"]  # in this episode, of those who want something
    whim: Float[Array, "env seat other"]  # chance that it wants nothing
    kept: PyTree  # [env, seat, other, ...]: between episodes
    label: Int[Array, "env seat other"]  # the last goal given away while all could be had, or UNKNOWN
    shown: Int[Array, "env seat other"]  # how many were


def open_mind(habits: Habits, num_envs: int, num_seats: int, num_others: int) -> Mind:
    """With new company."""
    pairs = (num_envs, num_seats, num_others)
    kept = jax.tree.map(lambda x: jnp.broadcast_to(x, (*pairs, *x.shape)), habits.between.start())
    return Mind(
        log_belief=jnp.log(_per_pair(habits.between.prior)(kept)),
        whim=jnp.full(pairs, habits.whim, jnp.float32),
        kept=kept,
        label=jnp.full(pairs, UNKNOWN, jnp.int32),
        shown=jnp.zeros(pairs, jnp.int32),
    )


def _per_pair(function: Callable) -> Callable:
    return jax.vmap(jax.vmap(jax.vmap(function)))


def beliefs(models: Models, mind: Mind, wished: Wishes) -> Float[Array, "env seat other goal"]:
    """Probabilities over the goals that can still be had, for whoever wants something."""
    possible = wished.possible[:, models.others]
    return jnp.exp(_per_pair(over_possible)(mind.log_belief, possible))


def watched(
    models: Models,
    weights: PyTree,
    habits: Habits,
    mind: Mind,
    transition: Transition,
    shown: Int[Array, "env agent"],
) -> Mind:
    """After a step: Bayes' rule for everyone still in the game; at an episode's end, what is kept of it."""
    before, between = transition.before, habits.between
    wished = wishes(models.goals, before)
    policy = policies(models, weights, before, wished)
    action = transition.decision.action[:, models.others]
    possible, legal = wished.possible[:, models.others], before.legal[:, models.others]
    policy = _per_pair(floored)(policy, legal)
    moved = _per_pair(after_action)(mind.log_belief, policy, possible, action)
    wanted = _per_pair(over_possible)(mind.log_belief, possible)
    whim = _per_pair(whim_after_action)(mind.whim, wanted, policy, legal, action)
    is_in = before.active[:, models.others]
    told = jnp.where(is_in, shown[:, models.others], UNKNOWN)
    has_told = told != UNKNOWN
    count = mind.shown + has_told
    if between.again is not None:
        chance = _per_pair(between.again)(mind.kept, count)
        left = wishes(models.goals, transition.after).possible[:, models.others]
        moved = jnp.where(has_told[..., None], _per_pair(after_showing)(moved, left, chance), moved)
    mind = dataclasses.replace(
        mind,
        log_belief=jnp.where(is_in[..., None] & habits.within, moved, mind.log_belief),
        whim=jnp.where(is_in & habits.within, whim, mind.whim),
        label=jnp.where(has_told & jnp.all(possible, axis=-1), told, mind.label),
        shown=count,
    )
    return _turned_over(habits, mind, _is_over(transition.after))


def _is_over(after: TimeStep) -> Array:
    return after.truncated | jnp.all(after.terminated, axis=-1)


def _turned_over(habits: Habits, mind: Mind, is_over) -> Mind:
    """Where an episode has ended: keep what it told, and begin the next with the prior that follows.

    Of a player on a whim nothing is kept: what it stumbled on is no wish.
    """
    between = habits.between
    prior = _per_pair(between.prior)(mind.kept)
    posterior = jnp.exp(mind.log_belief)
    posterior = prior + (1.0 - mind.whim[..., None]) * (posterior - prior)
    label = jnp.where(mind.whim > 0.5, UNKNOWN, mind.label)
    kept = _per_pair(lambda kept, *told: between.keep(kept, Episode(*told)))(
        mind.kept, label, posterior, mind.shown
    )
    fresh = Mind(
        log_belief=jnp.log(jnp.maximum(_per_pair(between.prior)(kept), 1e-9)),
        whim=habits.whim_stays * mind.whim + (1.0 - habits.whim_stays) * habits.whim,
        kept=kept,
        label=jnp.full_like(mind.label, UNKNOWN),
        shown=jnp.zeros_like(mind.shown),
    )
    return chosen(is_over, fresh, mind)


def chosen(mask, new: Mind, old: Mind) -> Mind:
    """`new` in the games where `mask` holds."""
    return jax.tree.map(lambda n, o: jnp.where(mask.reshape(-1, *(1,) * (n.ndim - 1)), n, o), new, old)
