"""How fast searches are: our planner and mctx on the same toy model, which must give the same visits."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from coplay.bench.item import Item, seconds_of
from coplay.planning.search import Model, Outlook, SearchConfig, search

ACTIONS, FEATURES, WIDTH, BATCH, SIMULATIONS, DISCOUNT = 7, 16, 64, 512, 100, 0.95


def searches() -> Item:
    """512 searches of 100 simulations over a 2x64 network, on all devices; mctx as its users call it."""
    start = jax.random.normal(jax.random.key(1), (BATCH, FEATURES))
    ours, one_device = _ours_on_devices(), _ours()
    if importlib.util.find_spec("mctx") is None:
        seconds, alone = seconds_of(lambda: ours(start), lambda: one_device(start))
        details = {"one_device": BATCH / alone, "simulations": SIMULATIONS, "batch": BATCH}
        return Item("search", BATCH / seconds, "searches/s", "mctx is not installed", None, details)
    theirs = _mctx()
    same = bool(np.array_equal(one_device(start), theirs(start)))
    seconds, alone, other = seconds_of(
        lambda: ours(start), lambda: one_device(start), lambda: theirs(start), repeats=5
    )
    details = {
        "one_device": BATCH / alone,
        "ratio_one_device": other / alone,
        "mctx": BATCH / other,
        "same_visits": same,
        "simulations": SIMULATIONS,
        "batch": BATCH,
    }
    return Item("search", BATCH / seconds, "searches/s", "mctx's muzero_policy", other / seconds, details)


def _weights() -> dict[str, jax.Array]:
    shapes = {
        "move": (FEATURES + ACTIONS, FEATURES),
        "pay": (FEATURES + ACTIONS, 1),
        "first": (FEATURES, WIDTH),
        "second": (WIDTH, WIDTH),
        "policy": (WIDTH, ACTIONS),
        "value": (WIDTH, 1),
    }
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {
        name: jax.random.normal(key, shape) / jnp.sqrt(shape[0])
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def _after(weights, state, action):
    joined = jnp.concatenate([state, jax.nn.one_hot(action, ACTIONS)], axis=1)
    return jnp.tanh(joined @ weights["move"]), (joined @ weights["pay"])[:, 0]


def _think(weights, state):
    hidden = jnp.tanh(jnp.tanh(state @ weights["first"]) @ weights["second"])
    return hidden @ weights["policy"], (hidden @ weights["value"])[:, 0]


def _model() -> Model:
    weights = _weights()

    def look(state, key):
        logits, value = _think(weights, state["x"])
        return state, Outlook(jax.nn.softmax(logits), jnp.ones_like(logits, bool), value)

    def step(state, action, key):
        x, reward = _after(weights, state["x"], action)
        return {"x": x}, reward, jnp.zeros(x.shape[0], bool)

    return Model(look, step)


def _visits(start: jax.Array) -> jax.Array:
    config = SearchConfig(simulations=SIMULATIONS, discount=DISCOUNT, max_depth=SIMULATIONS)
    return search(_model(), config, {"x": start}, jax.random.key(2)[None]).visits


def _ours() -> Callable[[jax.Array], Any]:
    return jax.jit(_visits)


def _ours_on_devices() -> Callable[[jax.Array], Any]:
    """An equal part of the searches on each device."""
    count = max(n for n in range(1, len(jax.devices()) + 1) if BATCH % n == 0)
    mesh = Mesh(jax.devices()[:count], ("device",), axis_types=(AxisType.Auto,))
    part = PartitionSpec("device")
    return jax.jit(jax.shard_map(_visits, mesh=mesh, in_specs=part, out_specs=part, check_vma=False))


def _mctx() -> Callable[[jax.Array], Any]:
    mctx: Any = importlib.import_module("mctx")
    weights = _weights()

    def one_step(params, key, action, state):
        state, reward = _after(weights, state, action)
        logits, value = _think(weights, state)
        discount = jnp.full_like(reward, DISCOUNT)
        output = mctx.RecurrentFnOutput(reward=reward, discount=discount, prior_logits=logits, value=value)
        return output, state

    def raw_q(tree, node):
        return jnp.where(tree.children_visits[node] > 0, tree.qvalues(node), tree.node_values[node])

    @jax.jit
    def visits(start):
        logits, value = _think(weights, start)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=start)
        output = mctx.muzero_policy(
            None, jax.random.key(0), root, one_step, SIMULATIONS,
            dirichlet_fraction=0.0, pb_c_init=1.0, pb_c_base=1e9, qtransform=raw_q,
        )  # fmt: skip
        return output.search_tree.summary().visit_counts

    return visits
