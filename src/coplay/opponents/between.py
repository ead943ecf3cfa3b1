"""What one player keeps in mind of another from one episode to the next: the prior its beliefs start from.

Everything here is about one pair of players; callers map it. With new company it starts afresh.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coplay.opponents.belief import one_hot
from coplay.opponents.goals import UNKNOWN
from coplay.types import PyTree, pytree


class Between(NamedTuple):
    """What is kept of a co-player from one episode to the next."""

    start: Callable  # () -> kept, with new company
    prior: Callable  # kept -> [goal] probabilities at the start of an episode
    keep: Callable  # kept, Episode -> kept, when an episode is over
    again: Callable | None = None  # kept, goals given away so far -> chance that it is after another one


class Episode(NamedTuple):
    """What an episode came to, as far as one co-player is concerned."""

    label: Int[Array, ""]  # the last goal it gave away while it had the choice, or UNKNOWN
    posterior: Float[Array, " goal"]  # what was believed at the end
    shown: Int[Array, ""]  # how many goals it gave away


def counters(num_goals: int, fade: float = 0.995, start: float = 1.0) -> Between:
    """n_g <- fade * n_g + 1(g = label) for each labelled episode, from `start` on; the prior is n / sum n.

    Fast at the start and slow at the end: after n labels the weight of the past is about n / (n + 1).
    """

    def keep(kept: Float[Array, " goal"], episode: Episode):
        counted = fade * kept + one_hot(episode.label, num_goals)
        return jnp.where(episode.label == UNKNOWN, kept, counted)

    return Between(lambda: jnp.full(num_goals, start, jnp.float32), lambda kept: kept / jnp.sum(kept), keep)


def average(num_goals: int, alpha: float = 0.98) -> Between:
    """The published rule: b <- alpha * b + (1 - alpha) * 1(g = label)."""

    def keep(kept: Float[Array, " goal"], episode: Episode):
        moved = alpha * kept + (1.0 - alpha) * one_hot(episode.label, num_goals)
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
        return fade * kept + one_hot(jnp.minimum(episode.shown, most), num_goals)

    return Between(lambda: jnp.asarray(start, jnp.float32), prior, keep, again)


@pytree
class Weighed:
    """What each of several rules keeps, and how well it has foretold lately."""

    kept: PyTree  # one for each rule
    log_weight: Float[Array, " rule"]


def weighed(num_goals: int, fade: float = 0.9) -> Between:
    """Several rules, each believed as far as it has foretold what its episodes came to.

    A rule's evidence in an episode is the chance that its prior gave to what was seen:
    sum over goals of prior(g) * likelihood(g), and posterior / prior is that likelihood up to a constant.
    Log weights fade, so that whoever changes is not held to its past for long.
    """
    rules = [
        nothing_kept(num_goals),
        sticky(num_goals, 0.9),
        sticky(num_goals, 0.99),
        counters(num_goals, start=0.3),
    ]

    def priors(kept: Weighed) -> Float[Array, "rule goal"]:
        return jnp.stack([rule.prior(one) for rule, one in zip(rules, kept.kept, strict=True)])

    def prior(kept: Weighed) -> Float[Array, " goal"]:
        return jnp.sum(jax.nn.softmax(kept.log_weight)[:, None] * priors(kept), axis=0)

    def keep(kept: Weighed, episode: Episode) -> Weighed:
        likelihood = episode.posterior / jnp.maximum(prior(kept), 1e-9)
        evidence = jnp.sum(priors(kept) * likelihood[None, :], axis=1)
        told = tuple(rule.keep(one, episode) for rule, one in zip(rules, kept.kept, strict=True))
        return Weighed(told, fade * kept.log_weight + jnp.log(jnp.maximum(evidence, 1e-9)))

    def start() -> Weighed:
        return Weighed(tuple(rule.start() for rule in rules), jnp.zeros(len(rules), jnp.float32))

    return Between(start, prior, keep)


def nothing_kept(num_goals: int) -> Between:
    """Every episode begins with an open mind."""
    alike = _alike(num_goals)
    return Between(lambda: alike, lambda kept: alike, lambda kept, episode: kept)


def _alike(num_goals: int) -> Float[Array, " goal"]:
    return jnp.full(num_goals, 1.0 / num_goals, jnp.float32)


BETWEEN: dict[str, Callable[[int], Between]] = {
    "counters": counters,
    "average": average,
    "removal_count": removal_count,
    "sticky": sticky,
    "weighed": weighed,
    "none": nothing_kept,
}
