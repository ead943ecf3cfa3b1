"""What holds play near what it was: a term of the loss, and its weight, which may follow how far play moves.

`align` is KL(reference || new) over the rows that teach the policy. The reference is the policy that played;
a generated actor may hold on to an older copy of its generator instead (`hyper_terms.py`).
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from coplay.algorithms.actor_critic import ActorCritic
from coplay.algorithms.additions import Additions, nothing_added
from coplay.algorithms.glance import Glance
from coplay.algorithms.losses import TaughtRows, log_policy
from coplay.algorithms.targets import Batch, Round
from coplay.diagnostics.drift import divergence
from coplay.types import PyTree, Seated, Trajectory

WEAKEST, STRONGEST, STEP = 1e-4, 10.0, 1.5  # of align's weight, and the factor it moves by
LEAST = 1e-30  # taken for the chance of a move that was not legal, so that it has a logarithm

Settings = Any  # align_weight, align_adaptive and align_target, as in PPOConfig


def alignment(model: ActorCritic, config: Settings) -> Additions:
    """PPO that is held near the policy that played."""
    plain = nothing_added(model)

    def init(params: Seated) -> PyTree:
        return {"strength": full_strength(model, params)}

    def prepare(params: Seated, state: PyTree, trajectory: Trajectory, batch: Batch) -> Batch:
        beside = held(state["strength"], as_played(model, trajectory, batch), batch)
        return dataclasses.replace(batch, beside=beside)

    def speak(weights: PyTree, batch: Batch):
        logits = plain.speak(weights, batch)[0]
        return logits, *align(logits, batch)

    def finish(after: Seated, state: PyTree, seen: Glance, moved: Float[Array, " seat"]):
        strength, figures = followed(model, config, state["strength"], moved)
        return after, {"strength": strength}, figures

    return plain._replace(init=init, prepare=prepare, speak=speak, finish=finish)


# --- the term ------------------------------------------------------------------------------------


def held(strength: Float[Array, "*group"], reference: Array, batch: Batch) -> dict[str, Array]:
    """What `align` reads of a batch: log-probabilities to hold on to, and how much they count for now."""
    return {
        "strength": jnp.broadcast_to(strength[..., None], batch.first.shape[:-1]),
        "reference": reference,
    }


def as_played(model: ActorCritic, trajectory: Trajectory, batch: Batch) -> Float[Array, "*rows action"]:
    """Log-probabilities of all moves when they were drawn, laid out as the batch is."""
    policy = trajectory.steps.decision.policy[..., model.index, :]
    return Round(model, trajectory, batch.first.shape[-1]).columns(jnp.log(jnp.maximum(policy, LEAST)))


def align(logits: Float[Array, "column time seat action"], batch: Batch) -> tuple[dict, dict]:
    """KL(reference || new) over rows that count: a term, in its present strength, and a figure, as it is."""
    kl = divergence(batch.beside["reference"], log_policy(logits, batch.policy.legal))
    counts = batch.policy.counts
    if isinstance(batch.taught, TaughtRows):  # a search is to be followed, wherever it leads
        counts = counts & ~batch.taught.is_taught
    kl = jnp.where(counts, kl, 0.0)
    strength = batch.beside["strength"][:, None, None]
    return {"align": jnp.sum(kl * strength)}, {"align/divergence": jnp.sum(kl)}


# --- its weight ----------------------------------------------------------------------------------


def full_strength(model: ActorCritic, params: Seated) -> Float[Array, "*group"]:
    """Align's weight as a multiple of its first, for every group that shares weights."""
    return model.sharing.map(lambda weights: jnp.float32(1.0))(model.sharing.weights(params))


def followed(
    model: ActorCritic, config: Settings, strength: Float[Array, "*group"], moved: Float[Array, " seat"]
) -> tuple[Float[Array, "*group"], dict[str, Array]]:
    """More where play moved too far, less where it hardly did; and what that comes to."""
    if config.align_adaptive and config.align_weight:
        moved = jnp.mean(model.sharing.groups(moved, 0), axis=-1)
        strength = strengthened(config, strength, moved)
    return strength, {"align/weight": strength * config.align_weight}


def strengthened(
    config: Settings, strength: Float[Array, "*group"], kl: Float[Array, "*group"]
) -> Float[Array, "*group"]:
    """A step up or down, where `kl` is beyond half again as much as it should be, or below two thirds."""
    factor = jnp.where(
        kl > STEP * config.align_target, STEP, jnp.where(kl < config.align_target / STEP, 1 / STEP, 1.0)
    )
    return jnp.clip(strength * factor, WEAKEST / config.align_weight, STRONGEST / config.align_weight)
