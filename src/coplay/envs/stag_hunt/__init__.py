"""Markov stag hunt: a hare feeds one hunter, a stag feeds a company. Who eats leaves, with the prey."""

import itertools

import numpy as np

from coplay.envs import grid, paths
from coplay.envs.stag_hunt.board import entities
from coplay.envs.stag_hunt.config import (
    ACTION_NAMES,
    HUNT_HARE,
    HUNT_STAG,
    NUM_ACTIONS,
    StagHuntConfig,
    StagHuntState,
)
from coplay.envs.stag_hunt.rules import legal, outcomes, rename, reset, step
from coplay.envs.stag_hunt.views import (
    draw,
    observation_size,
    observe,
    path_lengths,
    prey_caught,
    prey_hunted,
    prey_seen,
    split,
)
from coplay.envs.walls import wall_maps
from coplay.types import Environment, Goals

__all__ = [
    "HUNT_HARE",
    "HUNT_STAG",
    "NUM_ACTIONS",
    "PRESETS",
    "StagHuntConfig",
    "StagHuntState",
    "make",
    "path_lengths",
]


def make(**options) -> Environment:
    config = StagHuntConfig(**options)
    maps = wall_maps(config.size, config.wall_components, config.map_seed, config.num_maps)
    lengths = path_lengths(config)
    return Environment(
        name="stag_hunt",
        options=config,
        kind="mixed-motive",
        num_agents=config.players,
        num_actions=NUM_ACTIONS,
        observation_size=observation_size(config),
        action_names=ACTION_NAMES,
        neutral_action=grid.STAY,
        goals=Goals(
            names=("stag", "hare"),
            features=2 + paths.FEATURES,
            look=lambda row: prey_seen(config, lengths, row),
            shown=prey_caught,
            tried=prey_hunted,
            away=(2, config.size),
        ),
        horizon=config.horizon,
        reset=lambda key: reset(config, maps, key),
        step=lambda state, action, key: step(config, maps, state, action),
        rename=rename,
        split=lambda row: split(config, row),
        view=lambda state: (observe(config, maps, state), legal(config, maps, state)),
        draw=lambda state: draw(config, maps, state),
        outcomes=outcomes,
        plane_shape=(config.size, config.size, config.players + 3) if config.observation == "board" else None,
        reward_values=_reward_values(config),
        ceiling=_ceiling(config),
        alike=config.strengths or (),
        by_touch=True,
        apart=("stag", "hare"),
        mirrored=not config.wall_components,
        pays=(("stags", config.stag_reward), ("hares", config.hare_reward)),
        entities=None if config.strengths else entities(config, maps),  # strength is no thing on a board
    )


PRESETS = {
    "4h1s_4x4": {"size": 4},
    "4h1s_8x8": {"size": 8},
    "4h1s_8x8_walls": {"size": 8, "wall_components": 5},
    "4h2s_8x8": {"size": 8, "stags": 2},
}


# --- what the game declares ----------------------------------------------------------------------


def _reward_values(config: StagHuntConfig) -> tuple[float, ...]:
    """Nothing, a share of a hare, or a share of a stag for every possible company."""
    strengths = config.strengths or (1,) * config.players
    values = {0.0} | {config.hare_reward / k for k in range(1, config.players + 1)}
    for size in range(config.stag_hunters, config.players + 1):
        for company in itertools.combinations(strengths, size):
            total = sum(company)
            parts = [s / total if total else 1 / size for s in company]
            values |= {config.stag_reward * float(np.float32(part)) for part in parts}
    return tuple(sorted(values))


def _ceiling(config: StagHuntConfig) -> float:
    """The best mean return: some companies on stags, the rest on distinct hares."""
    most = min(config.stags, config.players // config.stag_hunters)
    totals = [
        stags * config.stag_reward
        + min(config.hares, config.players - stags * config.stag_hunters) * config.hare_reward
        for stags in range(most + 1)
    ]
    return max(totals) / config.players
