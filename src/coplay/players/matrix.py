"""Scripted players of iterated matrix games. Action 0 is the kind one where there is a kind one.

Each is told by its chance of playing 1; its goal is the action it is likeliest to play next.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coplay.envs.matrix import GAMES
from coplay.players.scripted import ScriptedPlayer, certain, machine
from coplay.types import Environment


def always_cooperate(env: Environment) -> ScriptedPlayer:
    """Plays 0 whatever happens."""
    return _player("always_cooperate", lambda latent, row: jnp.float32(0))


def always_defect(env: Environment) -> ScriptedPlayer:
    """Plays 1 whatever happens."""
    return _player("always_defect", lambda latent, row: jnp.float32(1))


def tit_for_tat(env: Environment) -> ScriptedPlayer:
    """Copies the other's last action; 0 first."""
    return _player("tit_for_tat", lambda latent, row: _other_played_1(env, row))


def generous(env: Environment, forgives: float = 1 / 3) -> ScriptedPlayer:
    """Copies the other's last action, but forgives a 1 with chance 1/3; 0 first."""
    _require_chance("forgives", forgives)
    return _player("generous", lambda latent, row: (1 - forgives) * _other_played_1(env, row))


def grim(env: Environment) -> ScriptedPlayer:
    """Plays 0 until the other first plays 1, then 1 to the end of the episode."""

    def advance(latent, before, after):
        return certain(latent | _other_played_1(env, after).astype(jnp.int32), 2)

    return _player("grim", lambda latent, row: latent.astype(jnp.float32), [1.0, 0.0], advance)


def win_stay_lose_shift(env: Environment) -> ScriptedPlayer:
    """Repeats its action after one of its two best payoffs, else changes it; 0 first."""
    game = GAMES[env.options.game]
    payoffs = np.array(game.payoffs).reshape(2, 2)  # [own, other]
    as_matcher = payoffs >= np.sort(payoffs, axis=None)[-2]
    as_other = ~as_matcher if game.has_roles else as_matcher
    one_next = [won == np.array([[False], [True]]) for won in (as_other, as_matcher)]

    def chance_of_one(latent, row):
        seen = env.split(row)
        follows = jnp.where(seen["matcher"] > 0.5, one_next[1], one_next[0])
        return jnp.sum(jnp.where(follows, seen["last"], 0.0))

    return _player("win_stay_lose_shift", chance_of_one)


def biased(env: Environment, p: float) -> ScriptedPlayer:
    """Plays 0 with chance p in every round."""
    _require_chance("p", p)
    return _player("biased", lambda latent, row: jnp.float32(1 - p))


def _player(
    name: str,
    chance_of_one: Callable,
    start: Sequence[float] = (1.0,),
    advance: Callable = lambda latent, before, after: jnp.ones(1),
) -> ScriptedPlayer:
    def policy(latent, row, legal) -> Float[Array, " action"]:
        chance = chance_of_one(latent, row)
        return jnp.stack([1 - chance, chance])

    return machine(
        name,
        start=start,
        policy=policy,
        advance=advance,
        goal=lambda latent, row: (chance_of_one(latent, row) > 0.5).astype(jnp.int32),
    )


def _other_played_1(env: Environment, row: Float[Array, " feature"]) -> Float[Array, ""]:
    return jnp.sum(env.split(row)["last"][:, 1])


def _require_chance(name: str, chance: float) -> None:
    if not 0 <= chance <= 1:
        raise ValueError(f"{name}={chance} must lie between 0 and 1")
