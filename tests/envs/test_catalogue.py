"""Names become games, and mistakes become one sentence."""

import dataclasses
import sys

import pytest

from coplay.envs import ENVIRONMENTS, GAMES, IMPORTED, PRESETS, make_game, option_names
from coplay.errors import BadInput

OWN_GAME = """
import dataclasses
from coplay.envs import matrix

def make(rounds=3):
    return dataclasses.replace(matrix.make(rounds=rounds), name="mine")

def broken():
    return dataclasses.replace(matrix.make(rounds=3), horizon=2)

def no_game():
    return 7
"""


def test_the_catalogue_describes_every_name_and_nothing_else():
    assert set(GAMES) == {*ENVIRONMENTS, *PRESETS}
    assert not set(ENVIRONMENTS) & set(PRESETS)


def test_a_preset_is_a_game_with_some_options_set():
    env = make_game("4h1s_8x8_walls")
    assert (env.name, env.options.size, env.options.wall_components) == ("stag_hunt", 8, 5)
    assert make_game("matrix_stag_hunt").options.game == "stag_hunt"


def test_options_go_on_top_of_a_preset():
    assert make_game("4h1s_4x4", size=5, hares=3).observation_size == 25 * 7 + 4 * 7 + 2


def test_whole_numbers_and_lists_become_what_the_option_wants():
    env = make_game("stag_hunt", stag_reward=8, strengths=[1, 2, 3, 4])
    assert (env.options.stag_reward, env.options.strengths) == (8.0, (1, 2, 3, 4))
    assert isinstance(env.options.stag_reward, float)


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("snodrift", {}, "'snodrift' is neither a game nor a file.py:function; did you mean 'snowdrift'?"),
        ("4h1s_4x4", {"siz": 4}, "game '4h1s_4x4': unknown key 'siz'; did you mean 'size'?"),
        ("coin_game", {"horizon": "long"}, "game 'coin_game': horizon='long' should be a whole number"),
        ("coin_game", {"tie": "bath"}, "tie='bath' is not one of both, share; did you mean 'both'?"),
        ("snowdrift", {"players": 1}, "game 'snowdrift': players=1 must lie between 2 and 8"),
        ("mpe:simple_sprad", {}, "did you mean 'mpe:simple_spread'?"),
        ("smax:3n", {}, "did you mean 'smax:3m'?"),
        ("smax", {"map": "8n"}, "game 'smax': map='8n' is not known; did you mean '8m'?"),
        ("mpe:simple_tag", {"num_prey": 0}, "game 'mpe:simple_tag': num_prey=0 must lie between 1 and 4"),
        ("nowhere.py:make", {}, "'nowhere.py:make' names the file 'nowhere.py', which is not there"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence(name, options, complaint):
    with pytest.raises(BadInput) as error:
        make_game(name, **options)
    assert complaint in str(error.value)


def test_a_game_of_others_says_whose_it_is_and_asks_for_the_extra_where_it_is_missing(monkeypatch, capfd):
    assert make_game("smax:8m").package == "jaxmarl"
    assert capfd.readouterr() == ("", "")  # JaxMARL would tell what it does not find
    monkeypatch.setitem(sys.modules, "jaxmarl.environments.mpe", None)
    with pytest.raises(BadInput, match=r"a game of JaxMARL.*pip install 'coplay\[games\]'"):
        make_game("mpe:simple_spread")


def test_what_can_be_set_in_a_game_of_others_is_known_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxmarl.environments.smax", None)
    assert option_names("smax:3m")[:2] == ["map", "max_steps"]
    assert set(IMPORTED) <= set(ENVIRONMENTS)


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "my_game.py"
    path.write_text(OWN_GAME)
    return path


def test_a_users_own_game_is_made_and_checked(own_file):
    env = make_game(f"{own_file}:make", rounds=4)
    assert (env.name, env.horizon) == ("mine", 4)
    assert make_game(f"{own_file}:make", rounds=4) is env  # checked once


@pytest.mark.parametrize(
    ("function", "options", "complaint"),
    [
        ("broken", {}, "an episode is longer than horizon=2"),
        ("no_game", {}, "must return an Environment, not int"),
        ("mak", {}, "has no function 'mak'; did you mean 'make'?"),
        ("make", {"round": 3}, "failed with TypeError: make() got an unexpected keyword argument 'round'"),
    ],
)
def test_a_fault_in_a_users_own_game_is_named(own_file, function, options, complaint):
    with pytest.raises(BadInput) as error:
        make_game(f"{own_file}:{function}", **options)
    assert complaint in str(error.value)


def test_a_file_that_cannot_be_imported_says_why(tmp_path):
    path = tmp_path / "torn.py"
    path.write_text("import nothing_like_this")
    with pytest.raises(BadInput, match=r"torn\.py could not be imported: ModuleNotFoundError"):
        make_game(f"{path}:make")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_game_without_options_has_its_defaults(name):
    options = make_game(name).options
    assert dataclasses.fields(options)
    assert options == type(options)()
