"""Random play that the tests of games share: compiled once for each game, read by many tests."""

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coplay.envs import grid, make_game
from coplay.envs.contract import random_legal
from coplay.types import Environment

NUM_GAMES = 100
MOST_STEPS = 60  # of a walk; a game whose length is left to chance is cut there

# Every native game in every shape: presets with both observations and both endings, five players of
# different strength, both tie rules, roles, hidden time, more than four players.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "4x4": ("4h1s_4x4", {}),
    "4x4, entities, early": ("4h1s_4x4", {"observation": "entities", "end_after_first_hunt": 5}),
    "walls, early": ("4h1s_8x8_walls", {"end_after_first_hunt": 5}),
    "walls, entities": ("4h1s_8x8_walls", {"observation": "entities"}),
    "two stags": ("4h2s_8x8", {}),
    "two stags, entities, early": ("4h2s_8x8", {"observation": "entities", "end_after_first_hunt": 5}),
    "five of different strength": (
        "4h1s_4x4",
        {"players": 5, "strengths": (3, 1, 0, 2, 1), "mask_lone_stag_hunt": True, "observation": "entities"},
    ),
    "snowdrift": ("snowdrift", {}),
    "snowdrift, entities": ("snowdrift", {"observation": "entities"}),
    "coin game": ("coin_game", {}),
    "coin game, share": ("coin_game", {"tie": "share"}),
    "dilemma": ("prisoners_dilemma", {}),
    "pennies, hidden time": ("matching_pennies", {"continue_probability": 0.8}),
    "specialisation": ("specialisation", {"rounds": 3}),
    "specialisation, eight, shared": ("specialisation", {"num_agents": 8, "rounds": 3, "reward": "shared"}),
}
STAG_HUNTS = [name for name, (game, _) in VARIANTS.items() if "h1s" in game or "h2s" in game]
GRID_GAMES = [*STAG_HUNTS, "snowdrift", "snowdrift, entities"]


class Walk(NamedTuple):
    """100 games in NumPy: [game, time, ...], with one more time for states and rows than for
    actions. A game that is over is walked on, which tests leave out by `played`."""

    state: dict[str, np.ndarray]  # by the field's name
    rows: dict[str, np.ndarray]  # a TimeStep's fields
    action: np.ndarray
    played: np.ndarray  # [game, time]: the game was on before this step
    commutes: dict[str, np.ndarray]  # [game, time, order]: what followed a renaming of the players


@functools.cache
def variant(name: str) -> Environment:
    game, options = VARIANTS[name]
    return make_game(game, **options)


@functools.cache
def walk(name: str) -> Walk:
    return compiled_walk(name)(jax.random.split(jax.random.key(7), NUM_GAMES))


@functools.cache
def compiled_walk(name: str):
    """keys -> Walk, one game for each key."""
    env = variant(name)
    orders = jnp.asarray(renamings(env.num_agents))
    run = jax.jit(jax.vmap(lambda key: _one_game(env, orders, key)))

    def walked(keys) -> Walk:
        states, timesteps, action, commutes = run(keys)
        rows = fields_of(timesteps)
        over = rows["truncated"] | rows["terminated"].all(axis=-1)
        played = np.logical_and.accumulate(~over, axis=1)[:, :-1]
        return Walk(fields_of(states), rows, np.asarray(action), played, jax.device_get(commutes))

    return walked


def fields_of(record) -> dict[str, np.ndarray]:
    """A dataclass of arrays as NumPy arrays by name; the types of the dataclass allow only JAX's."""
    return {field.name: np.asarray(getattr(record, field.name)) for field in dataclasses.fields(record)}


def renamings(num_agents: int) -> np.ndarray:
    """All orders of up to four players; above, the turns of the circle and 20 drawn ones. The first
    is the order as it is."""
    if num_agents <= 4:
        return np.array(list(itertools.permutations(range(num_agents))))
    random = np.random.default_rng(0)
    drawn = [random.permutation(num_agents) for _ in range(20)]
    return np.concatenate([grid.cyclic_order(num_agents), drawn])


def _one_game(env: Environment, orders, key):
    """Play one game under all names at once, with the same actions and the same chance."""

    def one_step(carry, key):
        state, before = carry
        action_key, step_key = jax.random.split(key)
        action = _keen(before.legal, favourite, action_key)
        named = jax.vmap(env.rename, (None, 0))(state, orders)
        states, timesteps = jax.vmap(env.step, (0, 0, None))(named, action[orders], step_key)
        state, after = jax.tree.map(lambda x: x[0], (states, timesteps))
        commutes = jax.vmap(lambda order, s, t: _commutes(env, order, state, after, s, t))
        return (state, after), (state, after, action, commutes(orders, states, timesteps))

    start_key, walk_key, keen_key = jax.random.split(key, 3)
    start = env.reset(start_key)
    last_three = grid.draw_below(grid.random_words(keen_key, env.num_agents), min(3, env.num_actions))
    favourite = env.num_actions - 1 - last_three
    keys = jax.random.split(walk_key, min(env.horizon, MOST_STEPS))
    _, (states, timesteps, action, commutes) = jax.lax.scan(one_step, start, keys)
    states, timesteps = jax.tree.map(
        lambda first, rest: jnp.concatenate([first[None], rest]), start, (states, timesteps)
    )
    return states, timesteps, action, commutes


def _keen(legal, favourite, key):
    """Uniform over legal actions, but three times in four the player's favourite one, where legal:
    at random, two hardly ever hunt the same stag at once."""
    words = grid.random_words(key, 2 * len(favourite)).reshape(2, -1)
    is_legal = jnp.any(legal & (favourite[:, None] == jnp.arange(legal.shape[1])[None, :]), axis=1)
    return jnp.where(is_legal & (words[1] >> 30 > 0), favourite, random_legal(legal, words[0]))


def _commutes(env: Environment, order, state, after, named_state, named) -> dict:
    """What a step under other names shares, bit for bit, with the renamed step."""
    turn = (order[0] + jnp.arange(env.num_agents)) % env.num_agents
    is_turn = jnp.all(order == turn)
    return {
        "state": equal(named_state, env.rename(state, order)),
        "reward": equal(named.reward, after.reward[order]),
        "legal": equal(named.legal, after.legal[order]),
        "active": equal(named.active, after.active[order]),
        "terminated": equal(named.terminated, after.terminated[order]),
        "ends": equal((named.truncated, named.first), (after.truncated, after.first)),
        "observation": equal(named.observation, after.observation[order]) | ~is_turn,
        "parts": equal(_parts(env, named.observation), _reordered(env, after.observation, order)),
    }


def equal(left, right):
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return jnp.all(jnp.stack([jnp.all(a == b) for a, b in pairs]))


def _parts(env: Environment, rows) -> dict:
    return jax.vmap(env.split)(rows)


def _reordered(env: Environment, rows, order) -> dict:
    """The rows' parts as the renamed players should see them: co-players' boards and previous actions
    in their new places in the circle, all else as it was."""
    seats = jnp.arange(env.num_agents)
    seen = order[(seats[:, None] + seats[None, :]) % env.num_agents]  # [observer, place]: an old seat
    place = (seen - order[:, None]) % env.num_agents  # where the old observer saw it
    parts = {name: part[order] for name, part in _parts(env, rows).items()}
    if "others" in parts:
        parts["others"] = jax.vmap(lambda boards, where: boards[where - 1])(parts["others"], place[:, 1:])
    if "previous" in parts:
        parts["previous"] = jax.vmap(lambda actions, where: actions[where])(parts["previous"], place)
    return parts


@functools.cache
def random_returns(name: str, num_games: int = 10_000) -> np.ndarray:
    """[game, agent]: returns of uniform legal play to the end."""
    env = variant(name)

    def one_game(key):
        def one_step(carry, key):
            state, legal, on, total = carry
            action_key, step_key = jax.random.split(key)
            action = random_legal(legal, grid.random_words(action_key, env.num_agents))
            state, after = env.step(state, action, step_key)
            total = total + jnp.where(on, after.reward, 0.0)
            return (state, after.legal, on & ~jnp.all(after.terminated), total), None

        start_key, walk_key = jax.random.split(key)
        state, first = env.reset(start_key)
        start = (state, first.legal, jnp.bool_(True), jnp.zeros(env.num_agents))
        steps = min(env.horizon, 100)  # with hidden time, 0.8**100 of the games go on: none
        return jax.lax.scan(one_step, start, jax.random.split(walk_key, steps))[0][-1]

    return np.asarray(jax.jit(jax.vmap(one_game))(jax.random.split(jax.random.key(11), num_games)))
