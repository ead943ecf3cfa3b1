"""Sums over the devices that share one run's environments.

Each device plays its own part of the environments with the same weights. What must agree on all of
them (gradients, counts, statistics) goes through `total`; outside a sharded program it is the identity,
so a learner can be called and tested by itself.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import xla_bridge  # the public API does not tell whether JAX has started

from coplay.errors import BadInput
from coplay.files import cache_folder
from coplay.types import Key, PyTree

AXIS = "device"


def total(tree: PyTree) -> PyTree:
    """Sum over devices. Leaves of a type go together, since every meeting costs time."""
    if not _is_sharded():
        return tree
    leaves, structure = jax.tree.flatten(tree)
    for dtype in sorted({leaf.dtype for leaf in leaves}, key=str):
        members = [index for index, leaf in enumerate(leaves) if leaf.dtype == dtype]
        added = _added_together([leaves[index] for index in members])
        for index, leaf in zip(members, added, strict=True):
            leaves[index] = leaf
    return jax.tree.unflatten(structure, leaves)


def _added_together(leaves: list[jax.Array]) -> list[jax.Array]:
    """Leaves of one type, summed over devices as one vector."""
    vector = jax.lax.psum(jnp.concatenate([leaf.ravel() for leaf in leaves]), AXIS)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = jnp.split(vector, ends[:-1])
    return [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]


def _is_sharded() -> bool:
    """Whether the program that is being traced runs on several devices."""
    try:
        jax.lax.axis_index(AXIS)
    except NameError:
        return False
    return True


def own_part(key: Key) -> Key:
    """A key for this device's part of the environments."""
    return jax.random.fold_in(key, jax.lax.axis_index(AXIS) if _is_sharded() else 0)


class Masked(NamedTuple):
    """What a mean is taken of."""

    x: jax.Array
    mask: jax.Array
    axes: tuple[int, ...]


def masked_mean(x: jax.Array, mask: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Mean over `axes` and devices where `mask` holds; 0 where it never does."""
    return masked_means({"": Masked(x, mask, axes)})[""]


def masked_means(asked: Mapping[str, Masked]) -> dict[str, jax.Array]:
    """The same of several by name, for which devices meet once."""
    sums = {
        name: (
            jnp.sum(jnp.where(one.mask, one.x, 0.0), one.axes),
            jnp.sum(one.mask, one.axes, dtype=jnp.float32),
        )
        for name, one in asked.items()
    }
    return {name: added / jnp.maximum(count, 1.0) for name, (added, count) in total(sums).items()}


def forget_programs() -> None:
    """Let go of what has been compiled. A system maps only so many pieces of memory for a process, and
    programs of a dozen companies one after the other are more than that."""
    jax.clear_caches()


def prepare(devices: int) -> None:
    """Make that many devices out of this machine's cores; must come before the first computation."""
    if not xla_bridge.backends_are_initialized():
        jax.config.update("jax_num_cpu_devices", max(devices, jax.config.values["jax_num_cpu_devices"]))
    if len(jax.devices()) < devices:
        raise BadInput(
            f"devices={devices}, but JAX already runs with {len(jax.devices())} in this process; set "
            f"devices={len(jax.devices())}, or call jax.config.update('jax_num_cpu_devices', {devices}) first"
        )


def in_parts(function: Callable[[PyTree, Key], PyTree]) -> Callable[[PyTree, Key], PyTree]:
    """From `function(shared, key)` to one that runs it for several keys, on a device each if there are
    enough; results have an axis for the keys in front."""
    together = jax.pmap(function, in_axes=(None, 0))
    in_turn = jax.jit(lambda shared, keys: jax.lax.map(lambda key: function(shared, key), keys))

    def run(shared: PyTree, keys: Key) -> PyTree:
        return (together if len(jax.devices()) >= len(keys) else in_turn)(shared, keys)

    return run


def keep_compiled_programs() -> None:
    """Programs compiled once are read from disk the next time."""
    jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
