"""The generator is wired in: it acts, it learns, it is judged, and left out it is MAPPO."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.algorithms.hyper_mappo import hyper_mappo
from coplay.algorithms.hyper_terms import _share_of_moved, _shares, _smooth
from coplay.algorithms.ppo import clip_each_part, loss_terms, mappo, step_by
from coplay.algorithms.ppo_config import MAPPOConfig
from coplay.envs import make_game
from coplay.experiment import with_overrides
from coplay.nets.hyper import Spoken
from coplay.players.frozen import greedy
from coplay.settings import parse_text
from coplay.types import Seated
from tests.algorithms.generated import (
    ENVS,
    LENGTH,
    NETWORKS,
    PLAN,
    SEATS,
    TIME,
    TINY,
    VARIANTS,
    batch_of,
    config,
    first_policy,
    game_for,
    learned,
    loss_of,
    loud,
    named,
    parts,
    played,
    ratio,
)
from tests.small import same_bits, small


@pytest.fixture(scope="module")
def env():
    return game_for({})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_what_is_read_again_is_what_was_played_and_moves_all_that_is_generated(changes):
    env, settings = game_for(changes), config(**changes)
    model, extra, algorithm = parts(env, settings)
    params = loud(algorithm.init(jax.random.key(0)))
    batch = batch_of(env, settings, params, played(env, algorithm, params))
    weights = {name: params.common["group"][name] for name in model.networks}

    @jax.jit
    def looked_at(weights):
        gradient = jax.grad(loss_of(env, settings))(weights, batch)
        moved = jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradient)
        made_by = {name: gradient[name] for name in NETWORKS if name in gradient}
        return ratio(extra, weights, batch), ratio(extra, moved, batch), made_by

    before, after, gradient = looked_at(weights)
    assert_allclose(before, 1.0, atol=1e-5)
    assert float(jnp.max(jnp.abs(after - 1.0))) > 1e-3
    assert not (silent := named(gradient, lambda leaf: not leaf.any())), f"no gradient: {silent}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_every_tensor_of_the_generator_is_in_the_optimiser_and_moves_within_two_updates(changes):
    env = game_for(changes)
    _, _, algorithm = parts(env, config(**changes))
    params = algorithm.init(jax.random.key(0))
    start = {name: params.common["group"][name] for name in NETWORKS if name in params.common["group"]}
    states = jax.tree.leaves(algorithm.learn.init(params))
    for leaf in jax.tree.leaves(start):
        assert sum(state.shape == leaf.shape for state in states) >= 2  # Adam's two moments
    after = learned(algorithm, params, played(env, algorithm, params), updates=2)[-1]
    end = {name: after.common["group"][name] for name in start}
    moved = jax.tree.map(lambda old, new: old != new, start, end)
    assert not (still := named(moved, lambda leaf: not leaf.any())), f"never moved: {still}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_what_the_generator_says_reaches_play_learning_and_scores(changes):
    env, settings = game_for(changes), config(**changes)
    _, _, algorithm = parts(env, settings)
    params = algorithm.init(jax.random.key(0))
    trajectory = played(env, algorithm, params)
    poisoned = loud(params, jnp.nan)
    assert np.isnan(np.asarray(played(env, algorithm, poisoned).steps.decision.log_prob)).any()
    assert np.isnan(first_policy(env, greedy(algorithm), poisoned)).any()
    batch = batch_of(env, settings, params, trajectory)
    assert np.isnan(jax.jit(loss_of(env, settings))(poisoned.common["group"], batch))


def test_without_a_context_it_learns_as_mappo_to_the_bit(env):
    settings = config(context="none")
    plain = MAPPOConfig(hidden=(8, 8), epochs=1, minibatches=1)
    ours = hyper_mappo(env, SEATS, settings, PLAN)
    theirs = mappo(env, SEATS, plain, PLAN)
    results = []
    for algorithm in (ours, theirs):
        params = algorithm.init(jax.random.key(0))
        results.append(learned(algorithm, params, played(env, algorithm, params), updates=3))
    assert same_bits(*results)


def test_increments_of_nothing_leave_mappo(env):
    bare = {"parameters": "shared", "align_weight": 0.0}
    settings = config(delta_scale=0.0, **bare)
    algorithm = hyper_mappo(env, SEATS, settings, PLAN)
    params = loud(algorithm.init(jax.random.key(0)))
    plain = mappo(env, SEATS, MAPPOConfig(hidden=(8, 8), epochs=1, minibatches=1, parameters="shared"), PLAN)
    base = plain.init(jax.random.key(0))
    trajectory = played(env, plain, base)
    after, same = learned(algorithm, params, trajectory)[0], learned(plain, base, trajectory)[0]
    for part in ("policy", "critic"):
        for mine, theirs in zip(
            jax.tree.leaves(after.common["group"][part]),
            jax.tree.leaves(same.common["group"][part]),
            strict=True,
        ):
            assert_allclose(mine, theirs, atol=1e-5)
    other = hyper_mappo(env, SEATS, dataclasses.replace(settings, delta_scale=1.0), PLAN)
    moved = learned(other, loud(other.init(jax.random.key(0))), trajectory)[0]
    assert not same_bits(moved.common["group"]["policy"], same.common["group"]["policy"])


def test_exploring_mixes_in_even_play_over_what_is_legal(env):
    algorithm = hyper_mappo(env, SEATS, config(explore=0.3), PLAN)
    params = loud(algorithm.init(jax.random.key(0)), 2.0)
    policy = first_policy(env, algorithm, params)
    quiet = Seated({"seat": params.own["seat"] | {"exploring": jnp.zeros(4)}}, params.common)
    plain = first_policy(env, algorithm, quiet)
    timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), ENVS))[1]
    even = timestep.legal / jnp.sum(timestep.legal, axis=-1, keepdims=True)
    assert_allclose(policy, 0.7 * plain + 0.3 * even, atol=1e-6)


# --- terms ---------------------------------------------------------------------------------------


def test_a_generator_that_says_the_same_always_is_smooth(env):
    for smooth in ("policy", "weight"):
        settings = config(context="local_history", regenerate_every=1, generate="last_layer", smooth=smooth)
        _, extra, algorithm = parts(env, settings)
        params = algorithm.init(jax.random.key(0))
        trajectory = played(env, algorithm, params)
        batch = batch_of(env, settings, params, trajectory)
        found = jax.jit(lambda w: extra.speak(w, batch)[1]["smooth"])  # noqa: B023
        assert float(found(params.common["group"])) < 1e-6
        assert float(found(loud(params).common["group"])) > 1e-3


def test_smoothness_is_the_mean_over_steps_that_moved(env):
    # one seat, four steps, all numbers 0, 1, 1, 3; an episode begins at the third: moved are the second (by
    # a square of 1) and the fourth (4), so (1 + 4) / 2 = 2.5, times 4 rows that count
    settings = config(context="local_history", regenerate_every=1, generate="last_layer", smooth="weight")
    model, _, algorithm = parts(env, settings)
    params = algorithm.init(jax.random.key(0))
    batch = batch_of(env, settings, params, played(env, algorithm, params))
    one = jax.tree.map(lambda x: x[:1], batch)
    counts = jnp.zeros((1, LENGTH, 4), bool).at[:, :, 0].set(True)
    first = jnp.array([[True, False, True, False]])
    policy = dataclasses.replace(one.policy, counts=counts)
    one = dataclasses.replace(one, policy=policy, valued=counts, first=first)
    weights = params.common["group"]
    one = dataclasses.replace(one, beside={"moved": _share_of_moved(model, weights, one)})
    size = weights["generator"].heads.bias.shape[0]
    numbers = jnp.broadcast_to(jnp.array([0.0, 1.0, 1.0, 3.0])[None, :, None, None], (1, LENGTH, 4, size))
    found = _smooth(model, settings, weights, one, Spoken((), jnp.zeros((1, LENGTH, 4, 4)), numbers))
    assert_allclose(found, 2.5 * 4, rtol=1e-6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("smooth", ["policy", "weight"])
def test_smoothness_does_not_hang_on_how_rows_are_cut_into_chunks(smooth):
    hunt = game_for({"encoder": "conv"})  # whose players leave, so that chunks count unequally
    figures = []
    for chunk_rows in (LENGTH, 1000):
        settings = config(
            context="local_history", generate="full", regenerate_every=1, smooth=smooth, chunk_rows=chunk_rows
        )
        _, _, algorithm = parts(hunt, settings)
        params = loud(algorithm.init(jax.random.key(0)))
        figures.append(figures_of(algorithm, params, played(hunt, algorithm, params))["hyper/smooth"])
    assert float(figures[0]) > 1e-4
    assert_allclose(*figures, rtol=1e-4)


def test_increments_made_anew_where_a_sequence_begins_count_as_any_other():
    game = make_game("specialisation", num_agents=4, rounds=TIME)
    settings = config(context="local_history", regenerate_every=LENGTH)
    _, _, algorithm = parts(game, settings)
    params = loud(algorithm.init(jax.random.key(0)))
    figures = figures_of(algorithm, params, played(game, algorithm, params))
    assert float(figures["hyper/smooth"]) > 1e-4
    assert float(figures["hyper/response"]) > 1e-4


def test_smoothness_of_weights_is_also_told_beside_the_actors_own(env):
    settings = config(context="local_history", generate="last_layer", regenerate_every=1, smooth="weight")
    _, _, algorithm = parts(env, settings)
    params = loud(algorithm.init(jax.random.key(0)))
    figures = figures_of(algorithm, params, played(env, algorithm, params))
    own = [np.asarray(leaf) for leaf in jax.tree.leaves(params.common["group"]["policy"])]
    mean_square = sum((leaf**2).sum() for leaf in own) / sum(leaf.size for leaf in own)
    assert_allclose(figures["hyper/smooth_relative"], figures["hyper/smooth"] / mean_square, rtol=1e-5)


def figures_of(algorithm, params, trajectory):
    learner = algorithm.learn.init(params)
    return jax.jit(algorithm.learn.update)(params, learner, trajectory, jax.random.key(0))[2]


def test_alignment_is_nothing_before_the_first_step_and_something_after(env):
    settings = config()
    model, extra, algorithm = parts(env, settings)
    params = loud(algorithm.init(jax.random.key(0)))
    trajectory = played(env, algorithm, params)
    batch = batch_of(env, settings, params, trajectory)
    weights = {name: params.common["group"][name] for name in model.networks}
    align = jax.jit(lambda w: extra.speak(w, batch)[1]["align"])
    value, gradient = jax.jit(jax.value_and_grad(align))(weights)
    assert abs(float(value)) < 1e-4
    assert max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(gradient)) < 1e-3
    assert float(align({name: loud(params, 0.4).common["group"][name] for name in weights})) > 1e-3


def test_twice_the_strength_is_twice_the_term_and_the_same_figure(env):
    settings = config()
    _, extra, algorithm = parts(env, settings)
    params = loud(algorithm.init(jax.random.key(0)))
    trajectory = played(env, algorithm, params)
    batch = batch_of(env, settings, params, trajectory)
    state = extra.init(params) | {"strength": jnp.float32(2.0)}
    stronger = extra.prepare(params, state, trajectory, batch)
    (_, once, figures), (_, twice, same) = (
        extra.speak(loud(params, 0.4).common["group"], each) for each in (batch, stronger)
    )
    assert float(once["align"]) > 1e-3
    assert_allclose(twice["align"], 2.0 * once["align"], rtol=1e-6)
    assert_allclose(same["align/divergence"], figures["align/divergence"], rtol=1e-6)


def test_shares_of_the_loss_are_told_by_term():
    # policy 0.02, entropy 0.01 * 1, value 1 * 0.03, align 0.05 * 2 * 0.2, smooth 0.1 * 0.4: 0.12 in all
    figures = {"policy/loss": -0.02, "policy/entropy": 1.0, "value/loss": 0.03}
    figures |= {"align/divergence": 0.2, "hyper/smooth": 0.4}
    figures = {k: jnp.float32(v) for k, v in figures.items()}
    shares = _shares(config(context="joint"), figures, jnp.float32(2.0))
    expected = {"policy": 1 / 6, "entropy": 1 / 12, "value": 1 / 4, "align": 1 / 6, "smooth": 1 / 3}
    assert set(shares) == {f"hyper/share/{name}" for name in expected} | {"hyper/smooth_share"}
    for name, share in expected.items():
        assert_allclose(shares[f"hyper/share/{name}"], share, rtol=1e-5)
    assert_allclose(shares["hyper/smooth_share"], 2.0, rtol=1e-5)
    assert "hyper/smooth_share" not in _shares(config(), figures, jnp.float32(2.0))


# --- settings ------------------------------------------------------------------------------------

SWITCHES = {
    "context": ["identity", "local_history", "joint"],
    "context_from": ["own_game", "another_game"],
    "encoder": ["mlp", "conv"],
    "encoder_width": ["8", "16"],
    "attention_heads": ["2", "4"],
    "history": ["gru", "lstm", "transformer", "none"],
    "history_width": ["8", "16"],
    "history_window": ["2", "3"],
    "history_fusion": ["off", "kl_weighted"],
    "fusion_window": ["2", "3"],
    "fusion_temperature": ["1.0", "0.01"],
    "history_reads": ['["observation"]', '["action", "reward"]'],
    "identity": ["embedding", "one_hot", "none"],
    "trunk": ["[8]", "[16]", "[8, 8]"],
    "generate": ["full", "last_layer", "low_rank", "scales"],
    "increments": ["per_agent", "shared"],
    "regenerate_every": ["1", "2", "0"],
    "accumulate": ["0", "0.5"],
    "delta_scale": ["1.0", "0.1"],
    "smooth": ["policy", "weight"],
    "smooth_weight": ["0", "5"],
    "align_weight": ["0", "5"],
    "explore": ["0", "0.2"],
    "generated_critic": ["off", "last_layer"],
    "embedding": ["4", "8"],
    "rank": ["2", "3"],
    "align_adaptive": ["true", "false"],
    "align_target": ["1e-7", "1.0"],
}
ADAPT = ("align_adaptive", "align_target")  # felt from the second update on


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", SWITCHES)
def test_each_setting_is_read_from_text_and_changes_what_is_learned(env, name):
    look = weights_with if name in ADAPT else gradient_with
    env = game_for({"encoder": "conv"}) if name == "encoder" else env
    found = [np.asarray(look(env, settings_with(name, parse_text(text)))) for text in SWITCHES[name]]
    for one, other in itertools.combinations(range(len(found)), 2):
        told = f"{name}: {SWITCHES[name][one]} learns as {SWITCHES[name][other]}"
        assert not np.array_equal(found[one], found[other]), told


def settings_with(name, value):
    """One setting changed, where it matters."""
    base = TINY | {"context": "joint", "regenerate_every": 1}
    base |= {"generate": "last_layer"} if name in ("accumulate", "smooth") else {}
    base |= {"history": "transformer"} if name == "history_window" else {}
    base |= {"history_fusion": "kl_weighted"} if name.startswith("fusion") else {}
    base |= {"context": "identity", "epochs": 2, "align_weight": 1.0} if name in ADAPT else {}
    changes = {f"hyper_mappo.{key}": x for key, x in (base | {name: value}).items()}
    return with_overrides(small("hyper_mappo_4h1s_4x4"), changes).hyper_mappo


@functools.cache
def weights_with(env, settings):
    """Of the actor's last layer, after two updates."""
    _, _, algorithm = parts(env, settings)
    params = loud(algorithm.init(jax.random.key(0)))
    after = learned(algorithm, params, played(env, algorithm, params), updates=2)[-1]
    return after.common["group"]["policy"].layers[-1].weight


@functools.cache
def gradient_with(env, settings):
    """Of the actor's last layer."""
    model, _, algorithm = parts(env, settings)
    params = loud(algorithm.init(jax.random.key(0)))
    batch = batch_of(env, settings, params, played(env, algorithm, params))
    weights = {part: params.common["group"][part] for part in model.networks}
    gradient = jax.jit(jax.grad(loss_of(env, settings)))(weights, batch)
    return gradient["policy"].layers[-1].weight


def test_a_loud_generator_is_clipped_by_itself():
    # lengths 5 and 0.5, at most 1: the generator's (3, 4) becomes (0.6, 0.8), the actor's stays as it is
    gradients = {"policy": jnp.array([0.3, 0.4]), "generator": jnp.array([3.0, 4.0])}
    clip = clip_each_part(1.0)
    found, _ = clip.update(gradients, clip.init(gradients))
    assert_allclose(found["generator"], [0.6, 0.8], rtol=1e-6)
    assert_allclose(found["policy"], [0.3, 0.4], rtol=1e-6)


def test_the_generator_learns_at_its_own_rate(env):
    _, extra, _ = parts(env, config(generator_rate=1e-3, learning_rate=5e-4))
    gradients = {"policy": jnp.ones(1), "generator": jnp.ones(1)}
    optimiser = step_by(5e-4, extra.rates)
    steps, _ = optimiser.update(gradients, optimiser.init(gradients))
    assert_allclose([steps["policy"][0], steps["generator"][0]], [-5e-4, -1e-3])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"parameters": "per_agent"}, "one generator for all its seats"),
        ({"network": "gru"}, "generates an mlp"),
        ({"identity": "none"}, "needs identity"),
        ({"increments": "shared"}, "per agent"),
        ({"accumulate": 0.5}, "does not"),
        ({"accumulate": 1.0}, "no bound"),
        ({"context": "joint", "accumulate": 0.5}, "low rank"),
        ({"target": "act"}, "at most 4 updates, not 10"),
        ({"context": "joint", "history": "transformer", "history_window": 1}, "shows no past"),
        ({"history_fusion": "kl_weighted"}, "states of a history"),
        ({"context": "joint", "history": "none", "history_fusion": "kl_weighted"}, "states of a history"),
        ({"context": "joint", "history_fusion": "kl_weighted", "fusion_window": 1}, "at least two"),
        ({"context": "joint", "history_fusion": "kl_weighted", "increments": "shared"}, "players' own"),
        (
            {
                "context": "joint",
                "history_fusion": "kl_weighted",
                "accumulate": 0.5,
                "generate": "last_layer",
            },
            "do not add up",
        ),
        ({"context": "joint", "history": "transformer", "history_width": 6}, "multiple of a transformer's 4"),
        ({"context": "joint", "attention_heads": 3}, "multiple of"),
        ({"context": "joint", "attention_heads": 0}, "hears nobody"),
        ({"context": "joint", "history_reads": ("everything",)}, "must name some of"),
        ({"context": "joint", "history_reads": ("action",), "encoder": "conv"}, "name observation in"),
        ({"explore": 0.5}, "between 0 and 0.3"),
        ({"generator_rate": 0.0}, "above 0"),
        ({"trunk": ()}, "at least one width"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        config(**changes)


def test_terms_that_have_no_effect_are_not_named():
    assert set(loss_terms(config())) == {"policy", "entropy", "value", "align"}
    assert set(loss_terms(config(context="joint"))) == {"policy", "entropy", "value", "align", "smooth"}
    assert set(loss_terms(config(context="none"))) == {"policy", "entropy", "value"}


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, "decentralised"),
        ({"context": "local_history"}, "decentralised + memory"),
        ({"context": "joint"}, "communicates"),
        ({"target": "act", "target_every": 2, "generated_critic": "last_layer"}, "decentralised"),
        ({"context": "local_history", "history": "transformer"}, "decentralised + memory"),
        ({"context": "local_history", "history_fusion": "kl_weighted"}, "decentralised + memory"),
        ({"context": "joint", "history": "transformer", "history_fusion": "kl_weighted"}, "communicates"),
        ({"context": "local_history", "increments": "shared"}, "communicates"),
        ({"context": "joint", "increments": "shared", "attention_heads": 0}, "communicates"),
        ({"context": "local_history", "encoder": "conv"}, "decentralised + memory"),
        ({"context": "joint", "encoder": "conv"}, "communicates"),
    ],
)
def test_what_play_needs_is_said_and_so(changes, needs):
    env = game_for(changes)
    _, _, algorithm = parts(env, config(**changes))
    assert algorithm.needs == needs
    params = loud(algorithm.init(jax.random.key(0)))

    def spoilt(timestep):
        return dataclasses.replace(timestep, observation=timestep.observation.at[:, 1].set(jnp.nan))

    policy = first_policy(env, algorithm, params, spoilt)
    assert np.isnan(policy[:, 1]).all()
    assert np.isnan(policy[:, [0, 2, 3]]).any() == (needs == "communicates")
