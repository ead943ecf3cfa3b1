"""Every algorithm, with every kind of weights: something finite is learned, the same from the same seed."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coplay.algorithms import ALGORITHMS, DESCRIPTIONS
from coplay.algorithms.sharing import PARAMETERS
from coplay.diagnostics.metrics import METRICS
from coplay.training import loop, programs
from tests.small import same_bits, small_job


def chunks(work, updates=2, times=1):
    """Weights before, weights after each of several runs from the same start, metrics of the last."""
    state = loop.seat(work, work.stretches[0], None, 0)
    before, program, after = jax.device_get(state.params), None, []
    for _ in range(times):
        state = loop.seat(work, work.stretches[0], None, 0)
        program = program or programs.chunk_program(work, work.stretches[0], state)
        state, metrics = program.run(state, jnp.int32(updates))
        after.append(jax.device_get(state.params))
    return before, after, {name: np.asarray(value)[0, :updates] for name, value in metrics.items()}


def changes(name, parameters, network="mlp"):
    board = {"game_options.observation": "board"} if "cnn" in network else {}
    return {
        f"{name}.parameters": parameters,
        f"{name}.network": network,
        "rollout.sequence_length": 5,
    } | board


ONLY = {"hop": ("per_agent",), "happo": ("per_agent",), "hyper_mappo": ("shared", "shared_with_id")}
KINDS = [(name, kind) for name in ALGORITHMS for kind in ONLY.get(name, PARAMETERS)]
DRIFT = (
    "kl joint_kl others_kl joint_tv effective_samples gradient_noise gradient_turn critic_staleness diversity"
)
SHARED = "conflict conflict_share"  # of gradients of weights that players share


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "parameters"), KINDS)
def test_it_learns_something_finite_the_same_way_twice(name, parameters):
    work = small_job(f"{name}_4h1s_4x4", **changes(name, parameters))
    before, (after, again), metrics = chunks(work, times=2)
    assert same_bits(after, again)
    assert described(metrics) <= set(METRICS)
    assert not (untold := drift_figures(parameters) - set(metrics)), f"not told: {sorted(untold)}"
    for path, leaf in jax.tree_util.tree_flatten_with_path(after)[0]:
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)
    moved = jax.tree.map(lambda a, b: not np.array_equal(a, b), before, after)
    still = [jax.tree_util.keystr(p) for p, m in jax.tree_util.tree_flatten_with_path(moved)[0] if not m]
    assert all("identity" in path for path in still), f"never updated: {still}"
    assert np.allclose(metrics["policy/ratio"], 1.0, atol=0.1)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_starts_with_types_that_stay(name):
    # A weak type at the start that a round makes a strong one would have the program compiled twice.
    work = small_job(f"{name}_4h1s_4x4")
    found = jax.tree_util.tree_flatten_with_path(loop.start(work, work.stretches[0]))[0]
    assert not [jax.tree_util.keystr(path) for path, leaf in found if getattr(leaf, "weak_type", False)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["gru", "cnn", "cnn_gru"])
def test_it_learns_with_every_network(network):
    _, (after,), metrics = chunks(small_job(**changes("ppo", "per_agent", network)), updates=1)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    assert np.isfinite(metrics["policy/loss"]).all()


def drift_figures(parameters: str) -> set[str]:
    """How far an update moved the players: what every algorithm has to tell."""
    figures = DRIFT if parameters == "per_agent" else f"{DRIFT} {SHARED}"
    return {f"drift/{figure}" for figure in figures.split()}


def described(metrics) -> set[str]:
    """The names under which the catalogue of metrics describes them."""
    named = {re.sub(r"^action/.*", "action/<name>", metric) for metric in metrics}
    named = {re.sub(r"^opponents/\d+/", "opponents/<j>/", metric) for metric in named}
    named = {re.sub(r"^world/(recall|seen)/.*", r"world/\1/<value>", metric) for metric in named}
    named = {re.sub(r"^imagined/(policy|value)/.*", "imagined/<figure>", metric) for metric in named}
    named = {re.sub(r"^hyper/share/.*", "hyper/share/<term>", metric) for metric in named}
    return {re.sub(r"^(opponents/.*)/recall/.*", r"\1/recall/<action>", metric) for metric in named}


def test_every_algorithm_is_described():
    assert set(DESCRIPTIONS) == set(ALGORITHMS)


def test_agents_start_from_different_weights_and_shared_ones_from_one():
    own = small_job().stretches[0].algorithm.init(jax.random.key(0))["ppo"].own["group"]
    first = own["policy"].layers[0].weight
    assert all(not np.array_equal(first[0], first[i]) for i in range(1, 4))
    shared = small_job(**{"ppo.parameters": "shared"}).stretches[0].algorithm.init(jax.random.key(0))["ppo"]
    assert shared.common["group"]["policy"].layers[0].weight.ndim == 2
