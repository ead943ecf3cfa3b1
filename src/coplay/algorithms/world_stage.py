"""How the model of the game learns while it is played.

All seats see the same moves, so they have one model between them, of several members. It learns from the
newest moves of four fifths of the games, those with rare rewards drawn more often: a model that has seen few
stags caught says that stags do not pay, and whoever believes it catches no more. On the other fifth it is
judged, before anybody imagines anything with it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms.glance import how_many
from coplay.algorithms.ppo import Plan
from coplay.algorithms.staleness import aged, mean_surprise, unborn
from coplay.diagnostics import gates
from coplay.nets import world as worlds
from coplay.nets.world import World
from coplay.nets.world_fit import Moves, loss, moves, of_some_member, said, same_board
from coplay.taps import tap
from coplay.training.devices import total
from coplay.training.stages import Fit, PerEnv, fit
from coplay.types import Environment, Key, Metrics, PyTree, Seated, Stage, Trajectory, pytree, stream

RAREST = 50.0  # how many times as often as the commonest reward the rarest is drawn, at most
JUDGED = 512  # moves that are judged after each round
Settings = Any  # the world_* fields of HOPPlusConfig


@pytree
class Remembered:
    """The newest moves of every game, oldest overwritten first."""

    moves: Moves  # [env, slot, ...]
    rounds: Int[Array, " env"]  # how many rounds have been written


def world_stage(env: Environment, world: World, settings: Settings, plan: Plan) -> Stage:
    """Weights are [member, ...], common to all seats."""
    optimiser = optax.adam(settings.world_learning_rate, eps=1e-5)
    descend = fit(
        lambda weights, rows: (jnp.sum(loss(world, weights["world"], rows, _here(rows))), {}),
        optimiser,
        Fit(epochs=1, minibatches=settings.world_steps, chunk_rows=settings.world_batch),
    )
    rounds = max(1, settings.world_memory // (plan.num_envs * plan.num_steps))

    def init(params: Seated):
        state = jax.vmap(lambda w: optimiser.init({"world": w}))(params.common["members"])
        memory = _nothing_yet(env, world, plan.num_envs, plan.num_steps, rounds)
        age = unborn(params.common["members"])
        return Seated(own={}, common={"optimiser": state, "remembered": PerEnv(memory), "age": age})

    def update(params: Seated, learner: Seated, trajectory: Trajectory, key: Key):
        memory = _written(env, world, learner.common["remembered"].per_env, trajectory, rounds)
        tap("world/remembered", lambda: memory)
        held = gates.held_out(memory.rounds.shape[0])
        paid = _paid(world, memory, rounds, plan.num_steps)
        seen = total(jnp.sum(paid, axis=(0, 1), dtype=jnp.float32))
        chance = _chances(paid, seen)
        count = settings.world_steps * settings.world_batch * memory.rounds.shape[0] // plan.num_envs
        learned, judged = chance.at[:held].set(0.0), chance.at[held:].set(0.0)

        def one_member(weights, state, key):
            rows = _drawn(memory.moves, learned, count, stream(key, "rows"))
            rows = jax.tree.map(lambda x: x[:, None], rows)  # columns of one move
            return descend({"world": weights}, state, rows, _counted, stream(key, "fit"))

        members = params.common["members"]
        keys = jax.random.split(stream(key, "members"), settings.world_members)
        weights, state, _ = jax.vmap(one_member)(members, learner.common["optimiser"], keys)
        rows = _drawn(memory.moves, judged, JUDGED, stream(key, "judged"))
        figures = figures_of(world, weights["world"], rows, stream(key, "draws"))
        figures |= {f"world/seen/{v:.3g}": seen[i] for i, v in enumerate(world.reward_values)}
        newest = _newest(memory, rounds, plan.num_steps, held)
        age, stale = aged(
            "drift/world_staleness",
            lambda weights: _surprise(world, weights, newest),
            learner.common["age"],
            members,
            weights["world"],
        )
        learner = Seated(own={}, common={"optimiser": state, "remembered": PerEnv(memory), "age": age})
        return Seated(own={}, common={"members": weights["world"]}), learner, figures | stale

    return Stage(init, update)


def _here(rows: Moves) -> Float[Array, "*row agent"]:
    return rows.before.here.astype(jnp.float32)


def _counted(rows: Moves) -> Float[Array, ""]:
    return jnp.float32(np.prod(rows.action.shape[:2]))


# --- what is remembered --------------------------------------------------------------------------


def _nothing_yet(env: Environment, world: World, num_envs: int, num_steps: int, rounds: int) -> Remembered:
    state, timestep = env.reset(jax.random.key(0))
    action = jnp.full(env.num_agents, env.neutral_action, jnp.int32)
    one = moves(env, world, state, state, action, timestep.reward)
    slots = (num_envs, rounds * num_steps)
    return Remembered(
        moves=jax.tree.map(lambda x: jnp.broadcast_to(x, (*slots, *x.shape)), one),
        rounds=jnp.zeros(num_envs, jnp.int32),
    )


def _written(
    env: Environment, world: World, memory: Remembered, trajectory: Trajectory, rounds: int
) -> Remembered:
    """With this round in the place of the oldest."""
    steps = trajectory.steps
    num_steps = steps.before.first.shape[0]
    label = jax.vmap(jax.vmap(lambda *one: moves(env, world, *one)))
    new = label(steps.state, steps.next_state, steps.decision.action, steps.after.reward)
    start = (memory.rounds[0] % rounds) * num_steps

    def put(old: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, jnp.swapaxes(new, 0, 1), start, axis=1)

    return Remembered(jax.tree.map(put, memory.moves, new), memory.rounds + 1)


def _newest(memory: Remembered, rounds: int, num_steps: int, held: int) -> Moves:
    """The last round as some of the games had it that are held out, [env, time, ...]."""
    games = min(how_many(num_steps, memory.rounds.shape[0]), held)
    start = ((memory.rounds[0] - 1) % rounds) * num_steps
    return jax.tree.map(
        lambda x: jax.lax.dynamic_slice_in_dim(x[:games], start, num_steps, axis=1), memory.moves
    )


def _paid(world: World, memory: Remembered, rounds: int, num_steps: int) -> Bool[Array, "env slot value"]:
    """Which rewards each remembered move paid to anybody."""
    values = len(world.reward_values)
    is_written = jnp.arange(rounds)[None] < memory.rounds[:, None]
    is_written = jnp.repeat(is_written, num_steps, axis=1)
    paid = (
        jax.nn.one_hot(memory.moves.happened.reward, values, dtype=bool) & memory.moves.before.here[..., None]
    )
    return jnp.any(paid, axis=2) & is_written[..., None]


def _chances(paid: Bool[Array, "env slot value"], seen: Float[Array, " value"]) -> Float[Array, "env slot"]:
    """How often each move is drawn, up to a constant: by the rarest reward that it paid."""
    rarity = jnp.minimum(RAREST, jnp.max(seen) / jnp.maximum(seen, 1.0))
    return jnp.max(jnp.where(paid, rarity[None, None], 0.0), axis=-1)


def _drawn(rows: Moves, chance: Float[Array, "env slot"], count: int, key: Key) -> Moves:
    """So many moves, with replacement; [row, ...]."""
    cumulative = jnp.cumsum(chance.reshape(-1))
    at = jnp.searchsorted(cumulative, jax.random.uniform(key, (count,)) * cumulative[-1], side="right")
    at = jnp.minimum(at, cumulative.shape[0] - 1)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[at], rows)


# --- how good it is ------------------------------------------------------------------------------


def _surprise(world: World, weights: PyTree, rows: Moves) -> Float[Array, ""]:
    """Cross-entropy of joint moves, of all that was there in each; the mean over members."""
    costs = jax.vmap(lambda one: loss(world, one, rows, _here(rows)))(weights)
    is_played = jnp.any(rows.before.here, axis=-1)
    return mean_surprise(jnp.mean(costs, axis=0), is_played, (0, 1))


def figures_of(world: World, weights: PyTree, rows: Moves, key: Key) -> Metrics:
    """On moves of games that it did not learn from, a drawn member for each; recall by what was paid."""
    each = jax.vmap(lambda one: said(world, one, rows))(weights)
    count = (rows.action.shape[0],)
    told = of_some_member(each, jax.random.randint(stream(key, "member"), count, 0, each.step.shape[0]))
    drawn = worlds.draw(told, stream(key, "draw"))
    board = worlds.next_board(world, rows.before, drawn)
    is_possible = jax.vmap(world.entities.possible)(rows.state, board)
    sums = {
        "exact": jnp.sum(same_board(board, rows.after), dtype=jnp.float32),
        "possible": jnp.sum(is_possible, dtype=jnp.float32),
        "disagreement": jnp.sum(worlds.disagreement(each, rows.before)),
        "rows": jnp.float32(count[0]),
    }
    right, seen = _by_value(world, drawn.reward, rows)
    sums, right, seen = total((sums, right, seen))
    figures = {f"world/{name}": sums[name] / sums["rows"] for name in ("exact", "possible", "disagreement")}
    for index, value in enumerate(world.reward_values):
        figures[f"world/recall/{value:.3g}"] = jnp.where(
            seen[index] > 0, right[index] / jnp.maximum(seen[index], 1.0), jnp.nan
        )
    return figures


def _by_value(
    world: World, told: Int[Array, "row agent"], rows: Moves
) -> tuple[Float[Array, " value"], Float[Array, " value"]]:
    """How often each reward was foretold where it was paid, and how often it was paid."""
    values = len(world.reward_values)
    is_paid: Bool[Array, "row agent value"] = jax.nn.one_hot(rows.happened.reward, values, dtype=bool)
    is_paid &= rows.before.here[..., None]
    is_right = is_paid & (told == rows.happened.reward)[..., None]
    return jnp.sum(is_right, (0, 1), dtype=jnp.float32), jnp.sum(is_paid, (0, 1), dtype=jnp.float32)
