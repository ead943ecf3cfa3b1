"""The prior over subgoals: what shapes its numbers, what only reads them, and what it is judged by."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.errors import BadInput
from coplay.offline import collect, dataset, pretrain, vae
from coplay.opponents import prior

KEY = jax.random.key(0)


def made(data, **options):
    about, play = dataset.read(data)
    config = vae.VaeConfig(hidden=(16,), subgoal=3, **options)
    part = vae.part_of(about, config)
    model, _ = prior.prior_model(about.env(), config.subgoal, config.hidden, config.objective)
    return part, model, part.rows(play, np.arange(12))[0], part.init(jax.random.key(1))


def test_nobody_learns_from_players_who_have_left(data):
    part, _, rows, weights = made(data)
    assert not rows.counts.all()
    other = dataclasses.replace(rows, action=jnp.where(rows.counts, rows.action, (rows.action + 1) % 7))
    assert_array_equal(part.loss(weights, rows, KEY), part.loss(weights, other, KEY))


@pytest.mark.parametrize("objective", ["reconstruction", "action"])
def test_one_reader_shapes_the_numbers_and_the_other_only_learns_to_read_them(data, objective):
    part, _, rows, weights = made(data, objective=objective, divergence=0.0)
    head, other = ("board", "act") if objective == "reconstruction" else ("act", "board")

    def slope(weights):
        return jax.grad(lambda w: jnp.sum(part.loss(w, rows, KEY)))(weights)

    as_it_is = slope(weights)
    bent = weights | {other: jax.tree.map(lambda x: 2 * x + 0.1, weights[other])}
    assert_close(slope(bent)["embed"], as_it_is["embed"])
    bent = weights | {head: jax.tree.map(lambda x: 2 * x + 0.1, weights[head])}
    assert not np.allclose(*(jax.tree.leaves(s["embed"])[0] for s in (slope(bent), as_it_is)))
    for name in (head, other):
        assert any(np.abs(x).max() > 0 for x in jax.tree.leaves(as_it_is[name])), f"{name} learns nothing"


def assert_close(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_three_figures_are_nats_that_can_be_counted_by_hand(data):
    part, model, rows, weights = made(data)
    flat = jax.tree.map(jnp.zeros_like, weights)
    found = jax.jit(part.judge)(jax.tree.map(lambda x: x[None], flat), rows, KEY)
    cells = 7 * 16  # 4 players, walls, stags and hares on 4 x 4
    assert_allclose(found["reconstruction"], cells * np.log(2), rtol=1e-5)
    assert_allclose(found["kl"], 0.0, atol=1e-6)
    seen = vae._seen(model, flat, rows)
    assert_allclose(found["action_surprise"], np.log(seen.legal.sum(axis=-1))[rows.counts].mean(), rtol=1e-4)


def test_boards_are_what_a_player_sees(data):
    _, model, rows, weights = made(data)
    seen = vae._seen(model, weights, rows)
    assert seen.boards.shape[2:] == (7, 4, 4)
    assert_array_equal(seen.boards[:, :, 0].sum(axis=(-1, -2)) > 0, np.ones(rows.counts.shape, bool))
    assert vae._channels(model.env) == ["self", "others 1", "others 2", "others 3", "walls", "stags", "hares"]


def test_only_the_paid_are_learned_from_where_that_is_asked(data):
    _, play = dataset.read(data)
    every, episode = vae.moments_of(play, np.arange(12), only_rewarded=False)
    paid, _ = vae.moments_of(play, np.arange(12), only_rewarded=True)
    earned = (play.reward[:12] * (play.active & play.is_move[..., None])[:12]).sum(axis=1) > 0
    assert_array_equal(paid.counts, np.asarray(every.counts) & earned[episode])
    assert 0 < paid.counts.sum() < every.counts.sum()


def test_shaped_by_actions_its_numbers_know_more_of_goals_than_saying_the_commonest(data):
    options = {"epochs": "12", "hidden": "[32]", "subgoal": "4", "learning_rate": "0.01"}
    found = pretrain.pretrain("vae", data, options, data.parent / "vae", lambda line: None).figures
    assert found["action_surprise"] < 1.3  # a guess over what is legal costs about 1.5
    assert found["probe/subgoal"] > found["probe/commonest"] + 0.02  # one moment says little of a goal
    pictures = {path.stem for path in (data.parent / "vae" / "pictures").glob("*.png")}
    assert pictures == {"loss", "boards"}


def test_a_game_that_hides_how_near_things_are_is_refused():
    about = collect.about("snowdrift", {}, ("cleaner",), True, 3, seed=0)
    with pytest.raises(BadInput, match="observation='entities'"):
        vae.part_of(about, vae.VaeConfig())
