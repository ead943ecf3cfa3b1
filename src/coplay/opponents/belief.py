"""What one player believes another one wants: Bayes' rule within an episode, a memory between episodes.

Everything here is about one pair of players; callers map it. Beliefs are kept as logs.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.opponents.goals import UNKNOWN

FLOOR = 0.02  # share of chance in every likelihood, so that one surprise never kills a goal
NEVER = -1e9  # log of a probability that is 0


def floored(
    policy: Float[Array, "goal action"], legal: Bool[Array, " action"]
) -> Float[Array, "goal action"]:
    """(1 - FLOOR) * policy + FLOOR / number of legal actions."""
    chance = jnp.where(legal, 1.0 / jnp.maximum(jnp.sum(legal), 1), 0.0)
    return (1.0 - FLOOR) * policy + FLOOR * chance[None, :]


def after_action(
    log_belief: Float[Array, " goal"], policy: Float[Array, "goal action"], action: Int[Array, ""]
) -> Float[Array, " goal"]:
    """Bayes' rule: b(g) <- b(g) * pi(a | o, g) / Z (b_ij and pi_w in the paper)."""
    likelihood = jnp.sum(jnp.where(_one_hot(action, policy.shape[1])[None, :], policy, 0.0), axis=1)
    return jax.nn.log_softmax(log_belief + jnp.log(jnp.maximum(likelihood, 1e-12)))


def over_possible(log_belief: Float[Array, " goal"], possible: Bool[Array, " goal"]) -> Float[Array, " goal"]:
    """Nothing is believed of a goal whose target is gone; if that was all, any that is left, alike."""
    left = jnp.where(possible, log_belief, NEVER)
    has_any = jnp.any(possible & (log_belief > NEVER / 2))
    return jax.nn.log_softmax(jnp.where(has_any, left, jnp.where(possible, 0.0, NEVER)))


def _one_hot(index: Int[Array, ""], size: int) -> Bool[Array, " size"]:
    return index == jnp.arange(size)


# --- between episodes ----------------------------------------------------------------------------


class Between(NamedTuple):
    """What is kept of a co-player from one episode to the next."""

    start: Callable  # () -> kept, with new company
    prior: Callable  # kept -> [goal] probabilities at the start of an episode
    keep: Callable  # kept, Episode -> kept, when an episode is over
    again: Callable | None = None  # kept, goals given away so far -> chance that it is after another one


class Episode(NamedTuple):
    """What an episode came to, as far as one co-player is concerned."""

    label: Int[Array, ""]  # the last goal it gave away, or UNKNOWN
    posterior: Float[Array, " goal"]  # what was believed at the end
    shown: Int[Array, ""]  # how many goals it gave away


def counters(num_goals: int, fade: float = 0.995) -> Between:
    """n_g <- fade * n_g + 1(g = label) for each labelled episode; the prior is n / sum n, all 1 at first.

    Fast at the start and slow at the end: after n labels the weight of the past is about n / (n + 1).
    """

    def keep(kept: Float[Array, " goal"], episode: Episode):
        counted = fade * kept + _one_hot(episode.label, num_goals)
        return jnp.where(episode.label == UNKNOWN, kept, counted)

    return Between(lambda: jnp.ones(num_goals), lambda kept: kept / jnp.sum(kept), keep)


def average(num_goals: int, alpha: float = 0.98) -> Between:
    """The published rule: b <- alpha * b + (1 - alpha) * 1(g = label)."""

    def keep(kept: Float[Array, " goal"], episode: Episode):
        moved = alpha * kept + (1.0 - alpha) * _one_hot(episode.label, num_goals)
        return jnp.where(episode.label == UNKNOWN, kept, moved)

    return Between(lambda: _alike(num_goals), lambda kept: kept, keep)


def sticky(num_goals: int, stay: float = 0.9) -> Between:
    """The last episode's posterior, with some doubt: quick to follow a player that changes its mind."""
    alike = _alike(num_goals)
    return Between(
        start=lambda: alike,
        prior=lambda kept: kept,
        keep=lambda kept, episode: stay * episode.posterior + (1.0 - stay) * alike,
    )


def removal_count(num_goals: int, fade: float = 0.98) -> Between:
    """How many goals a player gives away in an episode, where the last goal is to be after nothing more.

    n_k <- fade * n_k + 1(k = count), starting as one episode's worth of Poisson(1): quick with new company,
    and in the end a new episode weighs 0.02, as published. After k of them another one comes with
    P(N > k | N >= k).
    """
    most = num_goals - 1
    pmf = np.exp(-1.0) / np.cumprod(np.maximum(np.arange(num_goals), 1))
    start = pmf + (np.arange(num_goals) == 0) * (1.0 - pmf.sum())

    def again(kept: Float[Array, " count"], shown: Int[Array, ""]):
        count = jnp.arange(num_goals)
        reached = jnp.sum(jnp.where(count >= shown, kept, 0.0))
        beyond = jnp.sum(jnp.where(count > shown, kept, 0.0))
        return beyond / jnp.maximum(reached, 1e-9)

    def prior(kept: Float[Array, " count"]):
        chance = again(kept, jnp.int32(0))
        return jnp.append(jnp.full(most, chance / most), 1.0 - chance)

    def keep(kept: Float[Array, " count"], episode: Episode):
        return fade * kept + _one_hot(jnp.minimum(episode.shown, most), num_goals)

    return Between(lambda: jnp.asarray(start, jnp.float32), prior, keep, again)


def after_showing(
    log_belief: Float[Array, " goal"], possible: Bool[Array, " goal"], chance: Float[Array, ""]
) -> Float[Array, " goal"]:
    """A player gave a goal away: with that `chance` it is after another, else after nothing, the last."""
    is_last = jnp.arange(log_belief.shape[0]) == log_belief.shape[0] - 1
    another = over_possible(log_belief, possible & ~is_last) + jnp.log(jnp.maximum(chance, 1e-9))
    nothing = jnp.log(jnp.maximum(1.0 - chance, 1e-9))
    return jax.nn.log_softmax(jnp.where(is_last, nothing, another))


def nothing_kept(num_goals: int) -> Between:
    """Every episode begins with an open mind."""
    alike = _alike(num_goals)
    return Between(lambda: alike, lambda kept: alike, lambda kept, episode: kept)


def _alike(num_goals: int) -> Float[Array, " goal"]:
    return jnp.full(num_goals, 1.0 / num_goals)


BETWEEN: dict[str, Callable[[int], Between]] = {
    "counters": counters,
    "average": average,
    "removal_count": removal_count,
    "sticky": sticky,
    "none": nothing_kept,
}
