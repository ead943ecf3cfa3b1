"""How far each update moved the players, measured on a sample of its round (diagnostics/drift.py).

Kept cheap: a quarter of the round at most, and at every update only how far play moved. The rest comes every
tenth: gradients, how differently players act, what the critic foresees. What compares such an update with the
next (how the gradient turned, how stale the critic is) is told by the next.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from coplay.algorithms import value_scale
from coplay.algorithms.actor_critic import ActorCritic, memory_of, sequences
from coplay.algorithms.glance import Glance, Sample, glance, in_a_row, policy_at, some_games
from coplay.algorithms.targets import Batch, value_fit
from coplay.diagnostics import drift
from coplay.training.devices import Masked, masked_mean, masked_means, total
from coplay.types import Metrics, PyTree, Seated, Trajectory

EVERY = 10  # updates between looks at what is dear
PARTS = 8  # of the sample, whose gradients are compared
PAIRINGS = 8  # cyclic distances at which players are compared, at most: every pair of up to 17


class Watch(NamedTuple):
    """A look at each update, and what it remembers from one to the next."""

    init: Callable  # weights -> state
    look: Callable  # weights before and after, state, what they learned from, a sample -> state, figures


class Judged(NamedTuple):
    """A round as it was learned from, what was earned in it, and how much of that the critic had foreseen."""

    batch: Batch
    earned: Float[Array, "*rows"]
    explained: Float[Array, "*group"]


def drift_watch(model: ActorCritic, loss: Callable) -> Watch:
    """`loss` is the policy's alone, of the networks that it is made with and a batch."""
    each, weights_of = model.sharing.map, model.sharing.weights

    def policy_weights(params: Seated) -> PyTree:
        return {name: weights_of(params)[name] for name in acting(model)}

    def init(params: Seated) -> PyTree:
        nothing = {"rounds": jnp.int32(0), "explained": jnp.float32(jnp.nan)}
        return each(lambda w: nothing | {"gradient": jnp.zeros_like(drift.flat(w))})(policy_weights(params))

    def look(before: Seated, after: Seated, state: PyTree, judged: Judged, seen: Sample):
        # Cut out before the branches below: what they are given is laid out whole, wanted or not.
        few = seen.glance.first.shape[0]
        batch, earned = each(lambda b, e: _first(few, (b, e)))(judged.batch, judged.earned)
        figures = play_figures(model, before, after, seen.glance)
        figures["drift/critic_staleness"] = judged.explained - state["explained"]

        since = jnp.max(state["rounds"]) % EVERY  # who came later goes by who has been here longest

        @functools.partial(jax.jit, inline=True)  # traced once, though asked for its shapes first
        def now_and_then() -> tuple[Metrics, Array]:
            found = each(lambda w, b: gradient_figures(loss, w, b))(policy_weights(before), batch)
            found["drift/diversity"] = diversity(model, after, seen.games, seen.length)
            explained = each(lambda w, b, e: _explained(model, w, b, e))(weights_of(after), batch, earned)
            return found, explained

        def gradient() -> Float[Array, "*group weight"]:
            return each(lambda w, b: gradient_of(loss, w, _parts(b)))(policy_weights(before), batch)

        shapes = jax.eval_shape(now_and_then)
        found, explained = jax.lax.cond(
            since == 0,
            now_and_then,
            lambda: jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes),
        )
        kept, figures["drift/gradient_turn"] = turned(each, gradient, state["gradient"], since)
        kept = {"rounds": state["rounds"] + 1, "explained": explained, "gradient": kept}
        return kept, figures | found

    return Watch(init, look)


not_watched = Watch(
    init=lambda params: {},
    look=lambda before, after, state, judged, seen: (state, {"drift/kl": jnp.float32(jnp.nan)}),
)


def _first(columns: int, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x[:columns], tree)


def _explained(model: ActorCritic, weights: PyTree, batch: Batch, earned: Array) -> Float[Array, ""]:
    """How much of what was earned the critic foresees with these weights."""
    memory = memory_of(model, batch.memory, "critic")
    inputs: PyTree = batch.policy_input if model.same_view else batch.critic_input
    value = sequences(model, "critic", weights, memory, inputs, batch.first)[1][..., 0]
    value = value_scale.denormalised(value_scale.scale_of(weights), value)
    return value_fit(value, earned, batch.valued)["value/explained_variance"]


def acting(model: ActorCritic) -> list[str]:
    """The networks that a policy is made with."""
    return [name for name in model.networks if name != "critic"]


def play_figures(model: ActorCritic, before: Seated, after: Seated, seen: Glance) -> Metrics:
    """How far play moved, by player and jointly, and what is left of a sample once the others have moved."""
    old, new = policy_at(model, before, seen), policy_at(model, after, seen)
    active, action = in_a_row(seen.active), in_a_row(seen.action)
    own = drift.moved(old, new, active)
    is_played = jnp.any(active, axis=-1)
    log_ratio = jnp.where(active, drift.taken(new, action) - drift.taken(old, action), 0.0)
    variation = drift.joint_variation(old, new, log_ratio)
    ratio = drift.others_ratio(log_ratio)
    by_player = jnp.broadcast_to(is_played[:, None], own.shape)
    means = masked_means(
        {
            "own": Masked(own, active, (0,)),
            "joint": Masked(jnp.sum(own, axis=-1), is_played, (0,)),
            "share": Masked(own, by_player, (0,)),  # of the joint figure
            "variation": Masked(variation, is_played[: len(variation)], (0,)),
            "ratio": Masked(ratio, by_player, (0,)),
            "square": Masked(ratio**2, by_player, (0,)),
        }
    )
    return {
        "drift/kl": means["own"],
        "drift/joint_kl": means["joint"],
        "drift/others_kl": means["joint"] - means["share"],
        "drift/joint_tv": means["variation"],
        "drift/effective_samples": means["ratio"] ** 2 / jnp.maximum(means["square"], 1e-12),
    }


def diversity(model: ActorCritic, params: Seated, games: Trajectory, length: int) -> Float[Array, ""]:
    """How differently players act on the same observations, sequences read as if an episode began there."""
    games = some_games(games, max(1, games.steps.before.first.shape[1] // 4))  # as many readings as players
    own = glance(model, params, games, length, is_fresh=True)
    policy, counts = policy_at(model, params, own), in_a_row(own.active)
    apart = [jnp.float32(jnp.nan)]
    for distance in range(1, min(PAIRINGS, len(model.seats) - 1) + 1):
        other = Seated(jax.tree.map(lambda x, d=distance: jnp.roll(x, -d, axis=0), params.own), params.common)
        theirs = policy_at(model, other, glance(model, other, games, length, is_fresh=True))
        apart.append(masked_mean(drift.difference_of_policies(policy, theirs), counts, (0, 1)))
    return jnp.nanmean(jnp.stack(apart))


def turned(
    each: Callable, gradient: Callable, kept: Float[Array, "*group weight"], since: Int[Array, ""]
) -> tuple[Float[Array, "*group weight"], Float[Array, "*group"]]:
    """What is kept of this update's gradient, and how it lies to the one kept from the last: every tenth is
    kept for the one after it, and no other."""
    nothing = jnp.zeros_like(kept)
    now = jax.lax.cond(since < 2, gradient, lambda: nothing)
    cosine = each(drift.turn)(kept, now)
    return jnp.where(since == 0, now, nothing), jnp.where(since == 1, cosine, jnp.nan)


def gradient_of(
    loss: Callable, weights: PyTree, parts: Batch, seat: Int[Array, ""] | None = None
) -> Float[Array, " weight"]:
    """Of one seat's rows, or of all. Part by part: a sample of generated weights at once would be large."""

    def add(sums, part: Batch):
        counts = part.policy.counts
        if seat is not None:
            counts = counts & (jnp.arange(counts.shape[-1]) == seat)[None, None, :]
        number = jnp.sum(counts, dtype=jnp.float32)
        gradient = drift.flat(jax.grad(loss)(weights, replace_counts(part, counts)))
        return jax.tree.map(jnp.add, sums, (number * gradient, number)), None

    nothing = (jnp.zeros_like(drift.flat(weights)), jnp.float32(0.0))
    (gradient, number), _ = jax.lax.scan(add, nothing, parts)
    return total(gradient / jnp.maximum(number, 1.0))


def gradient_figures(loss: Callable, weights: PyTree, batch: Batch) -> Metrics:
    """How far players pull shared weights in different ways, and how noisy the gradient is."""
    num_seats, parts = batch.policy.counts.shape[-1], _parts(batch)

    def of_part(part: Batch) -> Float[Array, " weight"]:
        return total(drift.flat(jax.grad(loss)(weights, part)))

    figures = {"drift/gradient_noise": drift.noise(jax.lax.map(of_part, parts))}
    if num_seats > 1:
        gradients = jax.lax.map(lambda seat: gradient_of(loss, weights, parts, seat), jnp.arange(num_seats))
        cosine, opposed = drift.conflict(gradients)
        figures |= {"drift/conflict": cosine, "drift/conflict_share": opposed}
    return figures


def replace_counts(batch: Batch, counts: Array) -> Batch:
    return dataclasses.replace(batch, policy=dataclasses.replace(batch.policy, counts=counts))


def _parts(batch: Batch) -> Batch:
    """The columns in parts of equal number, [part, column, ...]."""
    columns = batch.first.shape[0]
    parts = max(n for n in range(1, PARTS + 1) if columns % n == 0)
    return jax.tree.map(lambda x: x.reshape(parts, columns // parts, *x.shape[1:]), batch)
