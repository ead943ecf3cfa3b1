"""How a name becomes a player."""

import jax.numpy as jnp
import pytest
from numpy.testing import assert_allclose

from coplay.envs import matrix, specialisation, stag_hunt
from coplay.errors import BadInput
from coplay.players.catalogue import YARDSTICKS, make_player, player_names

HUNT = stag_hunt.make(size=4)
DILEMMA = matrix.make()


def test_a_bare_name_has_its_defaults_and_a_call_its_own_options():
    assert make_player("waiter", HUNT).num_latents == 6
    assert make_player("waiter(k=3)", HUNT).num_latents == 4
    row = jnp.zeros(DILEMMA.observation_size)
    biased = make_player("biased(0.75)", DILEMMA)
    assert_allclose(biased.policy(0, row, jnp.ones(2, bool)), [0.75, 0.25])
    assert make_player(" random ", DILEMMA).name == "random"


def test_the_same_name_means_another_player_in_another_game():
    assert "nearest_stag" in player_names(HUNT)
    assert "nearest_stag" not in player_names(DILEMMA)
    assert player_names(specialisation.make()) == ["fixed", "sidestep", "random", "changing", "one_of"]
    assert list(YARDSTICKS["stag_hunt"]) == ["optimum"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nearest_stagg", "'nearest_stagg' is no scripted player of stag_hunt; did you mean 'nearest_stag'?"),
        ("waiter(k=0)", "k=0 must be at least 1"),
        ("waiter(patience=3)", "it takes k=5, metric='path'"),
        ("waiter(k=", "write a name such as waiter"),
        ("waiter(k=open('x'))", "write a name such as waiter"),
        ("reciprocator(watched=4)", "between 1 and 3"),
        ("nearest_stag(metric='crow')", "metric='crow' must be 'path' or 'manhattan'"),
        ("missing.py:player", "which is not there"),
    ],
)
def test_a_wrong_name_is_answered_with_a_sentence(name, sentence):
    with pytest.raises(BadInput) as error:
        make_player(name, HUNT)
    assert sentence in str(error.value)


def test_a_player_may_come_from_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from coplay.players.scripted import certain, no_goal, one_latent\n"
        "def stubborn(env):\n"
        "    return one_latent('stubborn', lambda z, row, legal: certain(1, env.num_actions), no_goal)\n"
        "def nothing(env):\n"
        "    return 3\n"
    )
    player = make_player(f"{file}:stubborn", DILEMMA)
    assert_allclose(player.policy(0, jnp.zeros(7), jnp.ones(2, bool)), [0, 1])
    with pytest.raises(BadInput, match="must return a ScriptedPlayer, not a int"):
        make_player(f"{file}:nothing", DILEMMA)
