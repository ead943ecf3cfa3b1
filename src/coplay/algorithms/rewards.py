"""What a learner is taught to want: its own reward, the team's mean, a mix, or a user's function.

The game's own return is always what is reported; this is only what the targets are made of.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from coplay.errors import BadInput, nearest
from coplay.plugins import load_function
from coplay.types import Transition

LearningReward = Callable[[Transition], Array]  # transitions [time, env, agent] -> reward of the same shape


def learning_reward(name: str, team_share: float) -> LearningReward:
    """`own`, `team`, `mix` (team_share of the team's mean, the rest own) or `file.py:function`."""
    if ":" in name:
        return load_function(name)
    if name not in KNOWN:
        raise BadInput(f"learning_reward={name!r} is unknown; {nearest(name, KNOWN)}")
    share = {"own": 0.0, "team": 1.0, "mix": team_share}[name]
    return lambda steps: mixed(steps.after.reward, share)


KNOWN = ("own", "team", "mix")


def mixed(reward: Float[Array, "*batch agent"], team_share: float) -> Float[Array, "*batch agent"]:
    """(1 - share) of one's own reward plus share of the mean over all players, the departed included."""
    if team_share == 0.0:
        return reward
    team = added(reward) / reward.shape[-1]
    return (1.0 - team_share) * reward + team_share * team


def added(x: Float[Array, "*batch agent"]) -> Float[Array, "*batch 1"]:
    """The sum over players, in the order of size: not even its last bit depends on who is called what."""
    return jnp.sum(jnp.sort(x, axis=-1), axis=-1, keepdims=True)


def outlives_players(name: str) -> bool:
    """Whether a player that has left still earns: with any reward that is not purely its own."""
    return name != "own"
