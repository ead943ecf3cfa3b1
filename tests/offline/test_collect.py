"""Recorded play: what is in a file is what happened, and the game agrees."""

import dataclasses
import json

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from coplay.envs import make_game
from coplay.errors import BadInput
from coplay.offline import collect, dataset
from tests.small import same_bits

GAME = {"game": "4h1s_4x4", "options": {"observation": "entities", "horizon": 12}}


def wanted(players=("nearest_stag", "nearest_hare", "random"), is_drawn=True, episodes=50, **changes):
    return collect.about(
        **GAME | {"seed": 3} | changes, players=players, is_drawn=is_drawn, episodes=episodes
    )


@pytest.fixture(scope="module")
def recorded():
    return collect.record(wanted())


def test_a_file_holds_what_was_played_and_what_made_it(recorded, tmp_path):
    dataset.write(tmp_path / "one.parquet", wanted(), recorded)
    about, back = dataset.read(tmp_path / "one.parquet")
    assert about == wanted()
    assert_array_equal(back.length, recorded.length)
    boards = recorded.is_board
    for name in dataset.BY_SEAT:
        assert_array_equal(getattr(back, name)[boards], getattr(recorded, name)[boards])
    was, is_now = (jax.tree.map(lambda x: np.asarray(x)[boards], play.state) for play in (recorded, back))
    assert same_bits(was, is_now)


def test_the_same_again_gives_the_same_file_and_another_seed_another(tmp_path):
    contents = []
    for number, seed in enumerate((3, 3, 4)):
        about = wanted(seed=seed, episodes=5)
        dataset.write(tmp_path / f"{number}.parquet", about, collect.record(about))
        contents.append((tmp_path / f"{number}.parquet").read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_every_recorded_move_is_one_the_game_makes(recorded):
    env = make_game(GAME["game"], **GAME["options"])
    moves = recorded.is_move[:, :-1]
    before, after = (
        jax.tree.map(lambda x, part=part: x[:, part][moves], recorded.state)
        for part in (slice(None, -1), slice(1, None))
    )
    action, reward = recorded.action[:, :-1][moves], recorded.reward[:, :-1][moves]
    keys = jax.random.split(jax.random.key(0), len(action))
    state, timestep = jax.jit(jax.vmap(env.step))(before, action, keys)
    assert same_bits(state, after)
    assert_array_equal(timestep.reward, reward)


def test_each_player_leaves_once_and_does_nothing_afterwards(recorded):
    assert_array_equal(recorded.left.sum(axis=1), np.ones((50, 4)))
    gone = np.cumsum(recorded.left, axis=1) - recorded.left > 0
    assert_array_equal(recorded.active, ~gone & recorded.is_move[..., None])
    assert (recorded.reward[gone] == 0).all()
    assert (recorded.goal[~recorded.active] == dataset.NO_GOAL).all()
    assert (recorded.action[~recorded.is_move] == dataset.NOBODY_MOVES).all()


def test_company_is_drawn_for_every_episode_or_sits_as_named(recorded):
    goals = recorded.goal[:, 0]  # at the first board: stag hunters 0, hare hunters 1, random players none
    shares = [(goals == goal).mean() for goal in (0, 1, dataset.NO_GOAL)]
    assert min(shares) > 0.2
    seated = collect.record(
        wanted(("nearest_stag", "nearest_hare", "nearest_hare", "nearest_stag"), False, episodes=4)
    )
    assert_array_equal(seated.goal[:, 0], np.tile([0, 1, 1, 0], (4, 1)))
    alone = collect.record(wanted(("nearest_hare",), episodes=4))
    assert_array_equal(alone.goal[:, 0], np.ones((4, 4)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"episodes": 0}, "--episodes 0 must be at least 1"),
        ({"players": ("random",), "is_drawn": False}, "4h1s_4x4 has 4 seats"),
        ({"players": ("nearest_stg", "random")}, "did you mean 'nearest_stag'"),
        ({"game": "4h1s_4x5"}, "did you mean"),
        ({"seed": 2**40}, "--seed"),
    ],
)
def test_what_cannot_be_recorded_is_said_in_a_sentence(change, sentence):
    with pytest.raises(BadInput, match=sentence.replace("(", r"\(")):
        collect.record(wanted(**change))


def test_a_foreign_or_damaged_file_is_refused(recorded, tmp_path):
    with pytest.raises(BadInput, match="there is no file"):
        dataset.read(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("not a table")
    with pytest.raises(BadInput, match="damaged or not recorded play"):
        dataset.read(tmp_path / "text.parquet")
    dataset.write(tmp_path / "good.parquet", wanted(), recorded)
    table = pq.read_table(tmp_path / "good.parquet")
    pq.write_table(table.drop_columns(["state.players"]), tmp_path / "less.parquet")
    with pytest.raises(BadInput, match="players"):
        dataset.read(tmp_path / "less.parquet")
    later = json.dumps(dataclasses.asdict(wanted()) | {"format": 99})
    pq.write_table(table.replace_schema_metadata({"coplay": later}), tmp_path / "later.parquet")
    with pytest.raises(BadInput, match="format 99"):
        dataset.read(tmp_path / "later.parquet")
    pq.write_table(table.take(np.delete(np.arange(len(table)), 5)), tmp_path / "gap.parquet")
    pq.write_table(pa.concat_tables([table, table]), tmp_path / "twice.parquet")
    for name in ("gap", "twice"):
        with pytest.raises(BadInput, match="not whole episodes"):
            dataset.read(tmp_path / f"{name}.parquet")
    with pytest.raises(BadInput, match="there is no file"):
        dataset.read(tmp_path)
