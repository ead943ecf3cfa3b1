"""Planted defects, each wrapped round what it spoils from outside. The product has no switch for them."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from coplay.envs import make_game
from coplay.types import Environment, stream

HARE, STAG = 1.0, 5.0


class Mutant(NamedTuple):
    number: int
    what: str
    check: str  # that must fail
    room: str
    spoil: Callable[[Environment], Environment]


def of_step(env: Environment, change: Callable) -> Environment:
    """`change(state, action, key, next_state, after) -> next_state, after`, after every step."""

    def step(state, action, key):
        return change(state, action, key, *env.step(state, action, key))

    return dataclasses.replace(env, step=step)


def of_view(env: Environment, change: Callable) -> Environment:
    """`change(observation, legal) -> observation, legal`, wherever players look."""

    def seen(timestep):
        observation, legal = change(timestep.observation, timestep.legal)
        return dataclasses.replace(timestep, observation=observation, legal=legal)

    def reset(key):
        state, timestep = env.reset(key)
        return state, seen(timestep)

    def step(state, action, key):
        state, timestep = env.step(state, action, key)
        return state, seen(timestep)

    return dataclasses.replace(env, reset=reset, step=step, view=lambda state: change(*env.view(state)))


def paid(change: Callable) -> Callable[[Environment], Environment]:
    """`change(env, before, reward, next_state, key) -> reward`."""

    def spoil(env: Environment) -> Environment:
        def step(state, action, key, next_state, after):
            reward = change(env, state, after.reward, next_state, key)
            return next_state, dataclasses.replace(after, reward=reward)

        return of_step(env, step)

    return spoil


def fell(env: Environment, before, after, name: str):
    return env.outcomes(before, after)[name] > 0


def to_lowest(env, before, reward, after, key):
    """All of a stag to the first of its hunters."""
    shares = jnp.where(fell(env, before, after, "stags") & (reward > HARE), reward, 0.0)
    first = jnp.arange(len(reward)) == jnp.argmax(shares > 0)
    return reward - shares + jnp.where(first, jnp.sum(shares), 0.0)


def by_index(env, before, reward, after, key):
    shares = jnp.where(fell(env, before, after, "stags") & (reward > HARE), reward, 0.0)
    weighted = shares * (1.0 + jnp.arange(len(reward)))
    total = jnp.sum(weighted)
    return reward - shares + jnp.where(total > 0, jnp.sum(shares) * weighted / jnp.maximum(total, 1e-9), 0.0)


def hare_in_full(env, before, reward, after, key):
    is_share = fell(env, before, after, "hares") & (reward > 0) & (reward < HARE)
    return jnp.where(is_share, HARE, reward)


def hare_to(favour: float) -> Callable:
    """A shared hare goes to one of its hunters, to seat 3 more often: `favour` against what is left of 1."""

    def change(env, before, reward, after, key):
        sharing = (reward > 0) & (reward < HARE)
        weight = jnp.where(jnp.arange(len(reward)) == 3, favour, 1.0 - favour) * sharing
        winner = jax.random.categorical(stream(key, "hare"), jnp.log(weight + 1e-9))
        drawn = jnp.where(jnp.arange(len(reward)) == winner, jnp.sum(jnp.where(sharing, reward, 0.0)), 0.0)
        return jnp.where(jnp.any(sharing), jnp.where(sharing, drawn, reward), reward)

    return change


def beside_the_stag(env: Environment) -> Environment:
    def reset(key):
        state, timestep = env.reset(key)
        state = dataclasses.replace(state, players=state.players.at[0].set(state.stags[0]))
        observation, legal = env.view(state)
        return state, dataclasses.replace(timestep, observation=observation, legal=legal)

    return dataclasses.replace(env, reset=reset)


def collects_when_gone(env: Environment) -> Environment:
    def step(state, action, key, next_state, after):
        ghost = env.step(dataclasses.replace(state, active=jnp.ones_like(state.active)), action, key)[1]
        return next_state, dataclasses.replace(
            after, reward=jnp.where(state.active, after.reward, ghost.reward + HARE)
        )

    return of_step(env, step)


def cut_at_the_horizon(env: Environment) -> Environment:
    def step(state, action, key, next_state, after):
        late = next_state.time >= next_state.end
        return next_state, dataclasses.replace(
            after,
            truncated=after.truncated | late,
            terminated=jnp.where(late, ~next_state.active, after.terminated),
        )

    return of_step(env, step)


def one_by_one(env: Environment) -> Environment:
    """Moves in the order of seats; who finds the cell taken stays."""

    def step(state, action, key, next_state, after):
        places, wanted = state.players, next_state.players
        for seat in range(env.num_agents):
            others = jnp.arange(env.num_agents) != seat
            is_taken = jnp.any((places == wanted[seat]) & others & next_state.active)
            places = places.at[seat].set(jnp.where(is_taken, places[seat], wanted[seat]))
        next_state = dataclasses.replace(next_state, players=places)
        observation, legal = env.view(next_state)
        return next_state, dataclasses.replace(after, observation=observation, legal=legal)

    return of_step(env, step)


def one_key(env: Environment) -> Environment:
    return dataclasses.replace(env, reset=lambda key: env.reset(jax.random.key(0)))


ENVIRONMENT = [
    Mutant(1, "a stag goes to the lowest index", "renaming", "envs", paid(to_lowest)),
    Mutant(2, "stag shares by index", "renaming", "envs", paid(by_index)),
    Mutant(
        3,
        "the reward of seat 0 for all",
        "renaming",
        "envs",
        paid(lambda env, before, reward, after, key: jnp.full_like(reward, reward[0])),
    ),
    Mutant(
        4,
        "seat 2 sees what seat 0 does",
        "views",
        "envs",
        lambda env: of_view(env, lambda seen, legal: (seen.at[2].set(seen[0]), legal)),
    ),
    Mutant(5, "seat 0 starts on the stag", "resets", "envs", beside_the_stag),
    Mutant(
        6,
        "the mask allows walking off the board",
        "rules",
        "envs",
        lambda env: of_view(
            env, lambda seen, legal: (seen, legal.at[:, :4].set(legal[:, :4] | legal[:, 1:2]))
        ),
    ),
    Mutant(
        7,
        "masks of the next seat",
        "rules",
        "envs",
        lambda env: of_view(env, lambda seen, legal: (seen, jnp.roll(legal, 1, axis=0))),
    ),
    Mutant(8, "the departed collect", "rules", "envs", collects_when_gone),
    Mutant(9, "a shared hare pays each in full", "rules", "envs", paid(hare_in_full)),
    Mutant(10, "the horizon reported as a cut", "rules", "envs", cut_at_the_horizon),
    Mutant(11, "moves one by one, with blocking", "renaming", "envs", one_by_one),
    Mutant(12, "every reset with the same key", "resets", "envs", one_key),
    Mutant(13, "a shared hare drawn, seat 3 favoured", "renaming", "envs", paid(hare_to(0.6))),
]


def stag_hunt() -> Environment:
    return make_game("4h1s_4x4")
