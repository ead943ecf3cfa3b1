"""Scripted hunters: those who want a stag, those who want a hare, and those who change their mind.

`optimum` is no co-player: it moves all seats at once and shows that the ceiling can be reached.
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.envs import grid, paths
from coplay.envs.stag_hunt import HUNT_HARE, HUNT_STAG, NUM_ACTIONS, StagHuntConfig, path_lengths
from coplay.errors import require
from coplay.players import seeking
from coplay.players.scripted import ScriptedPlayer, certain, machine, one_latent
from coplay.training.stages import no_learning
from coplay.types import Algorithm, Decision, Environment, Key, TimeStep, Transition, pytree

STAG, HARE, NOTHING = 0, 1, -1  # places in env.goals


def nearest_stag(env: Environment, metric: str = "path") -> ScriptedPlayer:
    """Seeks a stag and hunts it, even alone; once none is left, acts as nearest_hare."""
    hunt = _hunter(env, metric)
    return one_latent(
        "nearest_stag",
        policy=lambda latent, row, legal: hunt(row, legal, True),
        goal=lambda latent, row: _goal(env, row, True),
    )


def nearest_hare(env: Environment, metric: str = "path") -> ScriptedPlayer:
    """Seeks a hare and hunts it; once none is left, acts as nearest_stag."""
    hunt = _hunter(env, metric)
    return one_latent(
        "nearest_hare",
        policy=lambda latent, row, legal: hunt(row, legal, False),
        goal=lambda latent, row: _goal(env, row, False),
    )


def fickle(env: Environment, switch: float = 0.1, metric: str = "path") -> ScriptedPlayer:
    """Starts as nearest_stag or nearest_hare by a fair draw; switches once, with chance 0.1 per step."""
    require(0 <= switch <= 1, f"switch={switch} must lie between 0 and 1")
    hunt = _hunter(env, metric)
    # Latents: stag, hare; then the same two, having switched.
    chances = np.zeros((4, 4), np.float32)
    chances[[0, 1], [3, 2]] = switch
    chances[[0, 1], [0, 1]] = 1 - switch
    chances[[2, 3], [2, 3]] = 1
    return machine(
        "fickle",
        start=[0.5, 0.5, 0.0, 0.0],
        policy=lambda latent, row, legal: hunt(row, legal, latent % 2 == STAG),
        advance=lambda latent, before, after: jnp.asarray(chances)[latent],
        goal=lambda latent, row: _goal(env, row, latent % 2 == STAG),
    )


def waiter(env: Environment, k: int = 5, metric: str = "path") -> ScriptedPlayer:
    """Waits on a stag's cell and hunts in company; after k steps alone becomes nearest_hare."""
    require(k >= 1, f"k={k} must be at least 1")
    hunt = _hunter(env, metric)
    # The latent counts the steps spent alone on a stag's cell.

    def policy(latent, row, legal):
        waits = (latent < k) & _is_alone_on_stag(env, row)
        stay = certain(grid.STAY, NUM_ACTIONS)
        return jnp.where(waits, stay, hunt(row, legal, latent < k))

    def advance(latent, before, after):
        waited = latent + _is_alone_on_stag(env, before).astype(jnp.int32)
        return certain(jnp.minimum(waited, k), k + 1)

    return machine(
        "waiter",
        start=[1.0] + [0.0] * k,
        policy=policy,
        advance=advance,
        goal=lambda latent, row: _goal(env, row, latent < k),
    )


def reciprocator(env: Environment, watched: int = 1, metric: str = "path") -> ScriptedPlayer:
    """Nearest_stag at first, and whenever the watched player took a stag last episode; else nearest_hare.

    `watched` counts seats on from its own, in cyclic order.
    """
    require(
        1 <= watched < env.num_agents,
        f"watched={watched} counts seats on from its own: between 1 and {env.num_agents - 1}",
    )
    hunt = _hunter(env, metric)
    # Latent: 2 * (wants a hare) + (saw the watched player take a stag in this episode).

    def advance(latent, before, after):
        now = env.split(after)
        was_there = jnp.any(env.split(before)["others"][watched - 1])
        left = was_there & ~jnp.any(now["others"][watched - 1])
        took_stag = left & (now["previous"][watched, HUNT_STAG] > 0.5)
        return certain(latent | took_stag.astype(jnp.int32), 4)

    return machine(
        "reciprocator",
        start=[1.0, 0.0, 0.0, 0.0],
        renew=lambda latent: certain(jnp.where(latent % 2 == 1, 0, 2), 4),
        policy=lambda latent, row, legal: hunt(row, legal, latent < 2),
        advance=advance,
        goal=lambda latent, row: _goal(env, row, latent < 2),
    )


def _hunter(env: Environment, metric: str) -> Callable:
    """How to hunt: observation row, legal row, wants a stag -> action probabilities."""
    lengths_from = _path_lengths(env.options, metric)

    def hunt(row, legal: Bool[Array, " action"], wants_stag) -> Float[Array, " action"]:
        seen = env.split(row)
        after_stag = _goal(env, row, wants_stag) == STAG
        prey = jnp.where(after_stag, seen["stags"], seen["hares"])
        lengths = lengths_from(seen["walls"], paths.cell_of(seen["self"]))
        deed = jnp.where(after_stag, HUNT_STAG, HUNT_HARE)
        return seeking.seek(lengths, prey.reshape(-1), legal, deed)

    return hunt


def _goal(env: Environment, row: Float[Array, " feature"], wants_stag) -> Int[Array, ""]:
    """What it wants while there is one, then the other."""
    seen = env.split(row)
    stag_left, hare_left = jnp.any(seen["stags"]), jnp.any(seen["hares"])
    stag = jnp.where(wants_stag, stag_left, stag_left & ~hare_left)
    return jnp.where(stag, STAG, jnp.where(hare_left, HARE, NOTHING))


def _path_lengths(config: StagHuntConfig, metric: str) -> paths.Lengths:
    require(metric in ("path", "manhattan"), f"metric={metric!r} must be 'path' or 'manhattan'")
    return paths.on_open_board(config.size) if metric == "manhattan" else path_lengths(config)


def _is_alone_on_stag(env: Environment, row: Float[Array, " feature"]) -> Bool[Array, ""]:
    seen = env.split(row)
    company = jnp.any(seen["others"], axis=0)
    return jnp.any(seen["self"] & seen["stags"] & ~company)


# --- the yardstick: all seats, one plan ----------------------------------------------------------


@pytree
class Plan:
    """Who goes where: settled when the episode starts, kept until it ends."""

    target: Int[Array, "*batch agent"]  # cell, NOTHING for who is not needed
    on_stag: Bool[Array, "*batch agent"]
    made: Bool[Array, "*batch"]


def optimum(env: Environment) -> Algorithm:
    """All seats at once: a company to each stag worth it, the rest to distinct hares; all wait, all
    strike in one step. Ties go to the first seat."""
    lengths_from = path_lengths(env.options)

    def remember(num_envs: int) -> Plan:
        shape = (num_envs, env.num_agents)
        return Plan(jnp.full(shape, NOTHING), jnp.zeros(shape, bool), jnp.zeros(num_envs, bool))

    def act(params, memory: Plan, timestep: TimeStep, state, key: Key) -> tuple[Plan, Decision]:
        follow = jax.vmap(lambda plan, now: _follow_plan(env, lengths_from, plan, now))
        plan, action = follow(memory, timestep)
        policy = jax.nn.one_hot(action, NUM_ACTIONS)
        return plan, Decision(action, jnp.zeros(action.shape), policy)

    def watch(params, memory: Plan, transition: Transition) -> Plan:
        return memory

    return Algorithm(lambda key: {}, remember, act, watch, no_learning)


def _follow_plan(env: Environment, lengths_from: paths.Lengths, plan: Plan, now: TimeStep):
    """One game: the plan, made anew if there is none, and everyone's next action."""
    seen = env.split(now.observation[0])
    cells = jax.vmap(lambda row: paths.cell_of(env.split(row)["self"]))(now.observation)
    lengths = jax.vmap(lengths_from, (None, 0))(seen["walls"], cells).astype(jnp.int32)
    fresh = _make_plan(env.options, lengths[:, 0], seen)
    is_new = now.first | ~plan.made
    plan = jax.tree.map(lambda new, old: jnp.where(is_new, new, old), fresh, plan)
    return plan, _next_actions(plan, cells, lengths, now.legal)


def _next_actions(
    plan: Plan,
    cells: Int[Array, " agent"],
    lengths: Int[Array, "agent place cell"],
    legal: Bool[Array, "agent action"],
) -> Int[Array, " agent"]:
    to_target = jnp.take_along_axis(lengths, plan.target[:, None, None], axis=2)[..., 0]
    shortens = (to_target[:, 1:] < to_target[:, :1]) & legal[:, : seeking.NUM_MOVES]
    move = jnp.where(jnp.any(shortens, axis=1), jnp.argmax(shortens, axis=1), grid.STAY)
    strike = jnp.where(plan.on_stag, HUNT_STAG, HUNT_HARE)
    is_there = jnp.any(legal[:, : seeking.NUM_MOVES], axis=1)  # who has left can only stay
    is_needed = is_there & (plan.target != NOTHING)
    all_there = jnp.all((plan.target == cells) | ~is_needed)
    return jnp.where(is_needed, jnp.where(all_there, strike, move), grid.STAY)


def _make_plan(config: StagHuntConfig, lengths: Int[Array, "agent cell"], seen) -> Plan:
    """Companies first, each time the one nearest to its stag; then hares, each to who is nearest."""
    companies = _num_companies(config)
    left_over = config.players - companies * config.stag_hunters
    nobody = jnp.full(config.players, NOTHING)
    hunting = _assign(nobody, lengths, seen["stags"].reshape(-1), config.stag_hunters, companies)
    feeding = _assign(hunting, lengths, seen["hares"].reshape(-1), 1, min(config.hares, left_over))
    return Plan(feeding, hunting != NOTHING, jnp.bool_(True))


def _assign(
    target: Int[Array, " agent"],
    lengths: Int[Array, "agent cell"],
    prey: Bool[Array, " cell"],
    company: int,
    rounds: int,
) -> Int[Array, " agent"]:
    """Each round sends the free company with the shortest way in all to a prey nobody goes to yet."""
    groups = np.array(list(itertools.combinations(range(len(target)), company)))  # [group, member]
    num_cells = lengths.shape[1]

    def one_round(_, target):
        is_taken = jnp.any(target[:, None] == jnp.arange(num_cells)[None, :], axis=0)
        is_free = jnp.all(target[groups] == NOTHING, axis=1)
        possible = is_free[:, None] & (prey & ~is_taken)[None, :]
        way = jnp.where(possible, jnp.sum(lengths[groups], axis=1), jnp.iinfo(jnp.int32).max)
        group, cell = jnp.divmod(jnp.argmin(way), num_cells)
        return target.at[jnp.asarray(groups)[group]].set(cell.astype(target.dtype))

    return jax.lax.fori_loop(0, rounds, one_round, target)


def _num_companies(config: StagHuntConfig) -> int:
    """How many stags to hunt for the highest mean return."""

    def value(stags: int) -> float:
        left_over = config.players - stags * config.stag_hunters
        return stags * config.stag_reward + min(config.hares, left_over) * config.hare_reward

    return max(range(min(config.stags, config.players // config.stag_hunters) + 1), key=value)
