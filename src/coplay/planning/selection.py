"""Which action a search tries next: pUCT anywhere in the tree, or Gumbel's sequential halving at its root."""

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coplay.planning.tree import Nodes

NEVER = -jnp.inf


def estimated_q(nodes: Nodes) -> Float[Array, "action search"]:
    """Mean return where an action was tried; elsewhere the node's value.

    A stand-in of 0 would make every untried action look bad where rewards are high, and good where they
    are low.
    """
    return jnp.where(nodes.visits > 0, nodes.q, nodes.value[None])


def reference_q(nodes: Nodes) -> Float[Array, "action search"]:
    """As in the published code: the total over N + 1, which pulls rarely tried actions towards 0."""
    return nodes.q * nodes.visits / (nodes.visits + 1.0)


Q_MODES = {"value": estimated_q, "reference": reference_q}


def puct_scores(nodes: Nodes, exploration: float, q_mode: str = "value") -> Float[Array, "action search"]:
    """Q(s, a) + c * prior(a) * sqrt(N(s)) / (1 + N(s, a)); minus infinity where illegal."""
    bonus = exploration * nodes.prior * jnp.sqrt(nodes.count)[None] / (1.0 + nodes.visits)
    return jnp.where(nodes.legal, Q_MODES[q_mode](nodes) + bonus, NEVER)


def best_action(
    scores: Float[Array, "action search"], tie: Float[Array, "action search"]
) -> Int[Array, " search"]:
    """The greatest score; equal ones are told apart by chance and not by their place.

    Chance is not added to scores: beside a score of 5 a millionth is lost in rounding, and what comes first
    would win a tie."""
    is_best = scores >= jnp.max(scores, axis=0, keepdims=True)
    return jnp.argmax(jnp.where(is_best, tie, -1.0), axis=0).astype(jnp.int32)


# --- sequential halving at the root --------------------------------------------------------------


def halving_schedule(num_simulations: int, num_considered: int) -> np.ndarray:
    """How often an action that is still considered has been tried when simulation s begins.

    Actions are tried in turn; after each round of equal length the worse half is left out.
    """
    if num_considered <= 1:
        return np.arange(num_simulations)
    rounds = math.ceil(math.log2(num_considered))
    visits, schedule, considered = np.zeros(num_considered, int), [], num_considered
    while len(schedule) < num_simulations:
        extra = max(1, num_simulations // (rounds * considered))
        for _ in range(extra):
            schedule.extend(visits[:considered])
            visits[:considered] += 1
        considered = max(2, considered // 2)
    return np.array(schedule[:num_simulations])


def gumbel_scores(
    nodes: Nodes, gumbel: Float[Array, "action search"], tried: Int[Array, ""]
) -> Float[Array, "action search"]:
    """Scores of the actions that have been tried exactly `tried` times, with noise and prior in them.

    Fewer may be legal than the schedule counts on; then the one tried least comes next.
    """
    scores = noisy_scores(nodes, gumbel)
    return jnp.where(nodes.legal, jnp.where(nodes.visits == tried, scores, -1e6 - nodes.visits), NEVER)


def noisy_scores(nodes: Nodes, gumbel: Float[Array, "action search"]) -> Float[Array, "action search"]:
    return gumbel + log_prior(nodes) + scaled_q(nodes)


def most_visited(nodes: Nodes, preference: Float[Array, "action search"]) -> Int[Array, " search"]:
    """The action visited most; among equals the one preferred."""
    is_most = nodes.visits == jnp.max(nodes.visits, axis=0, keepdims=True)
    return jnp.argmax(jnp.where(is_most & nodes.legal, preference, NEVER), axis=0).astype(jnp.int32)


def log_prior(nodes: Nodes) -> Float[Array, "action search"]:
    return jnp.log(jnp.maximum(nodes.prior, 1e-30))


def scaled_q(nodes: Nodes, visit_offset: float = 50.0, scale: float = 0.1) -> Float[Array, "action search"]:
    """Q brought to [0, 1] over the legal actions, and trusted the more the more was searched."""
    q = estimated_q(nodes)
    low = jnp.min(jnp.where(nodes.legal, q, jnp.inf), axis=0, keepdims=True)
    high = jnp.max(jnp.where(nodes.legal, q, -jnp.inf), axis=0, keepdims=True)
    unit = (q - low) / jnp.maximum(high - low, 1e-8)
    return (visit_offset + jnp.max(nodes.visits, axis=0, keepdims=True)) * scale * unit
