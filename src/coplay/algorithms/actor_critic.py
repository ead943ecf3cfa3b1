"""A policy and a critic for some seats of a game: built, acting, and reading whole sequences.

Everything is laid out as [column, time, seat, ...] when networks read it: a column is one stretch of one
game, and a group of seats that share weights is read together (`sharing.py`).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms import value_scale
from coplay.algorithms.losses import log_policy
from coplay.algorithms.sharing import Sharing, sharing
from coplay.algorithms.views import View, with_identity
from coplay.nets import NETWORKS
from coplay.nets.hyper import CriticHeads, Generator, GeneratorShape, Spoken
from coplay.types import (
    ACT,
    DECENTRALISED,
    LEARN,
    PLAY,
    WITH_MEMORY,
    Algorithm,
    Decision,
    Environment,
    Key,
    Memory,
    PyTree,
    Seated,
    Stage,
    TimeStep,
    stream,
)

CRITIC_HEADS = "critic_generator"  # the network that moves the critic's last layer
POLICY_GAIN, CRITIC_GAIN = 0.01, 1.0  # of output layers: play starts near uniform


class ActorCritic(NamedTuple):
    """What acting and learning share: networks without weights, views, and whose weights are whose."""

    seats: tuple[int, ...]
    networks: dict[str, Any]  # "policy", "critic", and those that move their weights, without their arrays
    views: dict[str, Callable]  # by the same names: (timestep, notes, seats, params) -> rows
    notice: Callable  # params, memory, timestep -> notes: what a decision is based on beside the timestep
    sharing: Sharing
    empty: Callable  # num_envs -> memory before anything happened; () where nothing is remembered
    has_memory: bool
    same_view: bool  # policy and critic read the same rows

    @property
    def index(self) -> np.ndarray:
        return np.array(self.seats)


Settings = Any  # parameters, network, hidden, activation and value_normalisation, as in PPOConfig


def notice_nothing(params: Any, memory: Memory, timestep: TimeStep) -> tuple[()]:
    return ()


def actor_critic(
    env: Environment,
    seats: tuple[int, ...],
    settings: Settings,
    views: dict[str, View],
    notice: Callable = notice_nothing,
    notes: PyTree = (),
    generated: GeneratorShape | None = None,
) -> tuple[ActorCritic, Callable[[Key], Seated]]:
    """The two networks, and a function that initialises their weights for every seat.

    `views` say what the policy and the critic read; `notes` are shaped as `notice` would give them for one
    game, or nothing. Where the policy is generated, its view makes rows as the generator's context is told.
    """
    num_names = dict.fromkeys(views, env.num_agents if settings.parameters == "shared_with_id" else 0)
    if generated:
        num_names["policy"] = generated.context.told.identity
    sizes = {name: _view_size(view, env, seats, notes) + num_names[name] for name, view in views.items()}
    build = _builder(env, settings, sizes, generated)
    fresh = build(jax.random.key(0))
    empty = functools.partial(_empty_memory, fresh, len(seats))
    model = ActorCritic(
        seats=seats,
        networks={name: eqx.partition(network, eqx.is_array)[1] for name, network in fresh.items()},
        views={name: _told_who(view, num_names[name]) for name, view in views.items()},
        notice=notice,
        sharing=sharing(settings.parameters),
        empty=empty,
        has_memory=bool(jax.tree.leaves(jax.eval_shape(lambda: empty(1)))),
        same_view=views["critic"] is views["policy"],
    )

    def one_group(key: Key) -> PyTree:
        scale = {"scale": value_scale.start()} if settings.value_normalisation else {}
        return eqx.filter(build(key), eqx.is_array) | scale

    def init(key: Key) -> Seated:
        weights = model.sharing.init(one_group, key, len(seats))
        return model.sharing.pack(weights, {"identity": jnp.asarray(seats, jnp.int32)})

    return model, init


def as_algorithm(model: ActorCritic, init: Callable, learn: Stage) -> Algorithm:
    return Algorithm(
        init=init,
        remember=model.empty,
        act=lambda params, memory, timestep, state, key: act(model, params, memory, timestep, key),
        watch=lambda params, memory, transition: memory,
        learn=learn,
        needs=WITH_MEMORY if model.has_memory else DECENTRALISED,
        reaches=reach_of(model),
    )


def reach_of(model: ActorCritic) -> tuple[tuple[str, str], ...]:
    """What makes the policy is felt in what is done, what makes values in what the policy learns."""
    acting = [
        (name, where) for name in ("policy", "generator") if name in model.networks for where in (ACT, PLAY)
    ]
    return (*acting, *[(name, LEARN) for name in ("critic", CRITIC_HEADS) if name in model.networks])


def _view_size(view: View, env: Environment, seats: tuple[int, ...], notes: PyTree) -> int:
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    return jax.eval_shape(lambda t, n: view(t, n, seats), timestep, notes).shape[-1]


def _told_who(view: View, num_names: int):
    """A function (timestep, notes, seats, params) -> what networks read, with identities if told."""

    def look(timestep: TimeStep, notes: PyTree, seats: tuple[int, ...], params: Seated) -> Array:
        seen = view(timestep, notes, seats)
        return with_identity(seen, params.own["seat"]["identity"], num_names) if num_names else seen

    return look


def _builder(
    env: Environment, settings: Settings, sizes: dict[str, int], generated: GeneratorShape | None
) -> Callable[[Key], dict[str, Any]]:
    """A function from a key to freshly initialised policy and critic, which read rows of these sizes."""
    build = NETWORKS[settings.network]
    planes = board_of(env, "network", settings.network) if "cnn" in settings.network else None

    def networks(key: Key) -> dict[str, Any]:
        policy_key, critic_key = jax.random.split(key)
        options = {"planes": planes, "activation": settings.activation}
        hidden = settings.hidden
        seen = generated.context.told.observation if generated else sizes["policy"]
        policy = build(policy_key, seen, hidden, env.num_actions, POLICY_GAIN, **options)
        critic = build(critic_key, sizes["critic"], hidden, 1, CRITIC_GAIN, **options)
        if generated is None:
            return {"policy": policy, "critic": critic}
        generator = Generator(stream(policy_key, "generator"), generated, policy)
        made = {"policy": policy, "critic": critic, "generator": generator}
        if generated.moves_critic:
            size = generator.context.size
            made[CRITIC_HEADS] = CriticHeads(stream(critic_key, CRITIC_HEADS), generated, size, critic)
        return made

    return networks


def board_of(env: Environment, setting: str, value: str) -> tuple[int, int, int]:
    """The board that observations begin with; without one, the setting that needs it is refused."""
    if env.plane_shape is None:
        raise ValueError(
            f"{setting}={value!r} needs observations that begin with a board; "
            f"{env.name} as set up has none: set observation='board' or {setting}='mlp'"
        )
    return env.plane_shape


def _empty_memory(networks: dict[str, Any], num_seats: int, num_envs: int) -> Memory:
    """Memory of each network, [env, seat, ...]; nothing at all if none has any."""

    def of(network: Any) -> Memory:
        return network.empty(num_envs, num_seats) if hasattr(network, "empty") else ()

    memory = {"policy": of(networks.get("generator", networks["policy"])), "critic": of(networks["critic"])}
    return memory if jax.tree.leaves(memory) else ()


def memory_of(model: ActorCritic, memory: Memory, name: str) -> Memory:
    """One network's part of the memory; nothing for networks without. A critic whose weights are moved is
    read with the generator's, which its context is made from."""
    name = "policy" if CRITIC_HEADS in model.networks else name
    return memory[name] if model.has_memory else ()


# --- acting --------------------------------------------------------------------------------------


def act(
    model: ActorCritic, params: Seated, memory: Memory, timestep: TimeStep, key: Key
) -> tuple[Memory, Decision]:
    """Draw from the policy. With memory, the critic reads along, so that its sequences start right."""
    notes = model.notice(params, memory, timestep)
    policy_memory, logits = read_step(
        model, "policy", params, memory_of(model, memory, "policy"), timestep, notes
    )
    if model.has_memory:
        memory = memory | {"policy": policy_memory}
        if jax.tree.leaves(memory["critic"]):
            critic_memory, _ = read_step(model, "critic", params, memory["critic"], timestep, notes)
            memory = memory | {"critic": critic_memory}
    log_all = log_policy(logits, timestep.legal[:, model.index])
    policy = jnp.exp(log_all)
    action = draw_actions(key, params.own["seat"]["identity"], policy)
    taken = action[..., None] == jnp.arange(policy.shape[-1])[None, None, :]
    log_prob = jnp.sum(jnp.where(taken, log_all, 0.0), axis=-1)
    return memory, Decision(action=action, log_prob=log_prob, policy=policy, notes=notes)


def draw_actions(
    key: Key, identity: Int[Array, " seat"], policy: Float[Array, "env seat action"]
) -> Int[Array, "env seat"]:
    """One draw per row by the inverse of the cumulative distribution; each seat has its own stream."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, identity)
    unit = jax.vmap(lambda k: jax.random.uniform(k, policy.shape[:1]), out_axes=1)(keys)
    cumulative = jnp.cumsum(policy, axis=-1)
    reached = cumulative > (unit * cumulative[..., -1])[..., None]
    return jnp.argmax(reached, axis=-1).astype(jnp.int32)


def read_step(
    model: ActorCritic, name: str, params: Seated, memory: Memory, timestep: TimeStep, notes: PyTree
):
    """Memory and outputs [env, seat, ...] of one network, one step, every seat with its group's weights."""
    return read_rows(
        model, name, params, memory, model.views[name](timestep, notes, model.seats, params), timestep.first
    )


def read_rows(model: ActorCritic, name: str, params: Seated, memory: Memory, inputs, first):
    """The same from what the network reads, [env, seat, feature]."""

    def one_group(weights, memory, inputs):
        return sequences(model, name, weights, memory, inputs, first[:, None])

    groups = model.sharing.groups
    read = model.sharing.map(one_group)
    read_out = read(model.sharing.weights(params), groups(memory, 1), groups(inputs[:, None], 2))
    remembered, outputs = (model.sharing.seats(tree, 2) for tree in read_out)
    return jax.tree.map(lambda x: x[:, 0], remembered), outputs[:, 0]


# --- reading sequences ---------------------------------------------------------------------------


def sequences(
    model: ActorCritic,
    name: str,
    weights: PyTree,
    memory: Memory,
    inputs: Float[Array, "column time seat feature"],
    first: Bool[Array, "column time"],
):
    """Memory after each step and outputs, both [column, time, seat, ...], starting from `memory`."""
    if name == "policy" and "generator" in model.networks:
        return speak(model, weights, memory, inputs, first)[:2]
    if name == "critic" and CRITIC_HEADS in model.networks:
        return _value_in_context(model, weights, memory, inputs, first)
    network = network_of(model, weights, name)
    if not hasattr(network, "run"):
        return memory, network(inputs)
    columns, time, seats = inputs.shape[:3]
    rows = jnp.moveaxis(inputs, 1, 0).reshape(time, columns * seats, -1)
    fresh = jnp.repeat(first.T, seats, axis=1)
    out = network.run(memory.reshape(columns * seats, -1), rows, fresh)
    return tuple(jnp.moveaxis(x.reshape(time, columns, seats, -1), 0, 1) for x in out)


def speak(model: ActorCritic, weights: PyTree, memory: Memory, inputs, first) -> Spoken:
    """The same of a generated policy, and the increments it spoke with."""
    generator = network_of(model, weights, "generator")
    return generator.read(network_of(model, weights, "policy"), memory, inputs, first)


def _value_in_context(model: ActorCritic, weights: PyTree, memory: Memory, inputs, first):
    """Values of a critic whose last layer a context moves; rows end with what the policy reads, which that is
    made from. What the critic learns does not move the context."""
    generator = network_of(model, weights, "generator")
    size = sum(generator.shape.context.told)
    seen, told = inputs[..., :-size], inputs[..., -size:]
    actor = network_of(model, weights, "policy")
    remembered, context = generator.contexts(actor, memory, told, first)
    heads, critic = network_of(model, weights, CRITIC_HEADS), network_of(model, weights, "critic")
    return remembered, heads.value(critic, seen, jax.lax.stop_gradient(context))


def network_of(model: ActorCritic, weights: PyTree, name: str) -> Any:
    return eqx.combine(model.networks[name], weights[name])


def peek(
    model: ActorCritic, weights: PyTree, memory: Memory, inputs: Float[Array, "column time seat feature"]
) -> Float[Array, "column time seat one"]:
    """The critic on one more row after every step, read with the memory of that moment."""
    columns, time = inputs.shape[:2]
    rows, memory = jax.tree.map(lambda x: x.reshape(columns * time, 1, *x.shape[2:]), (inputs, memory))
    memory = jax.tree.map(lambda x: x[:, 0], memory)
    never = jnp.zeros((columns * time, 1), bool)
    outputs = sequences(model, "critic", weights, memory, rows, never)[1]
    return outputs.reshape(columns, time, *outputs.shape[2:])


def to_columns(x: Array, length: int) -> Array:
    """[time, env, ...] as [env * sequence, length, ...]."""
    time, envs = x.shape[:2]
    return jnp.swapaxes(x, 0, 1).reshape(envs * (time // length), length, *x.shape[2:])


def from_columns(x: Array, shape: tuple[int, ...]) -> Array:
    """The way back, to [time, env, ...]; `shape` says how long and how many."""
    time, envs = shape
    return jnp.swapaxes(x.reshape(envs, time, *x.shape[2:]), 0, 1)
