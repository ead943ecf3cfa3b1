"""Scripted specialists: one who never leaves its task, one who makes room."""

import jax.numpy as jnp

from coplay.players.scripted import ScriptedPlayer, certain, one_latent, uniform
from coplay.types import Environment


def fixed(env: Environment, k: int) -> ScriptedPlayer:
    """Always chooses task k, counted from 0."""
    if not 0 <= k < env.num_actions:
        raise ValueError(f"k={k} must lie between 0 and {env.num_actions - 1}")
    return one_latent(
        "fixed",
        policy=lambda latent, row, legal: certain(k, env.num_actions),
        goal=lambda latent, row: jnp.int32(k),
    )


def sidestep(env: Environment) -> ScriptedPlayer:
    """Keeps its task while alone on it, else draws uniformly from the tasks nobody chose."""

    def look(row):
        """Its task, if it was alone on it, and the tasks nobody chose."""
        seen = env.split(row)
        players_on = seen["share"] * env.num_agents
        mine = (seen["own"] > 0.5) & (players_on < 1.5)
        return mine, players_on < 0.5

    def policy(latent, row, legal):
        mine, free = look(row)
        return jnp.where(jnp.any(mine), uniform(mine), uniform(free))

    def goal(latent, row):
        mine, _ = look(row)
        return jnp.where(jnp.any(mine), jnp.argmax(mine), -1)

    return one_latent("sidestep", policy, goal)
