"""Parts trained from recorded play: what is held out, when it stops, what is kept, how it is judged."""

import csv
import dataclasses
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.cli.main import main
from coplay.envs import make_game
from coplay.errors import BadInput
from coplay.nets import world as worlds
from coplay.offline import collect, dataset, pretrain, training, world
from coplay.offline.training import Training
from coplay.settings import field_docs, field_types
from coplay.types import Board
from tests.small import same_bits


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
    assert 1 >= figures["exact/after 1"] >= figures["exact/after 3"] > 0.5
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
    strangers = data.parent / "strangers.parquet"
    about = collect.about("stag_hunt", {"size": 4, "observation": "entities"}, ("fickle",), True, 40, seed=5)
    dataset.write(strangers, about, collect.record(about))
    assert main(["evaluate", trained.part, "--on", str(strangers), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["exact/likeliest"] > 0.97
    other = data.parent / "other.parquet"
    about = collect.about("4h1s_4x4", {"hares": 2}, ("random",), True, 5, seed=0)
    dataset.write(other, about, collect.record(about))
    with pytest.raises(BadInput, match="was trained on 4h1s_4x4"):
        pretrain.evaluate(trained.part, other)
    with pytest.raises(BadInput, match="is no trained part"):
        pretrain.evaluate(data.parent, data)
    assert main(["evaluate", trained.part]) == 2
    assert "name recorded play to judge it on with --on" in capsys.readouterr().err
    assert main(["evaluate", trained.part, "--on", str(data), "--greedy"]) == 2


def test_bad_settings_are_one_sentence_and_nothing_is_written(data, capsys):
    for options, sentence in [
        (["--epoch", "3"], "did you mean '--epochs'"),
        (["--epochs", "0"], "epochs=0 must be at least 1"),
        (["--held_out", "1.5"], "held_out=1.5 must lie between 0 and 1"),
        (["--members", "0"], "members=0 must be at least 1"),
        (["--hidden", "[0]"], "widths of at least 1"),
    ]:
        assert main(["pretrain", "world", str(data), "--out", str(data.parent / "no"), *options]) == 2
        assert sentence in capsys.readouterr().err
    assert not (data.parent / "no").exists()
    assert main(["pretrain", "wrld", str(data)]) == 2


def test_help_says_what_every_kind_of_part_is_and_the_docs_what_its_settings_are(capsys):
    with pytest.raises(SystemExit):
        main(["pretrain", "--help"])
    said = capsys.readouterr().out
    for name, kind in pretrain.PARTS.items():
        assert f"  {name:8}{kind.description}\n" in said
        assert set(field_docs(kind.config)) == set(field_types(kind.config)), f"{name}: some say nothing"


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
    settings = Training(epochs=50, patience=3, learning_rate=0.1)
    found = list(training.epochs(squares, start, rows, np.zeros(64, int), held, settings, 16, 1000))
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
    rows, _ = world.moves_of(env, model, play, np.arange(len(play.length)))
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
    monkeypatch.setattr(world, "_later", lambda *_: {})  # it asks the networks themselves
    env = make_game("4h1s_4x4", observation="entities")
    return world.judged(env, model, {"nothing": jnp.zeros(1)}, rows, jax.random.key(0))


def test_whoever_knows_what_happens_scores_full_marks(monkeypatch, table):
    model, rows = table
    figures = judged_by(monkeypatch, model, rows, sure_of(model, rows.moves.happened))
    assert figures["reward/mse"] < 1e-9
    for name in ("exact/likeliest", "exact/drawn", "legal/drawn", "reward/right", "reward/recall", "skill"):
        assert_allclose(figures[name], 1.0, err_msg=name)
    assert figures["mse"] < 1e-12


def test_a_model_that_says_a_little_of_everything_scores_badly(monkeypatch, table):
    """Rounded to the likeliest cell it could look good; chances are compared as they are."""
    model, rows = table
    sure = sure_of(model, rows.moves.happened)
    blurred = jax.tree.map(lambda x: jax.nn.log_softmax(0.02 * x, axis=-1), sure)
    figures = judged_by(monkeypatch, model, rows, blurred)
    assert_allclose(figures["exact/likeliest"], 1.0)
    assert figures["exact/drawn"] < 0.3
    assert figures["legal/drawn"] < 0.5
    assert figures["skill"] < 0.6
    assert figures["mse"] > 1e-3


def test_who_always_says_nothing_is_paid_is_right_mostly_and_recalls_nothing(monkeypatch, table):
    model, rows = table
    sure = sure_of(model, rows.moves.happened)
    never = worlds.Foreseen(sure.step, certain(jnp.zeros_like(rows.moves.happened.reward), 8), sure.there)
    figures = judged_by(monkeypatch, model, rows, never)
    assert figures["reward/right"] > 0.85
    assert figures["reward/recall"] == figures["reward/recall 5"] == 0
    assert figures["reward/recall 0"] == 1


def test_rare_rewards_count_more_and_the_departed_nothing(table):
    _, rows = table
    weight, here = np.asarray(rows.weight), np.asarray(rows.moves.before.here)
    paid = np.asarray(rows.moves.happened.reward) > 0
    assert (weight[~here] == 0).all()
    assert_allclose(weight[here].mean(), 1.0, rtol=1e-4)
    assert weight[here & paid].mean() > 2 * weight[here & ~paid].mean()


def test_a_jump_a_wall_and_a_meal_without_prey_are_not_possible():
    env = make_game("4h1s_4x4")
    fresh, _ = env.reset(jax.random.key(0))
    things = jnp.array([5, 0, 2, 7, 8])
    state = dataclasses.replace(fresh, players=jnp.array([0, 5, 5, 15]), stags=things[:1], hares=things[1:])

    def can(players=(0, 5, 5, 15), here=(1, 1, 1, 1), there=(1, 1, 1, 1, 1)):
        later = Board(jnp.array(players), jnp.array(here, bool), things, jnp.array(there, bool))
        return bool(env.entities.possible(state, later))

    assert can()
    assert can(players=(1, 9, 4, 14))
    assert can(here=(0, 1, 1, 1), there=(1, 0, 1, 1, 1)), "a hare is eaten"
    assert can(here=(1, 0, 0, 1), there=(0, 1, 1, 1, 1)), "a stag is eaten by two"
    assert not can(players=(2, 5, 5, 15)), "two cells"
    assert not can(players=(0, 5, 5, 16)), "off the board"
    assert not can(players=(-1, 5, 5, 15)), "off the board"
    assert not can(here=(1, 1, 1, 0)), "gone without a meal"
    assert not can(here=(1, 0, 1, 1), there=(0, 1, 1, 1, 1)), "one alone eats no stag"
    assert not can(there=(0, 1, 1, 1, 1)), "a stag gone by itself"
    assert not can(here=(0, 1, 1, 1)), "a meal that leaves the hare"
    corner = dataclasses.replace(state, players=jnp.array([3, 5, 5, 15]))
    wrapped = Board(jnp.array([4, 5, 5, 15]), jnp.ones(4, bool), things, jnp.ones(5, bool))
    assert not env.entities.possible(corner, wrapped), "round the edge"


def test_nobody_walks_through_a_wall():
    env = make_game("4h1s_8x8_walls")
    state, timestep = env.reset(jax.random.key(0))
    board = env.entities.read(state)
    shifts = np.array([-8, 8, -1, 1])
    for seat, move in itertools.product(range(4), range(4)):
        moved = dataclasses.replace(board, players=board.players.at[seat].add(int(shifts[move])))
        assert bool(env.entities.possible(state, moved)) == bool(timestep.legal[seat, move])
    assert not np.asarray(timestep.legal)[:, :4].all(), "somebody stands at a wall or an edge"


def test_a_game_played_by_what_is_foretold_is_the_game_where_that_is_true(table):
    """Sure of the truth, a learned step makes the game's own next state and rewards."""
    model, rows = table
    env = make_game("4h1s_4x4", observation="entities")
    some = jax.tree.map(lambda x: x[:50], rows.moves)
    keys = jax.random.split(jax.random.key(0), 50)
    true = jax.vmap(env.step)(some.state, some.action, keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worlds, "foreseen", lambda world, weights, rows: weights)
        told = sure_of(model, some.happened)
        imagined = jax.vmap(lambda *one: worlds.imagined_step(env, model, *one))(
            told, some.state, some.action, keys
        )
    assert same_bits(imagined[0], true[0])
    assert_allclose(imagined[1].reward, true[1].reward, rtol=1e-6)
    assert_array_equal(imagined[1].legal, true[1].legal)
