"""What hypernetwork MAPPO adds to PPO: terms that keep play gentle, a copy to hold on to, and its figures.

- `smooth`: neighbouring increments should act alike, KL(pi(o_t; theta_(t-1)) || pi(o_t; theta_t)) on one
  observation, or be alike as numbers. Only where something was regenerated within an episode.
- `align` (`alignment.py`): an update should not move play far from the policy that played, or from an older
  copy of the generator (the anchor). Its weight follows what was measured.

A copy may also play (`target = "act"`): then drift is told of the copy, which moves when it is made anew.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from coplay.algorithms.actor_critic import (
    CRITIC_HEADS,
    ActorCritic,
    memory_of,
    network_of,
    sequences,
    speak,
)
from coplay.algorithms.additions import Additions
from coplay.algorithms.alignment import align, as_played, followed, full_strength, held
from coplay.algorithms.drift_watch import play_figures
from coplay.algorithms.glance import Glance, in_slices
from coplay.algorithms.hyper_config import HyperMAPPOConfig
from coplay.algorithms.hyper_pretrained import STEPS
from coplay.algorithms.losses import log_policy
from coplay.algorithms.ppo import Plan, loss_terms
from coplay.algorithms.targets import Batch
from coplay.diagnostics.drift import divergence
from coplay.nets.hyper import Spoken
from coplay.training.devices import masked_mean, total
from coplay.types import Metrics, PyTree, Seated, Trajectory


def additions(model: ActorCritic, config: HyperMAPPOConfig, plan: Plan) -> Additions:
    """Everything below, in the places where PPO asks for it."""

    smooths = bool(config.smooth_weight and config.moves_in_time)

    def prepare(params: Seated, state: PyTree, trajectory: Trajectory, batch: Batch) -> Batch:
        beside = {}
        if config.align_weight:
            beside |= held(state["strength"], _reference(model, config, params, trajectory, batch), batch)
        if smooths:
            beside["moved"] = _share_of_moved(model, model.sharing.weights(params), batch)
        return dataclasses.replace(batch, beside=beside) if beside else batch

    def speak_and_add(weights: PyTree, batch: Batch):
        memory = memory_of(model, batch.memory, "policy")
        spoken = speak(model, weights, memory, batch.policy_input, batch.first)
        terms, figures = align(spoken.logits, batch) if config.align_weight else ({}, {})
        if smooths:
            terms["smooth"] = figures["hyper/smooth"] = _smooth(model, config, weights, batch, spoken)
        if smooths and config.smooth == "weight":
            figures["hyper/smooth_relative"] = terms["smooth"] / _mean_square(weights["policy"])
        return spoken.logits, terms, figures

    def finish(after: Seated, state: PyTree, seen: Glance, moved: Float[Array, " seat"]):
        figures = _figures(model, after, seen)
        rounds = state["rounds"] + 1
        onward = _moved_on(model, config, plan, after, rounds)
        if config.target == "act":
            played, plays = (that_plays(model, config, params) for params in (after, onward))
            moved = play_figures(model, played, after, seen)["drift/kl"]  # what align holds down
            figures |= play_figures(model, played, plays, seen) | {"hyper/lag": jnp.mean(moved)}
        strength, followed_by = followed(model, config, state["strength"], moved)
        figures |= followed_by
        if config.pretrain is not None:
            figures["count/steps/pretrain"] = after.own["seat"][STEPS].astype(jnp.float32)
        return onward, {"strength": strength, "rounds": rounds}, figures

    rates = {"generator": config.generator_rate, CRITIC_HEADS: config.generator_rate}
    return Additions(
        begin=lambda params: _begun(model, config, params),
        init=lambda params: {"strength": full_strength(model, params), "rounds": jnp.int32(0)},
        prepare=prepare,
        speak=speak_and_add,
        tell=lambda figures, state: _shares(config, figures, state["strength"]),
        finish=finish,
        rates=rates,
    )


# --- what is kept beside the weights -------------------------------------------------------------


COPIED = {"none": (), "anchor": ("generator",), "act": ("policy", "generator")}


def that_plays(model: ActorCritic, config: HyperMAPPOConfig, params: Seated) -> Seated:
    """The weights that play: the copy's, where there is one to play."""
    if config.target != "act":
        return params
    weights = model.sharing.weights(params)
    return model.sharing.pack(weights | weights["target"], params.own["seat"])


def _begun(model: ActorCritic, config: HyperMAPPOConfig, params: Seated) -> Seated:
    weights, seats = model.sharing.weights(params), params.own["seat"]
    if config.target != "none":
        weights = weights | {"target": {name: weights[name] for name in COPIED[config.target]}}
    if config.explore:
        seats = seats | {"exploring": jnp.full(len(model.seats), config.explore, jnp.float32)}
    if config.pretrain is not None:
        seats = seats | {STEPS: jnp.zeros(len(model.seats), jnp.int32)}
    return model.sharing.pack(weights, seats)


def _moved_on(model: ActorCritic, config: HyperMAPPOConfig, plan: Plan, params: Seated, rounds) -> Seated:
    """The copy is made anew where it is due, and less is explored."""
    weights, seats = model.sharing.weights(params), params.own["seat"]
    if config.target != "none":
        is_due = rounds % config.target_every == 0
        new = {name: weights[name] for name in COPIED[config.target]}
        copy = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), new, weights["target"])
        weights = weights | {"target": copy}
    if config.explore:
        left = jnp.maximum(0.0, 1.0 - 2.0 * rounds / plan.num_updates)
        seats = seats | {"exploring": jnp.full(len(model.seats), config.explore) * left}
    return model.sharing.pack(weights, seats)


# --- terms ---------------------------------------------------------------------------------------


def _reference(
    model: ActorCritic, config: HyperMAPPOConfig, params: Seated, trajectory: Trajectory, batch: Batch
):
    """Log-probabilities that align holds on to: as it was played, or as the copy would have."""
    if config.target != "anchor":
        return as_played(model, trajectory, batch)
    weights = model.sharing.weights(params)
    copied = weights | weights["target"]
    memory = memory_of(model, batch.memory, "policy")
    logits = sequences(model, "policy", copied, memory, batch.policy_input, batch.first)[1]
    return log_policy(logits, batch.policy.legal)


def _share_of_moved(model: ActorCritic, weights: PyTree, batch: Batch) -> Float[Array, "column time seat"]:
    """What each row counts for in `_smooth`: nothing where increments did not move, elsewhere so much that
    the sum over all rows, divided by those that teach as `fit` does, is the mean over rows that moved."""
    memory = memory_of(model, batch.memory, "policy")
    generator, counts = network_of(model, weights, "generator"), batch.policy.counts
    is_moved = generator.is_moved(memory, batch.first, counts.shape[-1]) & _since_before(counts)
    taught, moved = (total(jnp.sum(x, dtype=jnp.float32)) for x in (batch.valued, is_moved))
    return is_moved * (taught / jnp.maximum(moved, 1.0))


def _smooth(
    model: ActorCritic, config: HyperMAPPOConfig, weights: PyTree, batch: Batch, spoken: Spoken
) -> Float[Array, ""]:
    """How far increments moved, summed over rows as much as each counts."""
    memory = memory_of(model, batch.memory, "policy")
    generator, share = network_of(model, weights, "generator"), batch.beside["moved"]
    if config.smooth == "weight":
        apart = generator.apart(spoken.numbers, generator.before(memory, spoken.numbers))
    else:
        apart = _response(model, weights, memory, batch.policy_input, batch.policy.legal, spoken)
    return jnp.sum(jnp.where(share > 0, apart * share, 0.0))


def _response(
    model: ActorCritic, weights: PyTree, memory: PyTree, rows: Array, legal: Array, spoken: Spoken
) -> Array:
    """How far each step's increments move play from those of the step before, on one observation."""
    earlier = network_of(model, weights, "generator").before(memory, spoken.numbers)
    before = log_policy(_logits(model, weights, rows, earlier), legal)
    return divergence(before, log_policy(spoken.logits, legal))


def _mean_square(weights: PyTree) -> Float[Array, ""]:
    leaves = jax.tree.leaves(weights)
    return jnp.asarray(sum(jnp.sum(leaf**2) for leaf in leaves) / sum(leaf.size for leaf in leaves))


def _logits(model: ActorCritic, weights: PyTree, rows: Array, numbers: Array) -> Array:
    """What the actor says to these rows with these increments."""
    generator, actor = network_of(model, weights, "generator"), network_of(model, weights, "policy")
    own = rows[..., : generator.shape.context.told.observation]
    return generator.explored(rows, generator.speak(actor, own, numbers))


def _since_before(counts: Bool[Array, "column time seat"]) -> Bool[Array, "column time seat"]:
    """Whether a step counts and the one before did; who is there in the first of a column, and did not begin
    there, was there before."""
    return counts & jnp.roll(counts, 1, axis=1).at[:, 0].set(True)


# --- figures -------------------------------------------------------------------------------------


FIGURES = {
    "policy": "policy/loss",
    "entropy": "policy/entropy",
    "value": "value/loss",
    "align": "align/divergence",
}


def _shares(config: HyperMAPPOConfig, figures: Metrics, strength: Float[Array, ""]) -> Metrics:
    """What each term is of the loss, all taken without sign; and smoothness beside the policy's own term,
    which it should stay below."""
    sizes = {
        name: abs(weight) * jnp.abs(figures[FIGURES.get(name, f"hyper/{name}")])
        for name, weight in loss_terms(config).items()
    }
    if "align" in sizes:
        sizes["align"] = sizes["align"] * strength
    whole = jnp.maximum(sum(sizes.values()), 1e-12)
    shares = {f"hyper/share/{name}": size / whole for name, size in sizes.items()}
    if "smooth" in sizes:
        shares["hyper/smooth_share"] = sizes["smooth"] / jnp.maximum(sizes["policy"], 1e-12)
    return shares


def _figures(model: ActorCritic, params: Seated, seen: Glance) -> Metrics:
    """How large increments are, and what they change, on a sample of the round."""
    weights = model.sharing.weights(params)
    generator, actor = network_of(model, weights, "generator"), network_of(model, weights, "policy")

    def look(memory, inputs, legal, first) -> dict[str, Array]:
        spoken = generator.read(actor, memory, inputs, first)
        plain = log_policy(_logits(model, weights, inputs, jnp.zeros_like(spoken.numbers)), legal)
        chances = jnp.exp(log_policy(spoken.logits, legal))
        found = {
            "effect": 0.5 * jnp.sum(jnp.abs(chances - jnp.exp(plain)), axis=-1),
            "length": generator.length(spoken.numbers),
        }
        if spoken.numbers.ndim == 2:
            return found
        found["length"] = found["length"].reshape(inputs.shape[:3])
        response = _response(model, weights, memory, inputs, legal, spoken)
        return found | {"response": response, "is_moved": generator.is_moved(memory, first, inputs.shape[2])}

    found = in_slices(model, look, (seen.memory, seen.inputs, seen.legal, seen.first))
    theta = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(weights["policy"])))
    figures = {
        "hyper/delta_effect": masked_mean(found["effect"], seen.active, (0, 1, 2)),
        "hyper/delta_share": jnp.mean(found["length"]) / theta,
    }
    if "response" not in found:
        return figures
    is_moved = found["is_moved"] & _since_before(seen.active)
    return figures | {"hyper/response": masked_mean(found["response"], is_moved, (0, 1, 2))}
