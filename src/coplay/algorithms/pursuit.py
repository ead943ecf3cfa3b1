"""Going after a goal that was ordered: Q-learning in which every step teaches about every goal.

Q says how soon and how surely an action leads to trying for a goal: 1 when it does, less the later. Whoever
is sent for a stag goes there and tries, in company or not: to catch it would take others, and then waiting
far off would be as good a way as any. Whatever a player did, free or under another order, tells how each goal
could have been tried for from there, so goals that nobody pursues at the moment are learned as well. Whoever
is ordered draws from a Boltzmann policy on Q: ways that serve equally well are taken alike, worse ones the
less often, the worse they are.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms.losses import NEVER
from coplay.algorithms.sharing import Sharing
from coplay.nets.mlp import MLP
from coplay.opponents.goal_policy import wishes
from coplay.opponents.goals import tried_goals
from coplay.training.devices import total
from coplay.training.stages import Fit, fit
from coplay.types import (
    Environment,
    Goals,
    Key,
    Metrics,
    Params,
    PyTree,
    Seated,
    Stage,
    TimeStep,
    Trajectory,
    pytree,
)

GOALS_PER_ROW = 2  # that a step teaches about, drawn if the game has more
LEAST_Q = 1e-3  # below this a goal is as good as out of reach, and any way is as good

Settings = Any  # the pursuit_* fields of HOPConfig, hidden and chunk_rows


class Pursuit(NamedTuple):
    env: Environment
    seats: tuple[int, ...]
    network: PyTree  # without arrays
    sharing: Sharing
    temperature: float  # as a share of the best Q


def pursuit_of(env: Environment, seats: tuple[int, ...], settings: Settings, sharing: Sharing):
    """The pursuit, and a function that initialises its weights for every seat."""
    inputs = env.observation_size + env.num_actions + env.goals.features

    def build(key: Key) -> MLP:
        return MLP(key, inputs, settings.hidden, env.num_actions, 0.01)

    def init(key: Key) -> Seated:
        weights = sharing.init(lambda k: {"q": eqx.filter(build(k), eqx.is_array)}, key, len(seats))
        return sharing.pack(weights, {})

    network = eqx.partition(build(jax.random.key(0)), eqx.is_array)[1]
    return Pursuit(env, seats, network, sharing, settings.pursuit_temperature), init


# --- following orders ----------------------------------------------------------------------------


def ordered_policy(
    pursuit: Pursuit, params: Seated, timestep: TimeStep, order: Int[Array, "env seat"]
) -> Float[Array, "env seat action"]:
    """What each seat does for its order."""
    own = np.array(pursuit.seats)
    goal = ordered_goal(pursuit.env.goals, timestep, order, pursuit.seats)
    legal = timestep.legal[:, own]
    rows = jnp.concatenate([timestep.observation[:, own], legal.astype(jnp.float32), goal], axis=-1)
    q = jnp.moveaxis(q_values(pursuit, params, jnp.moveaxis(rows, 1, 0)), 0, 1)
    return jax.nn.softmax(boltzmann_logits(pursuit, q, legal), axis=-1)


def ordered_goal(goals: Goals, timestep: TimeStep, order: Int[Array, "*batch seat"], seats: tuple[int, ...]):
    """How the ordered goal looks from each seat; nothing where there is none."""
    wished = wishes(goals, timestep).description[..., jnp.array(seats), :, :]
    is_ordered = jax.nn.one_hot(order, wished.shape[-2], dtype=bool)
    return jnp.sum(jnp.where(is_ordered[..., None], wished, 0.0), axis=-2)


def q_values(
    pursuit: Pursuit, params: Seated, rows: Float[Array, "seat *batch feature"]
) -> Float[Array, "seat *batch action"]:
    """Of rows that end with a goal, by each seat's network."""
    weights = pursuit.sharing.weights(params)
    return jax.vmap(lambda w, x: eqx.combine(pursuit.network, w["q"])(x))(weights, rows)


def boltzmann_logits(
    pursuit: Pursuit, q: Float[Array, "*batch action"], legal: Bool[Array, "*batch action"]
) -> Float[Array, "*batch action"]:
    best = jnp.max(jnp.where(legal, q, 0.0), axis=-1, keepdims=True)
    return jnp.where(legal, q / (pursuit.temperature * jnp.maximum(best, LEAST_Q)), NEVER)


# --- learning ------------------------------------------------------------------------------------


@pytree
class Rows:
    """What one seat learns from, [env, time * goal, ...]."""

    seen: Float[Array, "*rows feature"]
    action: Int[Array, "*rows"]
    target: Float[Array, "*rows"]
    counts: Bool[Array, "*rows"]


def pursuit_stage(pursuit: Pursuit, settings: Settings) -> Stage:
    optimiser = optax.adam(settings.pursuit_learning_rate, eps=1e-5)
    sharing = pursuit.sharing

    def loss(weights, rows: Rows):
        q = eqx.combine(pursuit.network, weights["q"])(rows.seen)
        taken = jax.nn.one_hot(rows.action, q.shape[-1], dtype=bool)
        error = jnp.sum(jnp.where(taken, q, 0.0), axis=-1) - rows.target
        squares = jnp.sum(jnp.where(rows.counts, 0.5 * error**2, 0.0))
        return squares, {"loss": squares, "q": jnp.sum(jnp.where(rows.counts, rows.target, 0.0))}

    pieces = Fit(settings.pursuit_epochs, settings.pursuit_minibatches, settings.chunk_rows)
    descend = fit(loss, optimiser, pieces)

    def init(params: Params):
        return sharing.pack(jax.vmap(optimiser.init)(sharing.weights(params)), {})

    def update(params: Params, learner, trajectory: Trajectory, key: Key):
        draw_key, shuffle_key = jax.random.split(key)
        rows = _rows(pursuit, settings.pursuit_discount, params, trajectory, draw_key)
        weights, state, sums = jax.vmap(lambda w, o, r: descend(w, o, r, _counted, shuffle_key))(
            sharing.weights(params), sharing.weights(learner), rows
        )
        return sharing.pack(weights, {}), sharing.pack(state, {}), _figures(sums, rows)

    return Stage(init, update)


def _counted(rows: Rows) -> Float[Array, ""]:
    return jnp.sum(rows.counts).astype(jnp.float32)


def _rows(pursuit: Pursuit, discount: float, params: Seated, trajectory: Trajectory, key: Key) -> Rows:
    """Every step of a seat still in the game, for goals that could be had."""
    env, steps, own = pursuit.env, trajectory.steps, np.array(pursuit.seats)
    before, after = steps.before, steps.after
    goal = _drawn_goals(env.goals, before.first.shape, key)  # [time, env, goal]
    tried = tried_goals(env, steps)[..., own]
    seen, possible = _seen(env, before, own, goal)
    later, is_left = _seen(env, after, own, goal)
    best = _best(pursuit, params, later, after.legal[..., own, :])
    goes_on = is_left & ~after.terminated[..., own, None]
    reached = tried[..., None] == goal[:, :, None]
    target = jnp.where(reached, 1.0, discount * jnp.where(goes_on, jnp.clip(best, 0.0, 1.0), 0.0))
    action = jnp.broadcast_to(steps.decision.action[..., own, None], reached.shape)
    rows = Rows(seen, action, target, before.active[..., own, None] & possible)
    return jax.tree.map(_by_seat, rows)


def _best(
    pursuit: Pursuit,
    params: Seated,
    seen: Float[Array, "time env seat goal feature"],
    legal: Bool[Array, "time env seat action"],
) -> Float[Array, "time env seat goal"]:
    """Q of the best legal action."""
    q = jnp.moveaxis(q_values(pursuit, params, jnp.moveaxis(seen, 2, 0)), 0, 2)
    return jnp.max(jnp.where(legal[..., None, :], q, NEVER), axis=-1)


def _drawn_goals(goals: Goals, shape: tuple[int, ...], key: Key) -> Int[Array, "time env goal"]:
    """Neighbours in a circle of all errands, beginning anywhere."""
    errands = np.array([k for k in range(len(goals.names)) if k not in goals.aimless], np.int32)
    count = min(GOALS_PER_ROW, len(errands))
    start = jax.random.randint(key, (*shape, 1), 0, len(errands))
    return jnp.asarray(errands)[(start + jnp.arange(count).reshape(1, 1, -1)) % len(errands)]


def _seen(env: Environment, timestep: TimeStep, own: np.ndarray, goal: Int[Array, "time env goal"]):
    """Rows that end with each goal, [time, env, seat, goal, feature], and whether it can be had."""
    wished = wishes(env.goals, timestep)
    is_goal = jax.nn.one_hot(goal, len(env.goals.names), dtype=bool)[:, :, None]  # [time, env, 1, goal, name]
    description = wished.description[..., own, :, :]
    told = jnp.sum(jnp.where(is_goal[..., None], description[..., None, :, :], 0.0), axis=-2)
    possible = jnp.any(is_goal & wished.possible[..., own, None, :], axis=-1)
    plain = [timestep.observation[..., own, :], timestep.legal[..., own, :].astype(jnp.float32)]
    row = jnp.concatenate(plain, axis=-1)[..., None, :]
    row = jnp.broadcast_to(row, (*told.shape[:-1], row.shape[-1]))
    return jnp.concatenate([row, told], axis=-1), possible


def _by_seat(x: Array) -> Array:
    """[time, env, seat, goal, ...] as [seat, env, time * goal, ...]."""
    x = jnp.transpose(x, (2, 1, 0, 3, *range(4, x.ndim)))
    return x.reshape(*x.shape[:2], -1, *x.shape[4:])


def _figures(sums: Metrics, rows: Rows) -> Metrics:
    samples = total(jnp.sum(rows.counts, axis=(1, 2), dtype=jnp.float32))
    return {
        "pursuit/loss": sums["loss"],
        "pursuit/mean_target": sums["q"],
        "count/samples/pursuit": samples,
    }
