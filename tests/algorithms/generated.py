"""Small generated learners, the rounds they play and what they learn from them.

Programs take seconds to compile, so equal settings share theirs."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from coplay.algorithms.hyper_config import HyperMAPPOConfig
from coplay.algorithms.hyper_mappo import generated_actor_critic, hyper_mappo
from coplay.algorithms.hyper_terms import additions
from coplay.algorithms.losses import log_policy
from coplay.algorithms.ppo import Plan, _loss
from coplay.algorithms.targets import make_batch, usual_lesson
from coplay.envs import make_game
from coplay.training.rollout import collect, start_playing
from coplay.types import Environment, Seated

SEATS, ENVS, TIME, LENGTH = (0, 1, 2, 3), 6, 8, 4
PLAN = Plan(num_updates=10, sequence_length=LENGTH, num_envs=ENVS, num_steps=TIME)
TINY = {
    "hidden": (8, 8),
    "epochs": 1,
    "minibatches": 1,
    "encoder_width": 8,
    "history_width": 8,
    "trunk": (8,),
    "attention_heads": 2,
    "regenerate_every": 2,
}

VARIANTS = {
    "identity": {},
    "identity, last layer": {"generate": "last_layer"},
    "identity, low rank": {"generate": "low_rank", "identity": "one_hot"},
    "identity, anchor, exploring": {"target": "anchor", "explore": 0.1},
    "identity, the copy plays": {"target": "act", "target_every": 2},
    "local": {"context": "local_history"},
    "local, lstm, scales": {"context": "local_history", "history": "lstm", "generate": "scales"},
    "local, added up": {"context": "local_history", "generate": "last_layer", "accumulate": 0.9},
    "local, the copy plays": {"context": "local_history", "target": "act", "target_every": 4},
    "local, transformer": {"context": "local_history", "history": "transformer", "history_window": 3},
    "local, fused": {"context": "local_history", "history_fusion": "kl_weighted", "fusion_window": 3},
    "joint, transformer, fused, a moved critic": {
        "context": "joint", "history": "transformer", "history_window": 3, "regenerate_every": 1,
        "history_fusion": "kl_weighted", "fusion_window": 2, "generated_critic": "last_layer",
    },
    "joint": {"context": "joint"},
    "joint, every step, full, no history": {
        "context": "joint", "regenerate_every": 1, "generate": "full", "history": "none",
    },
    "joint, one for all": {"context": "joint", "increments": "shared"},
    "identity, a moved critic": {"generated_critic": "last_layer"},
    "joint, a moved critic, the copy plays": {
        "context": "joint", "generated_critic": "last_layer", "target": "act", "target_every": 1,
    },
    "joint, of another game": {"context": "joint", "context_from": "another_game", "smooth": "weight"},
    "local, convolutions": {"context": "local_history", "encoder": "conv"},
    "joint, convolutions, of another game": {
        "context": "joint", "encoder": "conv", "context_from": "another_game", "history": "none",
        "history_reads": ("reward", "observation"), "generated_critic": "last_layer",
    },
}  # fmt: skip


def game_for(changes: dict) -> Environment:
    """The specialisation game, and for whoever reads a board one that has it, and whose players may leave."""
    return _with_a_board() if changes.get("encoder") == "conv" else _without()


@functools.cache
def _with_a_board() -> Environment:
    return make_game("4h1s_4x4", observation="board", horizon=3)


@functools.cache
def _without() -> Environment:
    return make_game("specialisation", num_agents=4, rounds=3)


def config(**changes) -> HyperMAPPOConfig:
    return HyperMAPPOConfig(**TINY | changes)


def played(env, algorithm, params):
    return _round_of(env, algorithm)(params)


@functools.cache
def _round_of(env, algorithm):
    @jax.jit
    def one_round(params):
        actor = start_playing(env, algorithm, jax.random.key(1), ENVS)
        return collect(env, algorithm, params, actor, jax.random.key(2), TIME, LENGTH)[1]

    return one_round


def first_policy(env, algorithm, params, change=lambda timestep: timestep):
    """[env, seat, action]: at the first step of a few games, of which `change` tells otherwise."""

    @jax.jit
    def policy(params):
        timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), ENVS))[1]
        memory = algorithm.remember(ENVS)
        return algorithm.act(params, memory, change(timestep), None, jax.random.key(0))[1].policy

    return np.asarray(policy(params))


def learned(algorithm, params, trajectory, updates=1):
    """Weights after each of so many updates from the same round."""
    update, learner, after = jax.jit(algorithm.learn.update), algorithm.learn.init(params), []
    for key in range(updates):
        params, learner, _ = update(params, learner, trajectory, jax.random.key(key))
        after.append(params)
    return after


@functools.cache
def parts(env, settings):
    """The model behind the algorithm, its additions, and the algorithm."""
    model, _ = generated_actor_critic(env, SEATS, settings)
    return model, additions(model, settings, PLAN), hyper_mappo(env, SEATS, settings, PLAN)


def batch_of(env, settings, params, trajectory):
    """What is learned from."""
    return _prepared_by(env, settings)(params, trajectory)


@functools.cache
def _prepared_by(env, settings):
    model, extra, _ = parts(env, settings)
    length = LENGTH if model.has_memory else TIME

    @jax.jit
    def prepared(params, trajectory):
        batch = make_batch(env, model, settings, usual_lesson(settings), length, params, trajectory)[0]
        return extra.prepare(params, extra.init(params), trajectory, batch)

    return prepared


def loss_of(env, settings):
    """(weights, batch) to the loss."""
    model, extra, _ = parts(env, settings)
    return lambda weights, batch: _loss(model, settings, extra, weights, batch)[0]


NETWORKS = ("generator", "critic_generator")  # that make increments


def loud(params: Seated, size: float = 0.3, of: tuple[str, ...] = (*NETWORKS, "target")) -> Seated:
    """With heads that say something already: those that learn, and their copy if there is one."""
    group = params.common["group"]

    def heard(network):
        drawn = size * jax.random.normal(jax.random.key(9), network.heads.weight.shape)
        return eqx.tree_at(lambda n: n.heads.weight, network, drawn)

    if "target" in of and "target" in group:
        group = group | {"target": group["target"] | {"generator": heard(group["target"]["generator"])}}
    group = group | {name: heard(group[name]) for name in NETWORKS if name in of and name in group}
    return Seated(params.own, {"group": group})


def ratio(extra, weights, batch):
    log_all = log_policy(extra.speak(weights, batch)[0], batch.policy.legal)
    new = jnp.take_along_axis(log_all, batch.policy.action[..., None], axis=-1)[..., 0]
    return jnp.exp(jnp.where(batch.policy.counts, new - batch.policy.log_prob, 0.0))


def named(tree, is_meant) -> list[str]:
    """Paths of the leaves that are meant."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [jax.tree_util.keystr(path) for path, leaf in leaves if is_meant(np.asarray(leaf))]
