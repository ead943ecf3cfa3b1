"""What every seat makes of the others: one model for any of them, and what subgoals say of pay."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.algorithms.hop_plus_parts import parts_of
from coplay.algorithms.readers import OTHERS, blank, foreseen, read_others, sights_of
from coplay.algorithms.subgoal_stage import subgoal_stage
from coplay.errors import BadInput
from tests.algorithms.test_hop_plus import CONFIG, KEY, PLAN, SEATS, compiled, game, hop_plus, learned, played

ANY = dataclasses.replace(CONFIG, model_of="any", real_share=1.0, world="none")
ASKED = dataclasses.replace(ANY, ahead=3, pay=1.0)
TOLD = dataclasses.replace(ASKED, reads="pay")


def weights_of(params):
    return params["policy"].own["group"][OTHERS]


def test_one_model_for_any_co_player_says_what_equal_models_for_each_say():
    _, params, _, trajectory = played(ANY)
    now = jax.tree.map(lambda x: x[0], trajectory.steps.before)
    one, each = (
        parts_of(game(), SEATS, c)[0].reader for c in (ANY, dataclasses.replace(ANY, model_of="each"))
    )
    mine = jax.tree.map(lambda x: x[0], weights_of(params))  # of the first seat, [1, ...]
    thrice = jax.tree.map(lambda x: jnp.concatenate([x] * 3), mine)
    seen, legal = sights_of(one, now)[:, :1], now.legal[:, one.others][:, :1]
    supposed = jax.random.normal(KEY, (*seen.shape[:3], CONFIG.subgoal_size))
    ours, theirs = (foreseen(r, w, seen, legal, supposed) for r, w in ((one, mine), (each, thrice)))
    assert_allclose(ours, theirs, atol=1e-6)


def test_one_model_reads_every_co_player_by_itself():
    _, params, _, trajectory = played(ANY)
    reader = parts_of(game(), SEATS, ANY)[0].reader
    now = jax.tree.map(lambda x: x[0], trajectory.steps.before)
    _, reading = read_others(reader, params["policy"], blank(reader, 16), now)
    row = now.observation.at[:, 1].add(1.0)  # what the second player sees, and only that
    _, otherwise = read_others(
        reader, params["policy"], blank(reader, 16), dataclasses.replace(now, observation=row)
    )
    moved = np.asarray(reading.subgoal.mean != otherwise.subgoal.mean).any(axis=(0, 3))  # [seat, other]
    assert_array_equal(moved, reader.others == 1)


@pytest.mark.parametrize("config", [ASKED, TOLD], ids=["subgoals are read", "pay is read"])
def test_what_is_asked_of_subgoals_is_learned_and_told(config):
    _, params, _, _ = played(config)
    after, _, figures = learned(config)
    for a, b in zip(*(jax.tree.leaves(weights_of(p)) for p in (params, after)), strict=True):
        assert np.asarray(a != b).reshape(4, -1).any(axis=1).all()
    assert np.isfinite(figures["subgoal/pay_surprise"]).all()
    assert np.isfinite(figures["policy/loss"]).all()


def test_one_set_of_weights_for_all_seats_learns_all_of_it_too():
    config = dataclasses.replace(TOLD, parameters="shared", model_of="each", model_balanced=True)
    _, params, _, _ = played(config)
    after, _, figures = learned(config)
    own, new = (jax.tree.leaves(p["policy"].common["group"][OTHERS]) for p in (params, after))
    assert all(x.shape[0] == 3 and np.asarray(x != y).any() for x, y in zip(own, new, strict=True))
    assert np.isfinite(figures["subgoal/pay_surprise"]).all()


def test_pay_later_moves_and_balance_change_what_is_learned():
    _, params, _, trajectory = played(ASKED)
    reader = parts_of(game(), SEATS, ASKED)[0].reader

    def after(**changes):
        stage = subgoal_stage(reader, dataclasses.replace(ASKED, **changes), PLAN.sequence_length)
        own = params["policy"]
        return compiled(lambda: stage.update(own, stage.init(own), trajectory, KEY)[0])()

    def infer_weights(**changes):
        return jax.tree.leaves(after(**changes).own["group"][OTHERS]["infer"])

    usual = infer_weights()
    for changes in ({"ahead": 0}, {"pay": 0.0}, {"model_balanced": True}):
        assert any(
            (np.asarray(a) != np.asarray(b)).any()
            for a, b in zip(usual, infer_weights(**changes), strict=True)
        )


def test_whoever_reads_pay_sees_chances_and_nothing_of_who_has_left():
    _, params, _, trajectory = played(TOLD)
    parts = parts_of(game(), SEATS, TOLD)[0]
    before, notes = trajectory.steps.before, trajectory.steps.decision.notes
    classes = len(game().reward_values) + 1
    assert notes["reading"].pay.shape[-1] == classes
    assert_allclose(jnp.sum(notes["reading"].pay, axis=-1), 1.0, rtol=1e-5)
    rows = parts.policy.views["policy"](before, notes, SEATS, params["policy"])
    shown = rows[..., game().observation_size :].reshape(*rows.shape[:-1], 3, classes)
    is_here = before.active[..., parts.reader.others]
    assert not is_here.all(), "nobody has left: the test shows nothing"
    assert_array_equal(np.asarray(shown.sum(axis=-1) > 0.5), np.asarray(is_here))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"reads": "pay"}, "set pay=1"),
        ({"reads": "pay", "pay": 1.0, "prior": "parts/vae"}, "reads='subgoals'"),
        ({"pay": -1.0}, "at least 0"),
        ({"reads": "pay", "pay": 1.0, "policy_reads": False}, "set policy_reads=true"),
        ({"ahead": 10}, "reaches over sequences of 10 steps"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changes, sentence):
    with pytest.raises((BadInput, ValueError), match=sentence):
        hop_plus(game(), SEATS, dataclasses.replace(CONFIG, **changes), PLAN)
