"""Parts trained from recorded play: what is held out, when it stops, what is kept, how it is judged."""

import csv
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.cli.main import main
from coplay.errors import BadInput
from coplay.nets import world as worlds
from coplay.offline import collect, dataset, pretrain, training, world
from coplay.offline.training import Training
from coplay.types import Board


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "play.parquet"
    about = collect.about(
        "4h1s_4x4", {"observation": "entities"}, ("nearest_stag", "nearest_hare", "random"), True, 300, seed=0
    )
    dataset.write(path, about, collect.record(about))
    return path


@pytest.fixture(scope="module")
def trained(data):
    out = data.parent / "world"
    options = {"epochs": "6", "members": "2", "hidden": "[32, 32]", "batch": "64"}
    return pretrain.pretrain("world", data, options, out, lambda line: None)


def test_a_world_learned_from_a_few_games_is_nearly_the_game(trained):
    figures = trained.figures
    assert figures["exact/likeliest"] > 0.97
    assert figures["legal/drawn"] > 0.97
    assert figures["reward/right"] > 0.99
    assert figures["reward/recall"] > 0.9
    assert figures["skill"] > 0.98
    assert 0 < figures["disagreement"] < 0.1
    assert trained.held_out_loss < 1


def test_every_epoch_is_kept_with_its_figures(trained, data):
    folder = data.parent / "world"
    rows = list(csv.DictReader((folder / "evaluation.csv").open()))
    assert [int(row["epoch"]) for row in rows] == list(range(1, trained.epochs + 1))
    best = min(float(row["loss/held_out"]) for row in rows)
    assert_allclose(best, trained.held_out_loss)
    with np.load(folder / "evaluation" / "001.npz") as tables:
        assert tables["reward_confusion"].shape == (8, 8)
    assert len(list((folder / "checkpoints").glob("*.safetensors"))) == trained.epochs
    pictures = {path.stem for path in (folder / "pictures").glob("*.png")}
    assert pictures == {"loss", "rewards", "reward_confusion", "frames"}
    said = json.loads((folder / "part.json").read_text())
    assert said["play"]["players"] == ["nearest_stag", "nearest_hare", "random"]


def test_a_saved_part_is_judged_on_any_play_of_its_game(trained, data, capsys):
    assert main(["evaluate", trained.part, "--on", str(data), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["exact/likeliest"] > 0.97
    other = data.parent / "other.parquet"
    about = collect.about("4h1s_4x4", {"hares": 2}, ("random",), True, 5, seed=0)
    dataset.write(other, about, collect.record(about))
    with pytest.raises(BadInput, match="was trained on 4h1s_4x4"):
        pretrain.evaluate(trained.part, other)
    with pytest.raises(BadInput, match="is no trained part"):
        pretrain.evaluate(data.parent, data)


def test_bad_settings_are_one_sentence_and_nothing_is_written(data, capsys):
    for options, sentence in [
        (["--epoch", "3"], "did you mean '--epochs'"),
        (["--epochs", "0"], "epochs=0 must be at least 1"),
        (["--held_out", "1.5"], "held_out=1.5 must lie between 0 and 1"),
    ]:
        assert main(["pretrain", "world", str(data), "--out", str(data.parent / "no"), *options]) == 2
        assert sentence in capsys.readouterr().err
    assert not (data.parent / "no").exists()
    assert main(["pretrain", "wrld", str(data)]) == 2


def test_a_fifth_of_the_episodes_is_held_out_whole():
    learned, held = training.apart(50, Training())
    assert len(held) == 10
    assert_array_equal(np.sort(np.concatenate([learned, held])), np.arange(50))
    assert not np.array_equal(held, training.apart(50, Training(seed=1))[1])
    with pytest.raises(ValueError, match="too few"):
        training.apart(1, Training())


def squares(weights, rows, key):
    return (weights["w"] - rows) ** 2


def test_it_stops_when_held_out_rows_gain_nothing_more():
    rows, held = jnp.full(64, 2.0), jnp.full(8, -3.0)  # what is learned makes the held-out loss worse
    start = {"w": jnp.zeros(1)}
    settings = Training(epochs=50, batch=16, patience=3, learning_rate=0.1)
    found = list(training.epochs(squares, start, rows, np.zeros(64, int), held, settings))
    assert len(found) == 4  # the first is the best, then three that gain nothing
    assert found[-1].train_loss < found[0].train_loss


def test_members_count_episodes_of_their_own_choice():
    episode = np.repeat(np.arange(40), 3)
    drawn = training._drawn(0, 3, episode)
    by_episode = drawn.reshape(3, 40, 3)
    assert (by_episode == by_episode[:, :, :1]).all()  # an episode is drawn whole
    assert (by_episode[0] != by_episode[1]).any()
    assert 0.6 < drawn.mean() < 1.4
    assert_array_equal(training._drawn(0, 1, episode), np.ones((1, 120)))


# --- figures by hand -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(data):
    """The model without weights, and some moves."""
    about, play = dataset.read(data)
    env = about.env()
    model, _ = worlds.world_model(env.entities, env.num_agents, env.num_actions, env.reward_values, (8,))
    rows, _ = world.moves_of(env, model, play, np.arange(40))
    return model, rows


def certain(index, count):
    return jnp.where(jax.nn.one_hot(index, count, dtype=bool), 0.0, -40.0)


def sure_of(model, happened):
    return worlds.Foreseen(
        step=certain(happened.step, model.leaving + 1),
        reward=certain(happened.reward, len(model.reward_values)),
        there=certain(happened.there.astype(int), 2),
    )


def judged_by(monkeypatch, model, rows, said):
    monkeypatch.setattr(world, "said", lambda *_: said)
    return world.judged(model, {"nothing": jnp.zeros(1)}, rows, jax.random.key(0))


def test_whoever_knows_what_happens_scores_full_marks(monkeypatch, table):
    model, rows = table
    figures = judged_by(monkeypatch, model, rows, sure_of(model, rows.happened))
    for name in ("exact/likeliest", "exact/drawn", "legal/drawn", "reward/right", "reward/recall", "skill"):
        assert_allclose(figures[name], 1.0, err_msg=name)
    assert figures["mse"] < 1e-12


def test_a_model_that_says_a_little_of_everything_scores_badly(monkeypatch, table):
    """Rounded to the likeliest cell it could look good; chances are compared as they are."""
    model, rows = table
    sure = sure_of(model, rows.happened)
    blurred = jax.tree.map(lambda x: jax.nn.log_softmax(0.02 * x, axis=-1), sure)
    figures = judged_by(monkeypatch, model, rows, blurred)
    assert_allclose(figures["exact/likeliest"], 1.0)
    assert figures["exact/drawn"] < 0.3
    assert figures["legal/drawn"] < 0.5
    assert figures["skill"] < 0.6
    assert figures["mse"] > 1e-3


def test_who_always_says_nothing_is_paid_is_right_mostly_and_recalls_nothing(monkeypatch, table):
    model, rows = table
    sure = sure_of(model, rows.happened)
    never = worlds.Foreseen(sure.step, certain(jnp.zeros_like(rows.happened.reward), 8), sure.there)
    figures = judged_by(monkeypatch, model, rows, never)
    assert figures["reward/right"] > 0.85
    assert figures["reward/recall"] == 0


def test_rare_rewards_count_more_and_the_departed_nothing(table):
    _, rows = table
    weight, here = np.asarray(rows.weight), np.asarray(rows.before.here)
    paid = np.asarray(rows.happened.reward) > 0
    assert (weight[~here] == 0).all()
    assert_allclose(weight[here].mean(), 1.0, rtol=1e-4)
    assert weight[here & paid].mean() > 2 * weight[here & ~paid].mean()


def test_a_jump_a_wall_and_a_meal_without_prey_are_not_possible():
    env = collect.about("4h1s_4x4", {}, ("random",), True, 1, seed=0).env()
    state, _ = env.reset(jax.random.key(0))
    board = env.entities.read(state)
    state = env.entities.write(state, jnp.full(4, 4), Board(jnp.array([0, 5, 5, 15]), board.here, jnp.array(
        [5, 1, 2, 3, 4]), board.there), jnp.zeros(4))[0]  # fmt: skip
    prey = env.entities.read(state).things
    now = env.entities.read(state)

    def can(players=(0, 5, 5, 15), here=(1, 1, 1, 1), there=(1, 1, 1, 1, 1)):
        later = Board(jnp.array(players), jnp.array(here, bool), prey, jnp.array(there, bool))
        return bool(env.entities.possible(state, later))

    assert_array_equal(now.players, [0, 5, 5, 15])
    assert can()
    assert can(players=(1, 9, 4, 14))
    assert not can(players=(2, 5, 5, 15)), "two cells"
    assert not can(players=(0, 5, 5, 16)), "off the board"
    assert not can(here=(1, 1, 1, 0)), "gone without a meal"
    assert not can(there=(0, 1, 1, 1, 1)), "a stag gone by itself"
