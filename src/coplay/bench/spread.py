"""Training on MPE's simple_spread beside JaxMARL's own scripts, at their settings and in the same run.

The scripts are no part of the package that pip installs: COPLAY_JAXMARL says where a checkout is, the folder
that holds `baselines`. They want hydra, omegaconf, wandb and distrax installed beside it.
"""

import importlib.util
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from coplay import experiment as experiments
from coplay.bench.item import Item, seconds_of
from coplay.bench.updates import Updates, updates_of

CHECKOUT = "COPLAY_JAXMARL"  # environment variable
REPEATS = 5

# What both scripts have in common, as their YAML files say: 16 games x 128 steps, 4 epochs x 4 minibatches.
THEIRS = {
    "NUM_ENVS": 16, "NUM_STEPS": 128, "UPDATE_EPOCHS": 4, "NUM_MINIBATCHES": 4, "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "ENT_COEF": 0.01, "VF_COEF": 0.5, "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh", "ENV_NAME": "MPE_simple_spread_v3", "ENV_KWARGS": {}, "ANNEAL_LR": True,
}  # fmt: skip
OURS = {
    "rollout.num_envs": 16, "rollout.num_steps": 128, "epochs": 4, "minibatches": 4, "discount": 0.99,
    "trace": 0.95, "clip": 0.2, "entropy_weight": 0.01, "value_weight": 0.5, "max_grad_norm": 0.5,
    "parameters": "shared", "evaluation.every": 0, "rollout.total_steps": 10_000_000,
}  # fmt: skip


def simple_spread_ippo() -> Item:
    """Feed-forward, 64 x 64 tanh, one set of weights for all players, each with a critic of its own view."""
    return _beside(
        "simple_spread_ippo",
        "IPPO/ippo_ff_mpe.py",
        THEIRS | {"LR": 2.5e-4},
        OURS | {"algorithm": "ppo", "hidden": (64, 64), "activation": "tanh", "learning_rate": 2.5e-4},
        updates=20,
    )


def simple_spread_mappo() -> Item:
    """Recurrent, GRU of 128 and two layers of 128 about it, trained through whole rounds; joint critic.

    Theirs has one of the layers before its memory and one after, ours both before: the same products.
    """
    return _beside(
        "simple_spread_mappo",
        "MAPPO/mappo_rnn_mpe.py",
        THEIRS | {"LR": 2e-3, "FC_DIM_SIZE": 128, "GRU_HIDDEN_DIM": 128, "SCALE_CLIP_EPS": False},
        OURS
        | {"algorithm": "mappo", "network": "gru", "hidden": (128, 128), "activation": "relu"}
        | {"learning_rate": 2e-3, "rollout.sequence_length": 128},
        updates=4,
    )


def _beside(name: str, script: str, theirs: dict, ours: dict, updates: int) -> Item:
    counts = sorted({1, _devices(ours)})
    works = [_ours(ours, count, updates) for count in counts]
    steps = works[0].steps
    try:
        calls = [_theirs(script, theirs | {"TOTAL_TIMESTEPS": steps})]
        against = f"JaxMARL's {script}"
    except FileNotFoundError:
        calls, against = [], f"set {CHECKOUT} to a checkout of JaxMARL, the folder that holds baselines"
    except ImportError as error:
        calls, against = [], f"JaxMARL's {script} cannot be imported: {error}"
    seconds = seconds_of(*[work.run for work in works], *calls, repeats=REPEATS)
    rates = [steps / second for second in seconds]
    figure = max(rates[: len(counts)])
    details = {f"devices_{count}": rate for count, rate in zip(counts, rates, strict=False)}
    if not calls:
        return Item(name, figure, "joint steps/s", against, None, details)
    details |= {"jaxmarl": rates[-1], "ratio_one_device": rates[0] / rates[-1]}
    return Item(name, figure, "joint steps/s", against, figure / rates[-1], details)


def _experiment(settings: dict[str, Any], devices: int) -> experiments.Experiment:
    return experiments.read_experiment("mappo_simple_spread", settings | {"devices": devices})


def _devices(settings: dict[str, Any]) -> int:
    return experiments.resolved_devices(_experiment(settings, 0))


def _ours(settings: dict[str, Any], devices: int, updates: int) -> Updates:
    return updates_of(experiments.build(_experiment(settings, devices)), updates)


def _theirs(script: str, settings: dict[str, Any]) -> Callable[[], Any]:
    """A whole training of so many steps, compiled once; what it would log goes nowhere."""
    module: Any = _import(script)
    module.wandb = types.SimpleNamespace(log=lambda figures: None)
    train = jax.jit(module.make_train(dict(settings)))
    return lambda: train(jax.random.PRNGKey(0))


def _import(script: str) -> types.ModuleType:
    path = Path(os.environ.get(CHECKOUT, "")) / "baselines" / script
    if not os.environ.get(CHECKOUT) or not path.is_file():
        raise FileNotFoundError(path)
    spec = importlib.util.spec_from_file_location(f"jaxmarl_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
