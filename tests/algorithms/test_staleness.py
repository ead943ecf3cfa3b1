"""How fast models age: hand-made coins, then the models of HOP and HOP+ on rounds that take turns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.algorithms import opponent_stage, subgoal_stage, world_stage
from coplay.algorithms.hop import _parts
from coplay.algorithms.hop_plus_parts import parts_of
from coplay.algorithms.staleness import aged, mean_surprise, unborn
from coplay.types import Seated, Stage
from tests.algorithms import test_hop, test_hop_plus
from tests.small import same_bits

STILL = 1e-30  # a learning rate that moves no weight
HEADS, TAILS, EITHER = [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]


def rounds_of(coins, models):
    """Figures of a model of a coin, round by round; `models` are its chances of heads after each."""
    age, before, told = unborn(jnp.float32(0.5)), jnp.float32(0.5), []
    for coin, after in zip(coins, models, strict=True):
        heads = jnp.array(coin)

        def surprise(chance, heads=heads):
            each = -jnp.log(jnp.where(heads > 0, chance, 1.0 - chance))
            return mean_surprise(each, jnp.ones_like(heads, bool), (0,))

        age, figures = aged("age", surprise, age, before, jnp.float32(after))
        before = jnp.float32(after)
        told.append(figures)
    return {name: np.array([one[name] for one in told]) for name in ("age", "age_5")}


def test_a_model_that_stays_ages_as_the_data_moves():
    coins = [EITHER, HEADS, HEADS, TAILS, EITHER, TAILS]
    told = rounds_of(coins, models=[0.75] * 6)
    # heads cost ln 4/3, tails ln 4, either the mean of both: steps of ln 3 and its half
    assert_allclose(told["age"][1:], np.log(3) * np.array([-0.5, 0.0, 1.0, -0.5, 0.5]), atol=1e-6)
    assert_allclose(told["age_5"][5], 0.5 * np.log(3), rtol=1e-5)  # tails now, either then
    assert np.isnan(told["age"][0]) and np.isnan(told["age_5"][:5]).all()


def test_an_old_copy_is_judged_as_it_was():
    told = rounds_of([HEADS] * 5 + [TAILS] * 6, models=[0.75, 0.5, 0.5, 0.5, 0.5, 0.1, *[0.5] * 5])
    assert_allclose(
        told["age_5"][5], np.log(4) - np.log(4 / 3), rtol=1e-5
    )  # what 0.75 says of tails, of heads
    assert_allclose(told["age_5"][10], 0.0, atol=1e-6)  # what 0.1 says of tails, both times
    assert_allclose(told["age"][6], 0.0, atol=1e-6)


def test_what_does_not_count_is_left_out_and_nothing_is_not_a_number():
    x, counts = jnp.array([[1.0, 5.0], [2.0, 4.0]]), jnp.array([[True, False], [False, False]])
    assert_allclose(mean_surprise(x, counts, (1,)), [1.0, np.nan])


# --- the models of HOP and HOP+ ------------------------------------------------------------------


def test_rows_that_count_are_judged_those_of_the_last_games_first(monkeypatch):
    # One seat, two co-players, two games of three steps, numbered 0 to 5; rows with weight count.
    weight = jnp.array([[0.0, 2.0, 0.0, 1.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0, 4.0, 0.0]]).reshape(1, 2, 2, 3)
    number = jnp.broadcast_to(jnp.arange(6).reshape(1, 1, 2, 3), weight.shape)
    rows = opponent_stage.Rows(number[..., None] * 1.0, jnp.ones((*weight.shape, 7), bool), number, weight)
    monkeypatch.setattr(opponent_stage, "STATES", 4)
    few = opponent_stage._sample(rows)
    assert few.action[0, 0].tolist() == [5, 3]
    assert few.weight.tolist() == [[[3.0, 1.0], [4.0, 0.0]]]
    assert few.action[0, 1, 0] == 4


def in_turns(stage: Stage, params: Seated, rounds, compiled=test_hop.compiled) -> list:
    """Weights and figures after each round."""
    update, learner, told = compiled(stage.update), stage.init(params), []
    for trajectory in rounds:
        params, learner, figures = update(params, learner, trajectory, jax.random.key(7))
        told.append((params, figures))
    return told


def for_hop(rate: float):
    config = dataclasses.replace(test_hop.CONFIG, model_learning_rate=rate)
    parts, _ = _parts(test_hop.game(), test_hop.SEATS, config)
    stage = opponent_stage.opponent_stage(
        parts.env, parts.models, parts.policy.sharing, config, test_hop.PLAN
    )
    _, params, first, second = test_hop.rounds()
    return stage, params["opponents"], (first, second)


def for_readers(rate: float, **changes):
    config = dataclasses.replace(test_hop_plus.CONFIG, model_learning_rate=rate, **changes)
    parts, _ = parts_of(test_hop_plus.game(), test_hop_plus.SEATS, config)
    stage = subgoal_stage.subgoal_stage(parts.reader, config, test_hop_plus.PLAN.sequence_length)
    _, params, _, first = test_hop_plus.played()
    return stage, params["policy"], (first, backwards(first))


def for_world(rate: float):
    config = dataclasses.replace(test_hop_plus.CONFIG, world_learning_rate=rate)
    parts, _ = parts_of(test_hop_plus.game(), test_hop_plus.SEATS, config)
    stage = world_stage.world_stage(parts.env, parts.world, config, test_hop_plus.PLAN)
    _, params, _, first = test_hop_plus.played()
    return stage, params["world"], (first, backwards(first))


def backwards(trajectory):
    """Another round: everyone makes the moves, and gets to the boards, of another moment."""
    steps = trajectory.steps
    decision = dataclasses.replace(steps.decision, action=steps.decision.action[::-1])
    later = jax.tree.map(lambda x: x[::-1], steps.next_state)
    return dataclasses.replace(
        trajectory, steps=dataclasses.replace(steps, decision=decision, next_state=later)
    )


MODELS = {  # how they are made, what they tell, and the first round of which they can
    "hop": (opponent_stage, for_hop, "drift/model_staleness", 2),  # learns from a round when the next is over
    "readers": (subgoal_stage, for_readers, "drift/model_staleness", 1),
    "world": (world_stage, for_world, "drift/world_staleness", 1),
}


@pytest.mark.parametrize("model", MODELS)
def test_models_that_stay_age_by_what_tells_two_rounds_apart(model):
    _, made, name, first = MODELS[model]
    stage, params, (one, other) = made(STILL)
    told = in_turns(stage, params, [one, other] * 6)
    for a, b in zip(*map(jax.tree.leaves, (params, told[-1][0])), strict=True):
        assert_allclose(a, b, rtol=0.0, atol=1e-20, err_msg="nothing is learned here")
    staleness = np.array([figures[name] for _, figures in told]).reshape(12, -1)
    assert np.isnan(staleness[:first]).all()
    assert (np.abs(staleness[first]) > 1e-4).all()
    for before, after in zip(staleness[first:-1], staleness[first + 1 :], strict=True):
        assert_allclose(after, -before, rtol=1e-5, atol=1e-6)  # there, and back again
    later = np.array([figures[f"{name}_5"] for _, figures in told]).reshape(12, -1)
    last = 10 if model == "hop" else 5
    assert np.flatnonzero(np.isfinite(later).all(axis=1)).tolist() == sorted({last, 10})
    assert_allclose(later[last], staleness[last], rtol=1e-5, atol=1e-6)  # five rounds on it is the other one


@pytest.mark.optimised  # compiled without care, readers are rounded in another way by anything beside them
@pytest.mark.parametrize("model", MODELS)
def test_looking_at_age_changes_nothing_learned(model, monkeypatch):
    module, made, name, _ = MODELS[model]
    stage, params, rounds = made(1e-2)
    looked = in_turns(stage, params, rounds, jax.jit)
    monkeypatch.setattr(module, "aged", lambda name, surprise, age, before, after: (age, {}))
    without = in_turns(made(1e-2)[0], params, rounds, jax.jit)
    assert name in looked[1][1] and name not in without[1][1]
    assert not same_bits(params, looked[1][0])
    assert same_bits(looked[1][0], without[1][0])
