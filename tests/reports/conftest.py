"""An episode small enough to check by eye: two hunters share a stag, a third takes a hare."""

import numpy as np
import pytest

from coplay.reports.episodes import Episode

ACTIONS = ("up", "down", "left", "right", "stay", "hunt stag", "hunt hare")
GONE = (-1, -1)


@pytest.fixture(scope="session")
def three_hunters():
    return _three_hunters


def _three_hunters(members=("ppo", "ppo", "nearest_hare")) -> Episode:
    """2x3 board with one wall. Move 0: 1 and 2 step onto the stag. Move 1: they hunt it, 3 its hare."""
    return Episode(
        game="4h1s_tiny",
        members=members,
        action_names=ACTIONS,
        grid=(2, 3),
        cells={
            "wall": np.array([[(1, 1)]] * 3),
            "stag": np.array([[(0, 1)], [(0, 1)], [GONE]]),
            "hare": np.array([[(1, 2)], [(1, 2)], [GONE]]),
        },
        players=np.array([[(0, 0), (0, 2), (1, 2)], [(0, 1), (0, 1), (1, 2)], [GONE, GONE, GONE]]),
        action=np.array([[3, 2, 4], [5, 5, 6]]),
        reward=np.array([[0.0, 0.0, 0.0], [5.0, 5.0, 1.0]], np.float32),
        policy=np.full((2, 3, 7), 1 / 7, np.float32),
        active=np.array([[True] * 3, [True] * 3, [False] * 3]),
        meta={"step": 1000},
    )
