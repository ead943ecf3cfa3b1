"""What a run will be, said before anything is compiled: modules, loss terms, parameters, memory, time.

A run that would not fit in memory is refused here, with the field to lower: by a guess before it is compiled,
and by the program's own account after.
"""

import dataclasses
import os
import sys
from typing import Any

import jax

from coplay.algorithms import ALGORITHMS
from coplay.algorithms.hyper_pretrained import STEPS
from coplay.algorithms.own import is_own
from coplay.algorithms.ppo import loss_terms
from coplay.errors import BadInput
from coplay.experiment import Built, Experiment, algorithms_in_play, job, resolved_devices
from coplay.training.job import Stretch
from coplay.training.rollout import collect, start_playing
from coplay.types import begun

COPIES = 4.0  # a round of play, its columns, its shuffled columns, and room for the rest; a guess
MOST_SHARE = 0.6  # of free memory, that a compiled program may need
FLOPS_PER_CORE = 4e10  # float32 operations a second that training reaches on an ordinary core
GAME_STEPS_PER_SECOND = 3e5  # joint steps a second of play beside the networks


@dataclasses.dataclass(frozen=True)
class Plan:
    game: str
    seats: list[str]  # who sits where, first line-up
    modules: list[dict[str, Any]]  # member, parameters, weights, loss terms
    parameters: int  # trained numbers, one seed
    updates: int
    steps: int
    seeds: int
    devices: int
    memory_bytes: int
    seconds: float


def plan(built: Built, starts: bool = True) -> Plan:
    """What a run will be; if it starts, what it begins with has to be there."""
    experiment, stretch = built.experiment, built.stretches[0]
    params = stretch.algorithm.init(jax.random.key(0))
    params = begun(stretch.algorithm, params) if starts else params
    modules = [_module(built, name, params[name]) for name in params]
    trained = _trained(modules)
    return Plan(
        game=experiment.game,
        seats=list(stretch.lineup),
        modules=modules,
        parameters=trained,
        updates=experiment.rollout.num_updates,
        steps=experiment.rollout.num_updates * experiment.rollout.steps_per_update,
        seeds=experiment.seeds,
        devices=resolved_devices(experiment),
        memory_bytes=_memory(built, stretch, params),
        seconds=_seconds(built, trained),
    )


def label_and_weights(built: Built) -> tuple[str, int]:
    """What the first member needs at hand when it plays, and how many numbers of one seed are trained."""
    params = built.stretches[0].algorithm.init(jax.random.key(0))
    modules = [_module(built, name, params[name]) for name in params]
    return modules[0]["needs"], _trained(modules)


def _trained(modules: list[dict[str, Any]]) -> int:
    return sum(module["weights"] for module in modules if module["learns"])


def refuse_if_too_large(planned: Plan) -> None:
    free = free_memory()
    if planned.memory_bytes > free:
        raise BadInput(
            f"this run needs about {planned.memory_bytes / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are "
            f"free; lower num_envs (or num_steps)"
        )


def refuse_if_program_too_large(experiment: Experiment, need: int | None, free: int) -> None:
    """`need` is the compiled program's own; where the compiler does not say, nothing is refused."""
    if need is not None and need > MOST_SHARE * free:
        raise BadInput(
            f"the compiled program needs {in_bytes(need)}, more than {MOST_SHARE:.0%} of the "
            f"{in_bytes(free)} that are free; {_what_to_change(experiment)}"
        )


def _what_to_change(experiment: Experiment) -> str:
    """The settings that most of the memory goes by: weights made for every row outweigh the rows."""
    if "hyper_mappo" in algorithms_in_play(experiment):
        return "generate less (generate) or lower chunk_rows"
    return "lower num_envs, num_steps or chunk_rows"


def in_bytes(count: int) -> str:
    """As people read it: MiB below one GiB."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _module(built: Built, name: str, params) -> dict[str, Any]:
    config = getattr(built.experiment, name) if name in ALGORITHMS else None
    networks = _networks(params)
    return {
        "member": name,
        "learns": name in algorithms_in_play(built.experiment),
        "parameters": config.parameters if config else "your own" if is_own(name) else "frozen",
        "needs": next(member.build(member.seats).needs for member in built.members if member.name == name),
        "network": f"{config.network} {'x'.join(map(str, config.hidden))}" if config else None,
        "networks": networks,
        "weights": sum(networks.values()),
        "loss_terms": loss_terms(config) if config else {},
        "begun_with": _begun_with(config, params),
    }


def _begun_with(config, params) -> str | None:
    """Which run's steps were learned from before these, in words."""
    run = getattr(config, "pretrain", None)
    steps = int(params.own["seat"][STEPS].max()) if run else 0
    return f"{steps:,} steps of {run}" if steps else None


def _networks(params) -> dict[str, int]:
    """How many weights each network has, by the names on the way to it."""
    sizes: dict[str, int] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        names = [key.key for key in path if isinstance(key, jax.tree_util.DictKey)]
        if leaf.dtype == "float32" and "scale" not in names:
            name = "/".join(name for name in names if name not in ("group", "seat"))
            sizes[name] = sizes.get(name, 0) + leaf.size
    return sizes


def _memory(built: Built, stretch: Stretch, params) -> int:
    """Bytes of one round of play, times what learning makes of it; seeds take turns."""
    work = job(built)

    def one_round(key):
        actor = start_playing(built.env, stretch.algorithm, key, work.num_envs)
        return collect(
            built.env, stretch.algorithm, params, actor, key, work.num_steps, work.sequence_length
        )[1]

    shapes = jax.eval_shape(one_round, jax.random.key(0))
    held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    return int(COPIES * held)


def _seconds(built: Built, weights: int) -> float:
    """A rough guess; the progress line knows better after a few chunks."""
    experiment = built.experiment
    epochs = max(
        [getattr(experiment, m.name).epochs for m in built.members if m.name in ALGORITHMS], default=0
    )
    steps = experiment.rollout.total_steps * experiment.seeds
    flops = 2 * weights * (1 + 3 * epochs)
    per_step = flops / (FLOPS_PER_CORE * resolved_devices(experiment)) + 1 / GAME_STEPS_PER_SECOND
    return steps * per_step + 20


def free_memory() -> int:
    """Bytes that can still be used, as the system says; no limit where it does not say."""
    try:
        if os.path.exists("/proc/meminfo"):
            with open("/proc/meminfo", encoding="ascii") as lines:
                return next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, AttributeError, ValueError):
        return sys.maxsize
