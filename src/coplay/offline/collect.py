"""Play of known players, recorded: whole episodes, every one in new company."""

import importlib.metadata
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from coplay.errors import BadInput
from coplay.evaluation.self_play import watch_episodes
from coplay.experiment import is_run, known_player
from coplay.offline.dataset import NO_GOAL, NOBODY_MOVES, About, Episodes
from coplay.players.catalogue import make_player
from coplay.players.lineup import Member, seated
from coplay.players.mixture import any_of
from coplay.players.scripted import scripted
from coplay.types import Algorithm, Environment, Key, stream

AT_ONCE, AT_ONCE_RUNS = 2048, 256  # games side by side; fewer where runs play, which may search

Done = Callable[[int], None]  # told how many episodes there are so far


def about(
    game: str, options: dict, players: tuple[str, ...], is_drawn: bool, episodes: int, seed: int
) -> About:
    """What is to be recorded, refused in a sentence where it cannot be."""
    if episodes < 1:
        raise BadInput(f"--episodes {episodes} must be at least 1")
    if not 0 <= seed < 2**31:
        raise BadInput(f"--seed {seed} must lie between 0 and {2**31 - 1}")
    version = importlib.metadata.version("coplay")
    wanted = About(game, options, players, is_drawn, episodes, seed, version)
    seats = wanted.env().num_agents
    if not is_drawn and len(players) != seats:
        raise BadInput(f"{game} has {seats} seats: name a player for each, not {len(players)}")
    return wanted


def record(wanted: About, done: Done = lambda episodes: None) -> Episodes:
    """Play all of it, so many games at once; every part has a key of its own."""
    env = wanted.env()
    algorithm = _company(env, wanted)
    params = algorithm.init(jax.random.key(0))
    games = min(wanted.episodes, AT_ONCE_RUNS if any(map(is_run, wanted.players)) else AT_ONCE)
    play = jax.jit(lambda key: _watched(env, algorithm, params, key, games))
    key, parts = stream(jax.random.key(wanted.seed), "collect"), []
    for number in range(math.ceil(wanted.episodes / games)):
        parts.append(jax.device_get(play(jax.random.fold_in(key, number))))
        done(min(wanted.episodes, (number + 1) * games))
    whole = jax.tree.map(lambda *each: np.concatenate(each)[: wanted.episodes], *parts)
    return Episodes(**whole)


def _company(env: Environment, wanted: About) -> Algorithm:
    everyone = tuple(range(env.num_agents))
    if wanted.is_drawn and len(wanted.players) > 1:
        player = any_of([make_player(name, env) for name in wanted.players])
        return scripted(player, env, everyone)
    lineup = wanted.players * env.num_agents if wanted.is_drawn else wanted.players
    members = [
        Member(name, known_player(env, name), tuple(seat for seat in everyone if lineup[seat] == name))
        for name in dict.fromkeys(lineup)
    ]
    return seated(members, lineup)


def _watched(env: Environment, algorithm: Algorithm, params, key: Key, games: int) -> dict:
    """A part's episodes, [episode, board, ...] by the names of `Episodes`."""
    scores, moments, start = watch_episodes(env, algorithm, params, key, games)
    playing = moments.playing[..., None]
    active = moments.active & playing
    in_next = jnp.concatenate([active[1:], jnp.zeros_like(active[:1])])
    silent = jnp.full(active.shape, NO_GOAL, jnp.int32)
    goal = silent if isinstance(moments.goal, tuple) else moments.goal
    by_board = {
        "state": jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, moments.state),
        "action": _with_last(jnp.where(playing, moments.action, NOBODY_MOVES), NOBODY_MOVES),
        "reward": _with_last(jnp.where(playing, moments.reward, 0.0), 0.0),
        "active": _with_last(active, False),
        "left": _with_last(active & ~in_next, False),
        "goal": _with_last(jnp.where(active, goal, NO_GOAL), NO_GOAL),
    }
    by_episode = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), by_board)
    return by_episode | {"length": scores.length.astype(jnp.int32)}


def _with_last(by_move: Shaped[Array, "move game agent"], at_last) -> Shaped[Array, "board game agent"]:
    """Boards are one more than moves."""
    return jnp.concatenate([by_move, jnp.full_like(by_move[:1], at_last)])
