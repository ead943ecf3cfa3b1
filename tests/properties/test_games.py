"""What holds in every game, whatever is played: names do not matter, seats are equal, chance is fair."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tests.envs.walks import VARIANTS, random_returns, renamings, variant, walk

SYMMETRIC = [name for name in VARIANTS if "strength" not in name]
REFERENCE = {
    "4x4": 0.66,
    "4x4, entities, early": 0.39,
    "walls, entities": 0.30,
    "walls, early": 0.23,
    "two stags": 0.26,
    "two stags, entities, early": 0.21,
    "snowdrift": 11.0,
    "coin game": 0.0,
    "coin game, share": 0.0,
}
HAS_CEILING = [name for name in SYMMETRIC if "coin" not in name and "hidden" not in name]


@pytest.mark.parametrize("name", VARIANTS)
def test_renaming_the_players_permutes_everything_at_every_step(name):
    commutes, players = walk(name).commutes, variant(name).num_agents
    expected = {2: 2, 4: 24, 5: 25, 8: 28}[players]
    assert len(renamings(players)) == expected
    for what, holds in commutes.items():
        assert holds.shape[2] == expected
        broken = np.argwhere(~holds)
        assert not len(broken), f"{what} does not follow the renaming; first at game, time, order {broken[0]}"


@pytest.mark.parametrize("name", SYMMETRIC)
def test_at_random_every_seat_earns_the_same(name):
    returns = random_returns(name)
    for seat in range(1, returns.shape[1]):
        difference = returns[:, 0] - returns[:, seat]
        error = difference.std() / np.sqrt(len(difference))
        assert abs(difference.mean()) <= 4 * error, (
            f"seat {seat} earns {-difference.mean():.3f} more than seat 0"
        )


@pytest.mark.parametrize("name", REFERENCE)
def test_random_play_earns_what_the_specification_says(name):
    mean = random_returns(name).mean(axis=1)
    error = mean.std() / np.sqrt(len(mean))
    within = 4 * error if name != "snowdrift" else 4 * np.hypot(error, 0.1)  # 11.0 is given within 0.1
    assert abs(mean.mean() - REFERENCE[name]) <= max(within, 0.02)


@pytest.mark.parametrize("name", [name for name in SYMMETRIC if variant(name).random_return is not None])
def test_random_play_earns_what_the_game_declares(name):
    mean = random_returns(name).mean(axis=1)
    error = mean.std() / np.sqrt(len(mean))
    assert_allclose(mean.mean(), variant(name).random_return, rtol=0, atol=max(4 * error, 1e-6))


@pytest.mark.parametrize("name", HAS_CEILING)
def test_no_episode_earns_more_than_the_ceiling(name):
    best = random_returns(name).mean(axis=1).max()
    assert best <= variant(name).ceiling + 1e-5
