"""Parts that a run of HOP+ has learned while it played, judged on recorded play. MODULES is the catalogue.

A run's part is judged as one from `pretrain` is: made by the same settings under other names, so that the two
have the same figures.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from coplay.errors import BadInput
from coplay.experiment import Experiment, algorithms_in_play, build, load_params, read_run
from coplay.offline.moa import MoaConfig
from coplay.offline.pretrain import PARTS, mean_figures, play_of
from coplay.offline.vae import VaeConfig
from coplay.offline.world import WorldConfig
from coplay.training.run_folder import RunFolder
from coplay.types import PyTree

LEARNER = "hop_plus"
READERS = "others"  # what algorithms/readers.py calls them among a seat's weights
Settings = Any  # HOPPlusConfig


class Module(NamedTuple):
    """A kind of part as a run has it."""

    lacks: Callable[[Settings], str]  # why there is none to judge; "" if there is
    config: Callable[[Settings], Any]  # its settings, as `pretrain` names them
    weights: Callable[[PyTree], PyTree]  # the learner's params [seed, ...] -> [some, member, ...]


def evaluate(
    path: Path, module: str | None, data: str | Path, best: bool = False, only: int | None = None
) -> dict[str, float]:
    """Figures of a run's `module` on play of its game: the mean over trained seeds, or `only` one's."""
    folder = RunFolder.open(path)
    experiment = read_run(folder)
    found = _module(path, experiment, module)
    seeds = _seeds(path, experiment, only)
    about, play = play_of(data, path, experiment.game, experiment.game_options)
    part = PARTS[found].make(about, MODULES[found].config(experiment.hop_plus))
    params = load_params(build(experiment), folder, best).params[LEARNER]
    weights = MODULES[found].weights(jax.tree.map(lambda x: x[seeds], params))
    return mean_figures(part, weights, play)


def _module(path: Path, experiment: Experiment, module: str | None) -> str:
    """The name of a part that the run has; anything else is refused."""
    if LEARNER not in algorithms_in_play(experiment):
        raise BadInput(f"{path} is no run of {LEARNER}, whose modules alone are judged on recorded play")
    why_not = {name: each.lacks(experiment.hop_plus) for name, each in MODULES.items()}
    here = [name for name, why in why_not.items() if not why]
    if module is None:
        known = " or ".join(here) or "nothing, for this run has none"
        raise BadInput(f"say with --module which part of {path} to judge: {known}")
    if why_not[module]:
        raise BadInput(f"{path} has no {module} to judge: {why_not[module]}")
    return module


def _seeds(path: Path, experiment: Experiment, only: int | None) -> np.ndarray:
    if only is None:
        return np.arange(experiment.seeds)
    if only >= experiment.seeds:
        raise BadInput(f"{path} has seeds 0 to {experiment.seeds - 1}, not {only}")
    return np.array([only])


# --- the world -----------------------------------------------------------------------------------


def _no_world(settings: Settings) -> str:
    return "" if settings.world == "learned" else f"it was trained with world={settings.world!r}"


def _world_config(settings: Settings) -> WorldConfig:
    return WorldConfig(hidden=settings.world_hidden, members=settings.world_members)


def _world_weights(params: PyTree) -> PyTree:
    """One world for all seats."""
    return params["world"].common["members"]


# --- models of the others ------------------------------------------------------------------------


def _no_readers(settings: Settings) -> str:
    if settings.subgoals == "none":
        return "it was trained with subgoals='none'"
    if settings.between == "none":
        return ""
    return f"its models go by earlier episodes (between={settings.between!r}), and recorded ones stand alone"


def _moa_config(settings: Settings) -> MoaConfig:
    return MoaConfig(
        hidden=settings.model_hidden,
        subgoal=settings.subgoal_size,
        divergence=settings.subgoal_weight,
        ahead=settings.ahead,
        pay=settings.pay,
        balanced=settings.model_balanced,
    )


def _moa_weights(params: PyTree) -> PyTree:
    """Every seat's model of every co-player: [seed, seat, model, ...], or without a seat axis if shared."""
    policy = params["policy"]
    own, common = policy.own.get("group"), policy.common.get("group")
    group, axes = (common, 2) if own is None else (own, 3)
    return jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[axes:]), group[READERS])


# --- the prior -----------------------------------------------------------------------------------


def _no_prior(settings: Settings) -> str:
    return "" if settings.prior else "it was trained with prior=''"


def _vae_config(settings: Settings) -> VaeConfig:
    return VaeConfig(hidden=settings.prior_hidden, subgoal=settings.subgoal_size)


def _vae_weights(params: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x[:, None], params["prior"].common["prior"])


MODULES = {
    "world": Module(_no_world, _world_config, _world_weights),
    "moa": Module(_no_readers, _moa_config, _moa_weights),
    "vae": Module(_no_prior, _vae_config, _vae_weights),
}
