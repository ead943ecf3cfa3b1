"""Models of other players from recorded play: whom they learn from, what they know, how they are judged."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.errors import BadInput
from coplay.offline import dataset, moa, pretrain, training


@pytest.fixture(scope="module")
def table(data):
    about, play = dataset.read(data)
    part = moa.part_of(about, moa.MoaConfig(hidden=(16, 16)))
    rows, _ = part.rows(play, np.arange(20))
    return about, part, rows, part.init(jax.random.key(0))


def changed(rows, where, **fields):
    new = {
        name: jnp.where(where, value, getattr(rows, name)).astype(getattr(rows, name).dtype)
        for name, value in fields.items()
    }
    return dataclasses.replace(rows, **new)


def test_nobody_learns_from_players_who_have_left(table):
    _, part, rows, weights = table
    assert not rows.counts.all()
    key = jax.random.key(0)
    other = changed(rows, ~rows.counts, action=(rows.action + 1) % 7)
    assert_array_equal(part.loss(weights, rows, key), part.loss(weights, other, key))
    mine = changed(rows, rows.counts, action=(rows.action + 1) % 7)
    assert (part.loss(weights, rows, key) != part.loss(weights, mine, key)).all()


def test_a_subgoal_is_read_from_the_past_alone(table):
    about, _, rows, weights = table
    config = moa.MoaConfig()
    model = moa.subgoals.subgoal_model(about.env(), config.subgoal, (16, 16), foretells_pay=config.pay > 0)[0]
    _, as_it_was, _ = moa._likeliest(model, weights, rows)
    later = jax.tree.map(lambda x: jnp.concatenate([x[:, :6], x[::-1, 6:]], axis=1), rows.state)
    _, otherwise, _ = moa._likeliest(model, weights, dataclasses.replace(rows, state=later))
    assert_array_equal(as_it_was.mean[:, :6], otherwise.mean[:, :6])
    assert (np.asarray(as_it_was.mean[:, 6:]) != np.asarray(otherwise.mean[:, 6:])).any()


def test_a_few_games_teach_it_to_foresee_hunters(data):
    options = {"epochs": "20", "hidden": "[32, 32]", "batch": "16"}
    found = pretrain.pretrain("moa", data, options, data.parent / "moa", lambda line: None).figures
    assert found["surprise/best"] < found["surprise"] < found["surprise/frequency"]
    assert found["skill"] > 0.6
    assert found["top1"] > 0.9 * found["top1/best"]
    assert found["top3"] > found["top1"]
    assert found["divergence"] > 0
    counted = sum(value for name, value in found.items() if name.startswith("count/"))
    assert counted == dataset.read(data)[1].active[held_out(data)].sum()
    pictures = {path.stem for path in (data.parent / "moa" / "pictures").glob("*.png")}
    assert pictures == {"loss", "actions", "confusion", "recall"}


def held_out(data):
    return training.apart(len(dataset.read(data)[1].length), training.Training())[1]


def test_the_best_predictor_knows_who_may_sit_where(table):
    about, _, rows, _ = table
    env = about.env()
    best = np.asarray(moa.best_guess(moa.possible_players(about, env), env, rows).action)
    legal = np.asarray(jax.vmap(jax.vmap(env.view))(rows.state)[1])
    counts = np.asarray(rows.counts)
    assert_allclose(best[counts].sum(axis=-1), 1.0, rtol=1e-4)
    assert (best[counts][~legal[counts]] == 0).all()
    # Told the line-up, it is never more surprised than when it must find out.
    seated = dataclasses.replace(about, players=("nearest_stag",) * 4, is_drawn=False)
    sure = np.asarray(moa.best_guess(moa.possible_players(seated, env), env, rows).action)
    hunts_stag = counts & (np.asarray(rows.goal) == 0)
    own = np.take_along_axis(sure, np.asarray(rows.action)[..., None], axis=-1)[..., 0]
    guess = np.take_along_axis(best, np.asarray(rows.action)[..., None], axis=-1)[..., 0]
    assert np.log(own[hunts_stag]).mean() > np.log(guess[hunts_stag]).mean()


def test_the_best_predictor_knows_goals_as_far_as_they_can_be_known(table):
    about, _, rows, _ = table
    env = about.env()
    goal = np.asarray(moa.best_guess(moa.possible_players(about, env), env, rows).goal)
    counts = np.asarray(rows.counts)
    true = np.take_along_axis(goal, np.maximum(np.asarray(rows.goal), 0)[..., None], axis=-1)[..., 0]
    assert_allclose(goal[counts].sum(axis=-1), 1.0, rtol=1e-4)
    assert_allclose(true[:, 0][counts[:, 0]], 0.5, atol=1e-5)  # nothing is known before the first move
    late = counts & (np.arange(counts.shape[1]) >= 4)[None, :, None]
    assert true[late].mean() > 0.9
    # A belief that is right on average is as sure as it is right.
    assert abs(goal.max(axis=-1)[counts].mean() - (goal.argmax(axis=-1) == rows.goal)[counts].mean()) < 0.02


def test_play_of_runs_is_refused_before_anything_is_made(table):
    about, _, _, _ = table
    with pytest.raises(BadInput, match="runs in the play have none"):
        moa.part_of(dataclasses.replace(about, players=("zoo:hop_4h1s_4x4",)), moa.MoaConfig())


def test_what_lies_ahead_is_learned_from_too(table):
    about, _, rows, _ = table
    model, init = moa.subgoals.subgoal_model(about.env(), 2, (8, 8), foretells_pay=True)
    weights, key = init(jax.random.key(1)), jax.random.key(2)
    near, far = (moa.loss(model, weights, rows, key, moa.MoaConfig(ahead=n)) for n in (0, 10))
    assert (np.asarray(far) > np.asarray(near)).any()
    assert (np.asarray(far) >= np.asarray(near) - 1e-4).all()


def test_what_everyone_caught_is_what_they_had_been_about_to_be_paid(table):
    about, _, rows, _ = table
    values = (*about.env().reward_values, 0.0)  # the last: none to come
    paid = np.array(values)[np.asarray(rows.prospect.paid)]
    counts, goal = np.asarray(rows.counts), np.asarray(rows.goal)
    assert np.asarray(rows.prospect.is_known)[counts].all()  # episodes are whole
    hares = paid[counts & (goal == 1)]
    assert set(np.round(hares, 3)) <= {0.0, 0.25, 0.333, 0.5, 1.0}
    assert paid[counts & (goal == 0)].max() > 1.0


def test_figures_of_actions_by_hand():
    table = jnp.array([[3, 1], [2, 4]])  # [true, told]
    found = moa._by_class(("a", "b"), table)
    assert found["count/a"] == 4
    assert_allclose(found["ratio/a"], 5 / 4)
    assert_allclose(found["precision/a"], 3 / 5)
    assert_allclose(found["recall/a"], 3 / 4)
    assert_allclose(found["f1/a"], 6 / 9)
    assert_allclose(found["macro_f1"], (6 / 9 + 8 / 11) / 2)


def test_a_probe_finds_what_a_subgoal_says_and_nothing_in_noise(table):
    about, _, rows, _ = table
    model = moa.subgoals.subgoal_model(about.env(), 2, (8, 8))[0]
    telling = jax.nn.one_hot(rows.goal, 2)
    noise = jax.random.normal(jax.random.key(0), telling.shape)
    told = moa._probes(model, telling, telling, rows)
    assert told["probe/subgoal"] == told["probe/filter"] == 1
    assert told["steps to sure/subgoal"] == told["never sure/subgoal"] == 0
    found = moa._probes(model, noise, telling, rows)
    assert found["probe/subgoal"] <= found["probe/commonest"] + 0.05
    assert found["never sure/subgoal"] > 0.9
