"""How large layers are before training: by their rule, beside fresh draws, and where a learner is spoiled."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coplay.audit.pipeline import off_draws, off_rule
from coplay.nets.mlp import Linear
from tests.audit.planted import map_seated, replacing
from tests.audit.suite import finding_of, subject_of


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (1, 1)])
def test_a_layer_has_the_gain_that_it_was_drawn_with(shape):
    assert off_rule("here", Linear(jax.random.key(0), *shape, 0.5)) == []


def evenly(layer: Linear, value: float) -> Linear:
    return eqx.tree_at(lambda x: x.weight, layer, jnp.full_like(layer.weight, value))


def test_a_layer_of_another_scale_is_told():
    # Every weight 0.5 in 4 x 4: a mean square of 0.25, times the longer side 4 is 1, so a gain of 1.
    assert off_rule("here", evenly(Linear(jax.random.key(0), 4, 4, 1.25), 0.5)) == [
        "here starts with a gain of 1, drawn with 1.25"
    ]


def test_what_should_say_nothing_must_be_nothing():
    heads = Linear(jax.random.key(0), 4, 4, 0.0)
    assert off_rule("heads", heads) == []
    assert off_rule("heads", evenly(heads, 0.01))


def draws(count: int, rows: int, numbers: int) -> list[dict]:
    random = np.random.default_rng(0)
    made = random.standard_normal((count, rows, numbers))
    return [{"w": (np.sqrt(np.mean(x**2, axis=1)), numbers)} for x in made]


def test_a_seat_is_held_against_the_draws_of_the_others():
    fresh = draws(8, 4, 200)  # a standard error of 5%: 10% and four of them are 30%
    assert off_draws({"w": (np.array([1.0, 1.2, 0.8, 1.0]), 200)}, fresh) == []
    (said,) = off_draws({"w": (np.array([1.0, 1.0, 2.0, 1.0]), 200)}, fresh)
    assert said.startswith("w of seat 2 starts 2.0")


def test_a_handful_of_numbers_has_no_scale():
    assert off_draws({"w": (np.array([9.0]), 4)}, draws(8, 1, 4)) == []


# --- in a learner --------------------------------------------------------------------------------


def test_layers_drawn_otherwise_than_they_say_are_found_in_nets():
    with replacing("coplay.nets.mlp", "orthogonal", lambda draw: lambda *x: math.sqrt(0.5) * draw(*x))():
        found = finding_of(subject_of("ppo_4h1s_4x4"), "starts_scaled")
    assert found.verdict == "fail" and found.room == "nets"
    assert found.next.partition(";")[0].endswith("starts with a gain of 1, drawn with 1.41")


def test_a_seat_that_is_made_larger_before_training_is_found_in_training():
    subject = subject_of("ppo_gru_4h1s_4x4")
    begun = subject.begun()

    def spoiled(part):
        def one(path, x):
            is_recurrent = "from_memory" in jax.tree_util.keystr(path)  # a tensor that is no layer by itself
            return x.at[2].multiply(1.5) if is_recurrent else x

        return dataclasses.replace(part, own=jax.tree_util.tree_map_with_path(one, part.own))

    subject.kept["begun"] = dataclasses.replace(begun, params=map_seated(spoiled, begun.params))
    found = finding_of(subject, "starts_scaled")
    assert found.verdict == "fail" and found.room == "training"
    assert "of seat 2 starts 1.5 times as large" in found.next


def test_ours_are_drawn_by_their_rules():
    assert finding_of(subject_of("ppo_4h1s_4x4"), "starts_scaled").verdict == "pass"
