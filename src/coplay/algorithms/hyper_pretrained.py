"""A generator that begins with what another run has learned, of fewer players or on a smaller board.

What reads and remembers is kept, and the trunk; heads are as on the first day, so that every context starts
with the plain actor's policy, and so are the names of players. The other run's steps go with it (`STEPS`).
"""

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coplay.algorithms.actor_critic import ActorCritic
from coplay.algorithms.additions import Additions
from coplay.errors import BadInput
from coplay.training import checkpoint
from coplay.training.run_folder import RunFolder
from coplay.types import Seated

STEPS = "begun_with"  # environment steps that went into the weights before training, kept by seat
MEMBER = ".params['hyper_mappo']"
KEPT = re.compile(r"\.context\.(encoder|attention|history)|\.trunk\[\d+\]")  # each whole or not at all
FIRST_LAYER = ".context.encoder.layers[0].weight"  # of an mlp
KERNEL, AFTER = ".context.encoder.kernels[0]", ".context.encoder.head.layers[0].weight"  # of convolutions


class Learned(NamedTuple):
    """One seed's generator, by the names of its tensors, and the steps that went into it."""

    tensors: dict[str, np.ndarray]
    steps: int


def begun_with(run: str, seed: int, model: ActorCritic, extra: Additions, params: Seated) -> Seated:
    """Fresh weights, with what fits of another run's generator."""
    learned, weights = _learned(run, seed), model.sharing.weights(params)
    generator = _kept(run, learned.tensors, weights["generator"])
    begun = extra.begin(model.sharing.pack(weights | {"generator": generator}, params.own["seat"]))
    steps = jnp.full(len(model.seats), learned.steps, jnp.int32)
    return model.sharing.pack(model.sharing.weights(begun), begun.own["seat"] | {STEPS: steps})


def _learned(run: str, seed: int) -> Learned:
    found, meta = checkpoint.arrays(RunFolder.open(run).checkpoints, MEMBER)
    place = ".common['group']['generator']"
    tensors = {name.removeprefix(place): x for name, x in found.items() if name.startswith(place)}
    if not tensors:
        raise BadInput(f"pretrain={run!r} is no run of hyper_mappo with a generator; name one that is")
    seeds = len(next(iter(tensors.values())))
    if seed >= seeds:
        raise BadInput(f"pretrain={run!r} has seeds 0 to {seeds - 1}, not pretrain_seed={seed}")
    before = found.get(f".own['seat']['{STEPS}']")  # what that run had begun with
    steps = meta["step"] + (int(before[seed].max()) if before is not None else 0)
    return Learned({name: x[seed] for name, x in tensors.items()}, steps)


def _kept(run: str, tensors: dict[str, np.ndarray], generator: Any) -> Any:
    """The generator with every part whose tensors are all there in the same shapes."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(generator)
    named = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    _require_same_rows(run, tensors, named)
    parts: dict[str, list[str]] = {}
    for name in named:
        if part := KEPT.match(name):
            parts.setdefault(part.group(), []).append(name)
    fitting = {part: names for part, names in parts.items() if _fit(names, tensors, named)}
    if not fitting:
        raise BadInput(f"pretrain={run!r}: none of {', '.join(parts)} has the shape this experiment needs")
    taken = {name: jnp.asarray(tensors[name]) for names in fitting.values() for name in names}
    return jax.tree_util.tree_unflatten(structure, list((named | taken).values()))


def _require_same_rows(run: str, tensors: dict[str, np.ndarray], named: dict[str, Any]) -> None:
    there, here = _read_by(tensors), _read_by(named)
    if there and here and there != here:
        raise BadInput(
            f"pretrain={run!r}: its generator reads {there} and this one {here}; choose the same encoder and "
            "observations of one size, or leave them out of history_reads"
        )


def _read_by(tensors: dict[str, Any]) -> str | None:
    """What an encoder with these tensors is made for; None where there is none."""
    if KERNEL in tensors:
        planes, numbers = tensors[KERNEL].shape[-2], len(tensors[AFTER])
        return f"boards of {planes} planes that come to {numbers} numbers after convolutions"
    return f"rows of {len(tensors[FIRST_LAYER])} numbers" if FIRST_LAYER in tensors else None


def _fit(names: list[str], tensors: dict[str, np.ndarray], named: dict[str, Any]) -> bool:
    return all(name in tensors and tensors[name].shape == named[name].shape for name in names)
