"""How the stag hunt moves.

A step, in order: hunts are read where players stand, prey and the fed vanish, everyone else moves at once,
the clock moves on. There is no tie to break, so no rule looks at a player's index.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.envs import grid
from coplay.envs.stag_hunt.config import (
    HUNT_HARE,
    HUNT_STAG,
    NUM_ACTIONS,
    StagHuntConfig,
    StagHuntState,
)
from coplay.envs.stag_hunt.views import observe
from coplay.envs.walls import WallMaps
from coplay.types import Key, TimeStep


def step(
    config: StagHuntConfig, maps: WallMaps, state: StagHuntState, action: Int[Array, " agent"]
) -> tuple[StagHuntState, TimeStep]:
    action = jnp.where(is_legal(config, maps, state, action), action, grid.STAY)
    reward, fed, prey_alive = _hunt(config, state, action)
    moved = grid.moved(state.players, action, config.size)
    return arrive(config, maps, state, action, moved, state.active & ~fed, prey_alive, reward)


def arrive(config, maps: WallMaps, state: StagHuntState, action, players, active, prey_alive, reward):
    """The next moment, whoever says what the moves came to; the clock goes by rule."""
    time = state.time + 1
    state = dataclasses.replace(
        state,
        players=players,
        active=active,
        stag_alive=prey_alive[: config.stags],
        hare_alive=prey_alive[config.stags :],
        previous=jnp.where(state.active, action, state.previous),
        time=time,
        end=_end_after(config, state, time, jnp.any(state.active & ~active)),
    )
    return state, _look(config, maps, state, reward, first=False)


def _hunt(config: StagHuntConfig, state: StagHuntState, action: Int[Array, " agent"]):
    """Who eats what: reward, the fed, and the prey that is left."""
    on_stag = stands_on(state.players, state.stags, state.stag_alive) & state.active[:, None]
    on_hare = stands_on(state.players, state.hares, state.hare_alive) & state.active[:, None]
    at_stag = on_stag & (action == HUNT_STAG)[:, None]
    at_hare = on_hare & (action == HUNT_HARE)[:, None]
    stag_falls = jnp.sum(at_stag, axis=0) >= config.stag_hunters
    hare_falls = jnp.any(at_hare, axis=0)
    reward = config.stag_reward * _share(at_stag & stag_falls[None, :], state.strengths)
    reward = reward + config.hare_reward * _share(at_hare, jnp.ones_like(state.strengths))
    fed = jnp.any(at_stag & stag_falls[None, :], axis=1) | jnp.any(at_hare, axis=1)
    alive = jnp.concatenate([state.stag_alive & ~stag_falls, state.hare_alive & ~hare_falls])
    return reward, fed, alive


def stands_on(players, prey, alive) -> Bool[Array, "agent prey"]:
    return (players[:, None] == prey[None, :]) & alive[None, :]


def _share(hunts: Bool[Array, "agent prey"], strengths: Int[Array, " agent"]) -> Float[Array, " agent"]:
    """Each prey goes to its hunters by strength, equally if they have none; whole sums stay exact."""
    strength = jnp.where(hunts, strengths[:, None], 0)
    count = jnp.sum(hunts, axis=0)
    total = jnp.sum(strength, axis=0)
    part = jnp.where((total > 0)[None, :], strength, hunts.astype(jnp.int32))
    whole = jnp.maximum(jnp.where(total > 0, total, count), 1)
    return jnp.sum(part / whole[None, :], axis=1)


def _end_after(config: StagHuntConfig, state: StagHuntState, time, someone_ate):
    if config.end_after_first_hunt is None:
        return state.end
    everything_alive = jnp.all(state.stag_alive) & jnp.all(state.hare_alive)
    shortened = jnp.minimum(config.horizon, time + config.end_after_first_hunt)
    return jnp.where(someone_ate & everything_alive, shortened, state.end)


def reset(config: StagHuntConfig, maps: WallMaps, key: Key) -> tuple[StagHuntState, TimeStep]:
    num_prey = config.stags + config.hares
    words = grid.random_words(key, 1 + config.players + num_prey)
    number = grid.draw_below(words[:1], len(maps.walls))[0]
    if config.wall_components:
        num_free = jnp.asarray(maps.num_free)[number]
        free_cells = jnp.asarray(maps.free_cells)[number]
    else:
        num_free, free_cells = jnp.int32(config.size**2), None
    players = grid.draw_below(words[1 : 1 + config.players], num_free)
    prey = grid.draw_distinct(words[1 + config.players :], num_free)
    if free_cells is not None:
        players, prey = free_cells[players], free_cells[prey]
    state = StagHuntState(
        map=number,
        players=players,
        stags=prey[: config.stags],
        hares=prey[config.stags :],
        active=jnp.ones(config.players, bool),
        stag_alive=jnp.ones(config.stags, bool),
        hare_alive=jnp.ones(config.hares, bool),
        previous=jnp.full(config.players, grid.STAY, jnp.int32),
        strengths=jnp.asarray(config.strengths or (1,) * config.players, jnp.int32),
        time=jnp.int32(0),
        end=jnp.int32(config.horizon),
    )
    return state, _look(config, maps, state, jnp.zeros(config.players), first=True)


def rename(state: StagHuntState, order: Int[Array, " agent"]) -> StagHuntState:
    """The same game with other names: new seat i is the old seat order[i]."""
    return dataclasses.replace(
        state,
        players=state.players[order],
        active=state.active[order],
        previous=state.previous[order],
        strengths=state.strengths[order],
    )


def outcomes(before: StagHuntState, after: StagHuntState) -> dict[str, Array]:
    return {
        "stags": jnp.sum(before.stag_alive & ~after.stag_alive),
        "hares": jnp.sum(before.hare_alive & ~after.hare_alive),
    }


def _look(config, maps: WallMaps, state: StagHuntState, reward, first: bool) -> TimeStep:
    nothing_left = ~(jnp.any(state.stag_alive) | jnp.any(state.hare_alive))
    over = (state.time >= state.end) | ~jnp.any(state.active) | nothing_left
    return TimeStep(
        observation=observe(config, maps, state),
        legal=legal(config, maps, state),
        reward=reward.astype(jnp.float32),
        active=state.active & ~over,
        terminated=~state.active | over,
        truncated=jnp.bool_(False),
        first=jnp.bool_(first),
    )


def legal(config, maps: WallMaps, state: StagHuntState) -> Bool[Array, "agent action"]:
    on_stag = stands_on(state.players, state.stags, state.stag_alive)
    on_hare = stands_on(state.players, state.hares, state.hare_alive)
    if config.mask_lone_stag_hunt:
        company = jnp.sum(on_stag & state.active[:, None], axis=0) >= config.stag_hunters
        on_stag = on_stag & company[None, :]
    may = jnp.concatenate(
        [
            open_moves(config, maps, state),
            jnp.zeros((config.players, 1), bool),
            jnp.any(on_stag, axis=1, keepdims=True),
            jnp.any(on_hare, axis=1, keepdims=True),
        ],
        axis=1,
    )
    stay = jnp.arange(NUM_ACTIONS) == grid.STAY
    return (may & state.active[:, None]) | stay[None, :]


def open_moves(config, maps: WallMaps, state: StagHuntState) -> Bool[Array, "agent 4"]:
    if config.wall_components == 0:
        return grid.open_moves(state.players, config.size)
    return jnp.asarray(maps.open_moves)[state.map, state.players]


def is_legal(config, maps, state, action) -> Bool[Array, " agent"]:
    chosen = action[:, None] == jnp.arange(NUM_ACTIONS)[None, :]
    return jnp.any(legal(config, maps, state) & chosen, axis=1)
