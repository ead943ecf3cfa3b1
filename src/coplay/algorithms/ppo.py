"""Proximal policy optimisation for the seats of a game, and MAPPO: the same with a joint-view critic.

A policy and a critic network; parameters per agent, shared, or shared and told who it is. Rows of
players that have left are in no loss and no statistic; `terminated` ends a return, `truncated` does not.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms import value_scale
from coplay.algorithms.losses import PolicyRows, clipped_policy_loss, clipped_value_loss, log_policy
from coplay.algorithms.returns import RETURNS
from coplay.algorithms.rewards import learning_reward, outlives_players
from coplay.algorithms.sharing import Sharing, sharing
from coplay.algorithms.views import View, joint_view, own_view, with_identity
from coplay.nets import NETWORKS
from coplay.training.devices import masked_mean
from coplay.training.stages import Fit, fit, in_order
from coplay.types import (
    Algorithm,
    Decision,
    Environment,
    Key,
    Memory,
    Metrics,
    Stage,
    TimeStep,
    Trajectory,
    pytree,
)


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    parameters: Literal["per_agent", "shared", "shared_with_id"] = "per_agent"  # whose weights
    network: Literal["mlp", "cnn", "gru", "cnn_gru"] = "mlp"  # of policy and critic alike
    hidden: tuple[int, ...] = (64, 64)  # widths; a GRU is as wide as the last
    activation: Literal["tanh", "relu", "elu"] = "tanh"
    learning_rate: float = 1e-3  # of Adam
    anneal: bool = True  # learning rate falls to 0 over the run
    epochs: int = 4  # passes over each round of play
    minibatches: int = 4  # per epoch; num_envs is a multiple
    clip: float = 0.2  # largest change of the ratio that still pays
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    value_clip: float | None = 0.2  # of predictions in normalised units; None: unclipped
    huber: float | None = 10.0  # value errors beyond this count in proportion; None: squares
    max_grad_norm: float = 0.5  # of policy and critic each
    discount: float = 0.99
    trace: float = 0.95  # GAE's lambda
    returns: Literal["gae", "monte_carlo"] = "gae"
    value_normalisation: bool = True
    learning_reward: str = "own"  # own, team, mix, or file.py:function
    team_share: float = 0.5  # weight of the team's mean where learning_reward is mix
    chunk_rows: int = 140  # rows per gradient chunk; speed only, sums agree to rounding

    def __post_init__(self):
        positive = ("learning_rate", "epochs", "minibatches", "clip", "max_grad_norm", "chunk_rows")
        for name in positive:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        for name in ("discount", "trace", "team_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must lie between 0 and 1")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden={self.hidden} must name at least one width of 1 or more")


@dataclasses.dataclass(frozen=True)
class MAPPOConfig(PPOConfig):
    parameters: Literal["per_agent", "shared", "shared_with_id"] = "shared_with_id"
    learning_rate: float = 5e-4
    value_weight: float = 1.0
    max_grad_norm: float = 10.0


class Plan(NamedTuple):
    """What a learner must know of the run around it."""

    num_updates: int
    sequence_length: int


def ppo(env: Environment, seats: tuple[int, ...], config: PPOConfig, plan: Plan) -> Algorithm:
    return _actor_critic(env, seats, config, plan, own_view)


def mappo(env: Environment, seats: tuple[int, ...], config: PPOConfig, plan: Plan) -> Algorithm:
    return _actor_critic(env, seats, config, plan, joint_view)


class Parts(NamedTuple):
    """What acting and learning share: networks without weights, views, and whose weights are whose."""

    policy: Any
    critic: Any
    policy_view: Callable
    critic_view: Callable
    sharing: Sharing
    has_memory: bool
    same_view: bool  # policy and critic read the same rows


def _actor_critic(env, seats, config: PPOConfig, plan: Plan, critic_view: View) -> Algorithm:
    num_names = env.num_agents if config.parameters == "shared_with_id" else 0
    build = _builder(env, config, [_view_size(view, env) + num_names for view in (own_view, critic_view)])
    skeletons = {name: eqx.partition(net, eqx.is_array)[1] for name, net in build(jax.random.key(0)).items()}
    parts = Parts(
        policy=skeletons["policy"],
        critic=skeletons["critic"],
        policy_view=_told_who(own_view, num_names),
        critic_view=_told_who(critic_view, num_names),
        sharing=sharing(config.parameters),
        has_memory=config.network in ("gru", "cnn_gru"),
        same_view=critic_view is own_view,
    )

    def init(key: Key):
        weights = parts.sharing.init(lambda k: eqx.filter(build(k), eqx.is_array), key, len(seats))
        return parts.sharing.pack(weights, {"identity": jnp.asarray(seats, jnp.int32)})

    def remember(num_envs: int) -> Memory:
        if not parts.has_memory:
            return ()
        zeros = jnp.zeros((num_envs, len(seats), config.hidden[-1]))
        return {"policy": zeros, "critic": zeros}

    return Algorithm(
        init=init,
        remember=remember,
        act=lambda params, memory, timestep, state, key: _act(parts, seats, params, memory, timestep, key),
        watch=lambda params, memory, transition: memory,
        learn=in_order({"policy": _learn(env, seats, config, plan, parts)}),
    )


def _told_who(view: View, num_names: int):
    """A function (timestep, seats, params) -> what networks read, with identities if names are told."""

    def look(timestep: TimeStep, seats: tuple[int, ...], params) -> Array:
        seen = view(timestep, seats)
        return with_identity(seen, params.own["seat"]["identity"], num_names) if num_names else seen

    return look


def _builder(env: Environment, config: PPOConfig, sizes: list[int]):
    """A function from a key to freshly initialised policy and critic, which read rows of these sizes."""
    build = NETWORKS[config.network]
    planes = env.plane_shape if "cnn" in config.network else None
    if "cnn" in config.network and planes is None:
        raise ValueError(
            f"network={config.network!r} needs observations that begin with a board; "
            f"{env.name} as set up has none: set observation='board' or network='mlp'"
        )

    def networks(key: Key) -> dict[str, Any]:
        policy_key, critic_key = jax.random.split(key)
        options = {"planes": planes, "activation": config.activation}
        return {
            "policy": build(policy_key, sizes[0], config.hidden, env.num_actions, 0.01, **options),
            "critic": build(critic_key, sizes[1], config.hidden, 1, 1.0, **options),
        }

    return networks


def _view_size(view: View, env: Environment) -> int:
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    return jax.eval_shape(lambda t: view(t, (0,)), timestep).shape[-1]


# --- acting --------------------------------------------------------------------------------------


def _act(parts: Parts, seats, params, memory, timestep: TimeStep, key: Key) -> tuple[Memory, Decision]:
    memory, logits = _policy_step(parts, seats, params, memory, timestep)
    index = np.array(seats)
    log_all = log_policy(logits, timestep.legal[:, index])
    policy = jnp.exp(log_all)
    action = draw_actions(key, params.own["seat"]["identity"], policy)
    taken = action[..., None] == jnp.arange(policy.shape[-1])[None, None, :]
    log_prob = jnp.sum(jnp.where(taken, log_all, 0.0), axis=-1)
    return memory, Decision(action=action, log_prob=log_prob, policy=policy)


def _policy_step(parts: Parts, seats, params, memory, timestep: TimeStep):
    """Logits now. With memory, the critic reads along, so that its sequences can start from what it knew."""
    weights = parts.sharing.weights(params)
    policy_memory = memory["policy"] if parts.has_memory else ()
    seen = parts.policy_view(timestep, seats, params)
    policy_memory, logits = _read(parts, "policy", weights, policy_memory, seen, timestep.first)
    if not parts.has_memory:
        return memory, logits
    seen = parts.critic_view(timestep, seats, params)
    critic_memory, _ = _read(parts, "critic", weights, memory["critic"], seen, timestep.first)
    return {"policy": policy_memory, "critic": critic_memory}, logits


def _read(parts: Parts, name, weights, memory, inputs: Float[Array, "env seat feature"], first):
    """One network, one step, every seat with its group's weights."""

    def one_group(weights, memory, inputs):
        return _sequences(getattr(parts, name), weights[name], memory, inputs, first[:, None])

    rows = parts.sharing.groups(inputs[:, None], 2)
    memory_rows = parts.sharing.groups(memory, 1)
    memory_rows, outputs = parts.sharing.map(one_group)(weights, memory_rows, rows)
    memory, outputs = (parts.sharing.seats(tree, 2) for tree in (memory_rows, outputs))
    return jax.tree.map(lambda x: x[:, 0], memory), outputs[:, 0]


def _sequences(skeleton, weights, memory, inputs: Float[Array, "column time seat feature"], first):
    """Memory after each step and outputs, both [column, time, seat, ...], starting from `memory`."""
    network = eqx.combine(skeleton, weights)
    if isinstance(memory, tuple):
        return memory, network(inputs)
    columns, time, seats = inputs.shape[:3]
    rows = jnp.moveaxis(inputs, 1, 0).reshape(time, columns * seats, -1)
    fresh = jnp.repeat(first.T, seats, axis=1)
    out = network.run(memory.reshape(columns * seats, -1), rows, fresh)
    return tuple(jnp.moveaxis(x.reshape(time, columns, seats, -1), 0, 1) for x in out)


def draw_actions(
    key: Key, identity: Int[Array, " seat"], policy: Float[Array, "env seat action"]
) -> Int[Array, "env seat"]:
    """One draw per row by the inverse of the cumulative distribution; each seat has its own stream."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, identity)
    unit = jax.vmap(lambda k: jax.random.uniform(k, policy.shape[:1]), out_axes=1)(keys)
    cumulative = jnp.cumsum(policy, axis=-1)
    reached = cumulative > (unit * cumulative[..., -1])[..., None]
    return jnp.argmax(reached, axis=-1).astype(jnp.int32)


# --- learning ------------------------------------------------------------------------------------


@pytree
class Batch:
    """One round of play as columns [column, time, seat, ...], a column being one sequence of one game."""

    policy_input: Float[Array, "*rows feature"]
    critic_input: Float[Array, "*rows view"] | tuple[()]  # () where it is the policy's
    policy: PolicyRows
    value: Float[Array, "*rows"]  # predicted before the update, normalised
    target: Float[Array, "*rows"]  # normalised
    first: Bool[Array, "*columns"]
    memory: Memory


def _learn(env, seats, config: PPOConfig, plan: Plan, parts: Parts) -> Stage:
    steps = plan.num_updates * config.epochs * config.minibatches
    rate = optax.linear_schedule(config.learning_rate, 0.0, steps) if config.anneal else config.learning_rate
    optimiser = optax.chain(clip_each_part(config.max_grad_norm), optax.adam(rate, eps=1e-5))
    descend = fit(
        lambda weights, batch: _loss(parts, config, weights, batch),
        optimiser,
        Fit(config.epochs, config.minibatches, config.chunk_rows),
    )

    def init(params):
        def one_group(weights):
            return {"optimiser": optimiser.init(weights), "scale": value_scale.start()}

        group = parts.sharing.map(one_group)(parts.sharing.weights(params))
        return parts.sharing.pack(group, {})

    def update(params, learner, trajectory: Trajectory, key: Key):
        weights, state = parts.sharing.weights(params), parts.sharing.weights(learner)
        batch, scale, figures = _targets(env, seats, config, plan, parts, params, state["scale"], trajectory)
        keys = parts.sharing.keys(key, params.own["seat"]["identity"])
        weights, optimiser_state, sums = parts.sharing.map(lambda w, o, b, k: descend(w, o, b, _counted, k))(
            weights, state["optimiser"], batch, keys
        )
        sums["policy/grad_norm"] = sums.pop("grad_norm/policy")
        sums["value/grad_norm"] = sums.pop("grad_norm/critic")
        figures |= sums | _counters(config, batch, parts)
        learner = parts.sharing.pack({"optimiser": optimiser_state, "scale": scale}, {})
        return parts.sharing.pack(weights, params.own["seat"]), learner, figures

    return Stage(init, update)


def _loss(parts: Parts, config: PPOConfig, weights, batch: Batch) -> tuple[Array, Metrics]:
    memory = batch.memory if parts.has_memory else {"policy": (), "critic": ()}
    _, logits = _sequences(parts.policy, weights["policy"], memory["policy"], batch.policy_input, batch.first)
    seen = batch.policy_input if parts.same_view else batch.critic_input
    _, value = _sequences(parts.critic, weights["critic"], memory["critic"], seen, batch.first)
    policy_loss, entropy, figures = clipped_policy_loss(logits, batch.policy, config.clip)
    value_loss = clipped_value_loss(
        value[..., 0], batch.value, batch.target, batch.policy.counts, config.value_clip, config.huber
    )
    terms = {"policy": policy_loss, "entropy": entropy, "value": value_loss}
    loss = sum(weight * terms[name] for name, weight in loss_terms(config).items())
    return jnp.asarray(loss), figures | {"value/loss": value_loss}


def loss_terms(config: PPOConfig) -> dict[str, float]:
    """What the loss is made of, and with which weight; a term of weight 0 is left out of the program."""
    terms = {"policy": 1.0, "entropy": -config.entropy_weight, "value": config.value_weight}
    return {name: weight for name, weight in terms.items() if weight}


def _counted(batch: Batch) -> Float[Array, ""]:
    return jnp.sum(batch.policy.counts).astype(jnp.float32)


def _counters(config: PPOConfig, batch: Batch, parts: Parts) -> Metrics:
    samples = parts.sharing.map(_counted)(batch)
    return {
        "count/updates/policy": jnp.full_like(samples, config.epochs * config.minibatches),
        "count/samples/policy": samples * config.epochs,
    }


def _targets(env, seats, config: PPOConfig, plan: Plan, parts: Parts, params, scale, trajectory: Trajectory):
    """Everything the loss reads, and figures on how well the critic had foreseen it."""
    weights = parts.sharing.weights(params)
    steps, index = trajectory.steps, np.array(seats)
    length = plan.sequence_length if parts.has_memory else steps.before.first.shape[0]

    def grouped(tree):
        return parts.sharing.groups(jax.tree.map(lambda x: to_columns(x, length), tree), 2)

    first = to_columns(steps.before.first, length)
    critic_input = grouped(parts.critic_view(steps.before, seats, params))
    memory = _column_memory(parts, trajectory)

    def read(weights, memory, inputs):
        return _sequences(parts.critic, weights["critic"], memory, inputs, first)

    critic_memory = memory["critic"] if parts.has_memory else ()
    remembered, value = parts.sharing.map(read)(weights, critic_memory, critic_input)
    value = value[..., 0]
    denormalise = parts.sharing.map(value_scale.denormalised if config.value_normalisation else _unscaled)
    real_value = from_columns(parts.sharing.seats(denormalise(scale, value), 2), steps.before.first.shape)
    last = _last_values(seats, parts, params, trajectory)
    last = parts.sharing.seats(denormalise(scale, parts.sharing.groups(last[:, None], 2)), 2)[:, 0]
    next_value = jnp.concatenate([real_value[1:], last[None]])
    if env.can_truncate:
        after_input = grouped(parts.critic_view(steps.after, seats, params))
        at_cut = parts.sharing.map(lambda w, m, x: _peek(parts, w, m, x))(weights, remembered, after_input)
        at_cut = from_columns(parts.sharing.seats(denormalise(scale, at_cut), 2), steps.before.first.shape)
        next_value = jnp.where(steps.after.truncated[..., None], at_cut, next_value)
    counts = steps.before.active[..., index]
    advantage = _advantages(config, seats, steps, real_value, next_value, counts)
    returns = grouped(advantage + real_value)
    counted = grouped(counts)
    if config.value_normalisation:
        scale = parts.sharing.map(value_scale.updated)(scale, returns, counted)
    target = parts.sharing.map(value_scale.normalised if config.value_normalisation else _unscaled)(
        scale, returns
    )
    batch = Batch(
        policy_input=grouped(parts.policy_view(steps.before, seats, params)),
        critic_input=() if parts.same_view else critic_input,
        policy=PolicyRows(
            legal=grouped(steps.before.legal[..., index, :]),
            action=grouped(steps.decision.action[..., index]),
            log_prob=grouped(steps.decision.log_prob[..., index]),
            advantage=parts.sharing.map(_standardised)(grouped(advantage), counted),
            counts=counted,
        ),
        value=value,
        target=target,
        first=parts.sharing.alike(first, len(seats)),
        memory=memory,
    )
    figures = parts.sharing.map(_value_fit)(grouped(real_value), returns, counted)
    return batch, scale, figures


def _advantages(config: PPOConfig, seats, steps, value, next_value, counts) -> Float[Array, "time env seat"]:
    index = np.array(seats)
    reward = learning_reward(config.learning_reward, config.team_share)(steps)[..., index]
    over = jnp.all(steps.after.terminated, axis=-1, keepdims=True)
    ends = steps.after.terminated[..., index]
    if outlives_players(config.learning_reward):
        # Who has left still earns its share of what the team goes on to earn, so its return runs on to
        # the end of the game. Its own critic is never trained there: the company's mean value stands in.
        ends = jnp.broadcast_to(over, ends.shape)
        after_active = steps.after.active[..., index]
        company = _mean_where(next_value, after_active)
        next_value = jnp.where(after_active, next_value, company)
        value = jnp.where(counts, value, _mean_where(value, counts))
    cut = jnp.broadcast_to(steps.after.truncated[..., None], ends.shape)
    estimate = RETURNS[config.returns]
    return estimate(reward, value, next_value, ends, cut, config.discount, config.trace)


def _mean_where(x: Float[Array, "*rows seat"], holds: Bool[Array, "*rows seat"]) -> Float[Array, "*rows one"]:
    added = jnp.sum(jnp.where(holds, x, 0.0), axis=-1, keepdims=True)
    return added / jnp.maximum(jnp.sum(holds, axis=-1, keepdims=True), 1)


def _last_values(seats, parts: Parts, params, trajectory: Trajectory) -> Float[Array, "env seat"]:
    """Normalised values of where play goes on; unused where the last step ended a game."""
    memory = trajectory.next_memory["critic"] if parts.has_memory else ()
    timestep = trajectory.next
    seen = parts.critic_view(timestep, seats, params)
    return _read(parts, "critic", parts.sharing.weights(params), memory, seen, timestep.first)[1][..., 0]


def _peek(parts: Parts, weights, memory, inputs: Float[Array, "column time seat feature"]):
    """The value of what `after` shows, read with the memory of that moment: for games that can be cut."""
    columns, time = inputs.shape[:2]
    rows, memory = jax.tree.map(lambda x: x.reshape(columns * time, 1, *x.shape[2:]), (inputs, memory))
    memory = jax.tree.map(lambda x: x[:, 0], memory)
    never = jnp.zeros((columns * time, 1), bool)
    value = _sequences(parts.critic, weights["critic"], memory, rows, never)[1]
    return value[..., 0].reshape(columns, time, -1)


def _column_memory(parts: Parts, trajectory: Trajectory) -> Memory:
    """Memory at the start of each column, [group, column, seat, hidden]."""
    if not parts.has_memory:
        return ()
    columns = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), trajectory.memory)
    return parts.sharing.groups(columns, 1)


def _standardised(advantage: Float[Array, "*rows"], counts: Bool[Array, "*rows"]) -> Float[Array, "*rows"]:
    """Mean 0 and deviation 1 over the rows that count, over all devices."""
    axes = tuple(range(advantage.ndim))
    centred = advantage - masked_mean(advantage, counts, axes)
    deviation = jnp.sqrt(masked_mean(centred**2, counts, axes))
    return jnp.where(counts, centred / (deviation + 1e-8), 0.0)


def _value_fit(value: Float[Array, "*rows"], returns: Float[Array, "*rows"], counts) -> Metrics:
    axes = tuple(range(value.ndim))

    def mean(x):
        return masked_mean(x, counts, axes)

    def variance(x):
        return mean((x - mean(x)) ** 2)

    return {
        "value/explained_variance": 1.0 - variance(returns - value) / jnp.maximum(variance(returns), 1e-8),
        "value/prediction_mean": mean(value),
        "value/prediction_std": jnp.sqrt(variance(value)),
    }


def _unscaled(scale, x):
    return x


def to_columns(x: Array, length: int) -> Array:
    """[time, env, ...] as [env * sequence, length, ...]."""
    time, envs = x.shape[:2]
    split = jnp.swapaxes(x, 0, 1).reshape(envs * (time // length), length, *x.shape[2:])
    return split


def from_columns(x: Array, shape: tuple[int, ...]) -> Array:
    """The way back, to [time, env, ...]; `shape` says how long and how many."""
    time, envs = shape
    return jnp.swapaxes(x.reshape(envs, time, *x.shape[2:]), 0, 1)


def clip_each_part(most: float) -> optax.GradientTransformation:
    """Scale each network's gradient to at most `most`, so that a loud critic cannot silence the policy."""

    def clip(updates, state, params=None):
        def one(part):
            norm = optax.global_norm(part)
            scale = jnp.minimum(1.0, most / jnp.maximum(norm, 1e-12))
            return jax.tree.map(lambda x: x * scale, part)

        return {name: one(part) for name, part in updates.items()}, state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), clip)
