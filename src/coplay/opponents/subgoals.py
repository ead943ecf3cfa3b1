"""Learned subgoals: what a player is up to, as a few numbers read from what it has done so far.

One network reads a player's rows in an episode one after the other and, before each of its moves, says where
its subgoal may be (a Gaussian); another says what it does next, given its row and a subgoal. Nobody declares
what a subgoal means: it is whatever foretells best, the next move, moves some steps later
(`some_steps_before`) and, if asked, what the player is paid next (`prospects.py`). A player's own row comes
first in what is read, so one model serves for any seat.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.nets.mlp import MLP, Linear
from coplay.nets.recurrent import gru
from coplay.opponents.goal_policy import NEVER
from coplay.opponents.prospects import num_prospects
from coplay.types import Environment, EnvState, Key, PyTree, pytree, stream

GAIN = 0.01  # of output layers


class SubgoalModel(NamedTuple):
    """The shape of the networks; weights come separately."""

    env: Environment
    size: int  # numbers in a subgoal
    width: int  # of what is remembered of an episode
    networks: Any  # "infer", "act" and, if it foretells that, "paid", without arrays


@pytree
class Subgoal:
    """A Gaussian with independent parts."""

    mean: Float[Array, "*batch number"]
    log_std: Float[Array, "*batch number"]


def subgoal_model(
    env: Environment, size: int, hidden: tuple[int, ...], kept: int = 0, foretells_pay: bool = False
):
    """The model, and a function from a key to its weights. Of earlier episodes `kept` numbers are told to
    "infer" and "act", last in what they read."""
    inputs = env.observation_size + env.num_actions + len(env.goals.names) * env.goals.features

    def build(key: Key) -> dict[str, Any]:
        infer_key, act_key = jax.random.split(key)
        networks: dict[str, Any] = {
            "infer": gru(infer_key, inputs + kept, hidden, 2 * size, GAIN),
            "act": MLP(act_key, inputs + size + kept, hidden, env.num_actions, GAIN),
        }
        if foretells_pay:
            assert env.reward_values is not None, "whoever builds such a model has refused other games"
            classes = num_prospects(env.reward_values)
            networks["paid"] = Linear(stream(key, "paid"), size, classes, GAIN)
        return networks

    static = eqx.partition(build(jax.random.key(0)), eqx.is_array)[1]
    model = SubgoalModel(env, size, hidden[-1], static)
    return model, lambda key: eqx.filter(build(key), eqx.is_array)


def sight(env: Environment, state: EnvState):
    """One moment of one game: what is read of every player (its row, what it may do, how near things are);
    and what it may do."""
    observation, legal = env.view(state)
    look = env.goals.look
    assert look is not None, "whoever builds such a model has refused games that do not show it"
    near = jax.vmap(look)(observation)[1]
    parts = [observation, legal.astype(jnp.float32), near.reshape(near.shape[0], -1)]
    return jnp.concatenate(parts, axis=-1), legal


def infer(
    model: SubgoalModel,
    weights: PyTree,
    memory: Float[Array, "row hidden"],
    seen: Float[Array, "time row feature"],
    first: Bool[Array, "time row"],
) -> tuple[Float[Array, "time row hidden"], Subgoal]:
    """What is remembered after each row, and where the subgoal may be, before the move that follows it."""
    network = eqx.combine(model.networks["infer"], weights["infer"])
    remembered, said = network.run(memory, seen, first)
    mean, log_std = jnp.split(said, 2, axis=-1)
    return remembered, Subgoal(mean, jnp.clip(log_std, -5.0, 2.0))


def drawn(subgoal: Subgoal, key: Key) -> Float[Array, "*batch number"]:
    return drawn_with(subgoal, jax.random.normal(key, subgoal.mean.shape))


def drawn_with(subgoal: Subgoal, noise: Float[Array, "*batch number"]) -> Float[Array, "*batch number"]:
    return subgoal.mean + jnp.exp(subgoal.log_std) * noise


def spread(subgoal: Subgoal) -> Float[Array, "*batch"]:
    """Divergence from a standard Gaussian, in nats: how much is said about the subgoal at all."""
    variance = jnp.exp(2 * subgoal.log_std)
    return 0.5 * jnp.sum(subgoal.mean**2 + variance - 1.0 - 2 * subgoal.log_std, axis=-1)


def divergence(subgoal: Subgoal, other: Subgoal) -> Float[Array, "*batch"]:
    """Of the one from the other, in nats."""
    apart = (subgoal.mean - other.mean) ** 2 + jnp.exp(2 * subgoal.log_std)
    each = apart * jnp.exp(-2 * other.log_std) - 1.0 + 2 * (other.log_std - subgoal.log_std)
    return 0.5 * jnp.sum(each, axis=-1)


def log_chances(
    model: SubgoalModel,
    weights: PyTree,
    seen: Float[Array, "*batch feature"],
    legal: Bool[Array, "*batch action"],
    subgoal: Float[Array, "*batch number"],
) -> Float[Array, "*batch action"]:
    """Of every action, by a player that is after this."""
    network = eqx.combine(model.networks["act"], weights["act"])
    logits = network(jnp.concatenate([seen, subgoal], axis=-1))
    return jax.nn.log_softmax(jnp.where(legal, logits, NEVER), axis=-1)


def pay_chances(
    model: SubgoalModel, weights: PyTree, subgoal: Float[Array, "*batch number"]
) -> Float[Array, "*batch prospect"]:
    """Log chances of what a player that is after this is paid next. The reading is linear, so that what a
    subgoal says of it stands there plainly."""
    return jax.nn.log_softmax(eqx.combine(model.networks["paid"], weights["paid"])(subgoal), axis=-1)


def some_steps_before(
    x: Float[Array, "row time *pair number"],
    counts: Bool[Array, "row time *pair"],
    first: Bool[Array, "row time"],
    steps: Int[Array, " row"],
) -> tuple[Float[Array, "row time *pair number"], Bool[Array, "row time *pair"]]:
    """What was read so many steps before every moment, and whether anything was: the player was there, in
    the same episode."""
    time = jnp.arange(first.shape[1])[None] - steps[:, None]  # [row, time]
    at = jnp.maximum(time, 0)
    episode = jnp.cumsum(first, axis=1)
    is_same = (time >= 0) & (jnp.take_along_axis(episode, at, axis=1) == episode)

    def earlier(x: Array) -> Array:
        return jnp.take_along_axis(x, at.reshape(*at.shape, *(1,) * (x.ndim - 2)), axis=1)

    return earlier(x), earlier(counts) & is_same.reshape(*at.shape, *(1,) * (counts.ndim - 2))
