"""What one player believes another one wants, within an episode: Bayes' rule.

Everything here is about one pair of players; callers map it. Beliefs are kept as logs.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

FLOOR = 0.02  # share of chance in every likelihood, so that one surprise never kills a goal
SUREST = 0.999  # that somebody acts on a whim
NEVER = -1e9  # log of a probability that is 0


def floored(
    policy: Float[Array, "goal action"], legal: Bool[Array, " action"]
) -> Float[Array, "goal action"]:
    """(1 - FLOOR) * policy + FLOOR / number of legal actions."""
    return (1.0 - FLOOR) * policy + FLOOR * evenly(legal)[None, :]


def evenly(allowed: Bool[Array, "*batch choice"]) -> Float[Array, "*batch choice"]:
    """Alike over what is allowed."""
    return allowed / jnp.maximum(jnp.sum(allowed, axis=-1, keepdims=True), 1)


def after_action(
    log_belief: Float[Array, " goal"],
    policy: Float[Array, "goal action"],
    possible: Bool[Array, " goal"],
    action: Int[Array, ""],
) -> Float[Array, " goal"]:
    """Bayes' rule: b(g) <- b(g) * pi(a | o, g) / Z (b_ij and pi_w in the paper).

    Of goals that cannot be had nothing is learned, for or against: what is believed of them counts again in
    the next episode.
    """
    likelihood = jnp.maximum(_chance_of(policy, action), 1e-12)
    by_possible = jnp.sum(jnp.exp(over_possible(log_belief, possible)) * likelihood)
    likelihood = jnp.where(possible, likelihood, jnp.maximum(by_possible, 1e-12))
    return jax.nn.log_softmax(log_belief + jnp.log(likelihood))


def _chance_of(policy: Float[Array, "goal action"], action: Int[Array, ""]) -> Float[Array, " goal"]:
    return jnp.sum(jnp.where(one_hot(action, policy.shape[1])[None, :], policy, 0.0), axis=1)


def whim_after_action(
    whim: Float[Array, ""],
    log_belief: Float[Array, " goal"],
    policy: Float[Array, "goal action"],
    legal: Bool[Array, " action"],
    action: Int[Array, ""],
) -> Float[Array, ""]:
    """Bayes' rule for the chance that a player acts on a whim: anything that is legal, for no goal at all.

    `log_belief` is what it wants if it wants something. Never quite sure, so that it can change back.
    """
    for_goals = jnp.sum(jnp.exp(log_belief) * _chance_of(policy, action))
    by_whim = whim / jnp.maximum(jnp.sum(legal), 1)
    return jnp.minimum(by_whim / jnp.maximum(by_whim + (1.0 - whim) * for_goals, 1e-12), SUREST)


def over_possible(log_belief: Float[Array, " goal"], possible: Bool[Array, " goal"]) -> Float[Array, " goal"]:
    """Nothing is believed of a goal whose target is gone; if that was all, any that is left, alike."""
    left = jnp.where(possible, log_belief, NEVER)
    has_any = jnp.any(possible & (log_belief > NEVER / 2))
    return jax.nn.log_softmax(jnp.where(has_any, left, jnp.where(possible, 0.0, NEVER)))


def after_showing(
    log_belief: Float[Array, " goal"], possible: Bool[Array, " goal"], chance: Float[Array, ""]
) -> Float[Array, " goal"]:
    """A player gave a goal away: with that `chance` it is after another, else after nothing, the last."""
    is_last = jnp.arange(log_belief.shape[0]) == log_belief.shape[0] - 1
    another = over_possible(log_belief, possible & ~is_last) + jnp.log(jnp.maximum(chance, 1e-9))
    nothing = jnp.log(jnp.maximum(1.0 - chance, 1e-9))
    return jax.nn.log_softmax(jnp.where(is_last, nothing, another))


def one_hot(index: Int[Array, ""], size: int) -> Bool[Array, " size"]:
    return index == jnp.arange(size)
