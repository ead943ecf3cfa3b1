"""The prior over subgoals: what shapes its numbers, what only reads them, and what it is judged by."""

import dataclasses
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.cli.main import main
from coplay.envs import make_game
from coplay.errors import BadInput
from coplay.offline import collect, dataset, pretrain, training, vae
from coplay.opponents import prior
from coplay.settings import field_docs

KEY = jax.random.key(0)
OBJECTIVES = [("reconstruction", "board", "act"), ("action", "act", "board")]  # who shapes, who only reads


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


@pytest.mark.parametrize(("objective", "head", "other"), OBJECTIVES)
def test_one_reader_shapes_the_numbers_and_the_other_only_learns_to_read_them(data, objective, head, other):
    part, _, rows, weights = made(data, objective=objective, divergence=0.0)

    def slope(weights):
        return jax.grad(lambda w: jnp.sum(part.loss(w, rows, KEY)))(weights)

    as_it_is = slope(weights)
    assert_close(slope(bent(weights, other))["embed"], as_it_is["embed"])
    differs = slope(bent(weights, head))
    assert not np.allclose(*(jax.tree.leaves(s["embed"])[0] for s in (differs, as_it_is)))
    for name in (head, other):
        assert any(np.abs(x).max() > 0 for x in jax.tree.leaves(as_it_is[name])), f"{name} learns nothing"


def bent(weights, name):
    """The same with one network's weights otherwise, and steep."""
    return weights | {name: jax.tree.map(lambda x: 20 * x + 0.1, weights[name])}


@pytest.mark.parametrize(("objective", "head", "other"), OBJECTIVES)
def test_epochs_are_compared_by_what_shapes_the_numbers(data, objective, head, other):
    part, _, rows, weights = made(data, objective=objective)
    as_it_is = part.score(weights, rows, KEY)
    assert_array_equal(part.score(bent(weights, other), rows, KEY), as_it_is)
    assert (part.score(bent(weights, head), rows, KEY) != as_it_is).all()
    assert (part.loss(bent(weights, other), rows, KEY) != part.loss(weights, rows, KEY)).all()


def test_what_an_epoch_is_worth_can_be_counted_by_hand(data):
    part, model, rows, weights = made(data)
    flat = jax.tree.map(jnp.zeros_like, weights)  # numbers are standard Gaussian: no divergence
    seen = vae._seen(model, flat, rows)
    costs = np.where(rows.counts, np.log(seen.legal.sum(axis=-1)), 0.0).sum(axis=-1)
    assert_allclose(part.score(flat, rows, KEY), costs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("objective", "head", "other"), OBJECTIVES)
def test_a_steep_reader_that_shapes_nothing_shortens_no_step_of_the_rest(data, objective, head, other):
    part, _, rows, weights = made(data, objective=objective)
    settings = training.Training(epochs=1, max_grad_norm=0.01)

    def learned(weights):
        start, episode = jax.tree.map(lambda x: x[None], weights), np.asarray(rows.episode)
        told = {"score": part.score, "beside": part.beside}
        return next(training.epochs(part.loss, start, rows, episode, rows, settings, 16, 100, **told))

    one, another = learned(weights), learned(bent(weights, other))
    for name in ("embed", head):
        assert_close(one.weights[name], another.weights[name])
    assert_allclose(one.held_out_loss, another.held_out_loss, rtol=1e-5)


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
    every, episode = vae.moments_of(play, np.arange(12))
    paid, _ = vae.paid_moments_of(play, np.arange(12))
    earned = (play.reward[:12] * (play.active & play.is_move[..., None])[:12]).sum(axis=1) > 0
    assert_array_equal(paid.counts, np.asarray(every.counts) & earned[episode])
    assert 0 < paid.counts.sum() < every.counts.sum()


def test_all_are_held_out_so_that_parts_learned_from_the_paid_can_be_compared(data):
    options = {"epochs": "1", "hidden": "[8]", "subgoal": "2", "learning_rate": "1e-30"}  # nothing is learned

    def learned(rewarded):
        out = data.parent / f"rewarded_{rewarded}"
        return pretrain.pretrain("vae", data, options | {"rewarded": rewarded}, out, lambda line: None)

    of_paid, of_all = learned("true"), learned("false")
    assert of_paid.held_out_loss == of_all.held_out_loss
    assert of_paid.train_loss < of_all.train_loss  # fewer players count


def test_play_in_which_nobody_was_paid_is_refused_where_only_the_paid_are_learned_from(data):
    about, play = dataset.read(data)
    poor, out = data.parent / "poor.parquet", data.parent / "none"
    dataset.write(poor, about, dataclasses.replace(play, reward=np.zeros_like(play.reward)))
    with pytest.raises(BadInput, match="nobody was paid in the 240 episodes to learn from"):
        pretrain.pretrain("vae", poor, {"rewarded": "true"}, out, lambda line: None)
    assert not out.exists()


def test_shaped_by_actions_its_numbers_know_more_of_goals_than_saying_the_commonest(data):
    options = {"epochs": "12", "hidden": "[32]", "subgoal": "4", "learning_rate": "0.01"}
    trained = pretrain.pretrain("vae", data, options, data.parent / "vae", lambda line: None)
    found = trained.figures
    assert trained.held_out_loss < 10 < found["reconstruction"], "boards have no part in it"
    assert found["action_surprise"] < 1.3  # a guess over what is legal costs about 1.5
    assert found["probe/subgoal"] > found["probe/commonest"] + 0.02  # one moment says little of a goal
    pictures = {path.stem for path in (data.parent / "vae" / "pictures").glob("*.png")}
    assert pictures == {"loss", "boards"}


def test_a_game_that_hides_how_near_things_are_is_refused():
    about = collect.about("snowdrift", {}, ("cleaner",), True, 3, seed=0)
    with pytest.raises(BadInput, match="observation='entities'"):
        vae.part_of(about, vae.VaeConfig())


@pytest.mark.parametrize("game", ["prisoners_dilemma", "specialisation"])
def test_a_game_without_a_board_is_refused_in_one_sentence(game, tmp_path, capsys):
    about = collect.about(game, {}, ("random",), True, 10, seed=0)
    dataset.write(tmp_path / "play.parquet", about, collect.record(about))
    assert main(["pretrain", "vae", str(tmp_path / "play.parquet"), "--out", str(tmp_path / "part")]) == 2
    assert "shows no board to rebuild; take play of a game on cells" in capsys.readouterr().err
    assert not (tmp_path / "part").exists()


def test_the_choices_of_an_objective_are_explained_in_their_order():
    said = field_docs(vae.VaeConfig)["objective"]
    assert get_args(prior.Objective) == ("reconstruction", "action")
    assert said.index("boards") < said.index("does next")


def test_previous_actions_are_no_board_where_there_are_as_many_players_and_actions_as_rows():
    env = make_game("stag_hunt", size=7, players=7, observation="entities")
    row = jnp.zeros(env.observation_size)
    assert env.split(row)["previous"].shape == env.split(row)["self"].shape
    assert list(prior.board_parts(env, row)) == ["self", "others", "walls", "stags", "hares"]
    assert prior.boards(env, row).shape == (10, 7, 7)
    assert len(vae._channels(env)) == 10
