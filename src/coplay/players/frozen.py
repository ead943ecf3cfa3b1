"""Players that no longer learn, and players that always take their likeliest action."""

import dataclasses

import jax.numpy as jnp

from coplay.training.stages import no_learning
from coplay.types import Algorithm, Params, Seated, as_played


def frozen(algorithm: Algorithm, params: Params) -> Algorithm:
    """The algorithm as it stood with these params, which hold no row that belongs to a seat of ours."""
    return Algorithm(
        init=lambda key: Seated(own={}, common=params),
        remember=algorithm.remember,
        act=lambda held, *rest: as_played(algorithm).act(held.common, *rest),
        watch=lambda held, *rest: algorithm.watch(held.common, *rest),
        learn=no_learning,
        told=algorithm.told,
        needs=algorithm.needs,
    )


def greedy(algorithm: Algorithm) -> Algorithm:
    """The player at its best, always taking the greatest of its policy."""
    best = as_played(algorithm)

    def act(params, memory, timestep, state, key):
        memory, decision = best.act(params, memory, timestep, state, key)
        action = jnp.argmax(decision.policy, axis=-1).astype(jnp.int32)
        taken = action[..., None] == jnp.arange(decision.policy.shape[-1])[None, None, :]
        chance = jnp.sum(jnp.where(taken, decision.policy, 0.0), axis=-1)
        log_prob = jnp.log(jnp.maximum(chance, 1e-30))
        return memory, dataclasses.replace(decision, action=action, log_prob=log_prob)

    return algorithm._replace(act=act, play=None)
