"""A batch of states of any kind as one array of 32-bit words, so that a tree moves each with one copy."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from coplay.types import PyTree


class Leaf(NamedTuple):
    shape: tuple[int, ...]  # without the batch
    dtype: np.dtype

    @property
    def words(self) -> int:
        return math.prod(self.shape)


class Packing(NamedTuple):
    """How trees of one structure are packed: bit for bit, a word for each number."""

    structure: jax.tree_util.PyTreeDef
    leaves: tuple[Leaf, ...]

    @property
    def width(self) -> int:
        return sum(leaf.words for leaf in self.leaves)

    def pack(self, tree: PyTree) -> Int[Array, "batch word"]:
        leaves = jax.tree.leaves(tree)
        parts = [_as_words(x).reshape(x.shape[0], -1) for x in leaves]
        return jnp.concatenate(parts, axis=1)

    def unpack(self, words: Int[Array, "batch word"]) -> PyTree:
        leaves, start = [], 0
        for leaf in self.leaves:
            part = words[:, start : start + leaf.words].reshape(-1, *leaf.shape)
            leaves.append(_from_words(part, leaf.dtype))
            start += leaf.words
        return jax.tree.unflatten(self.structure, leaves)


def packing_of(tree: PyTree) -> Packing:
    """For trees like this one, whose leaves begin with a batch axis."""
    leaves, structure = jax.tree.flatten(tree)
    for leaf in leaves:
        if leaf.dtype not in (jnp.float32, jnp.int32, jnp.uint32, jnp.bool_):
            raise ValueError(f"a state to be searched holds {leaf.dtype}; use float32, int32, uint32 or bool")
    return Packing(structure, tuple(Leaf(leaf.shape[1:], np.dtype(leaf.dtype)) for leaf in leaves))


def _as_words(x: Array) -> Array:
    return x.astype(jnp.int32) if x.dtype == jnp.bool_ else jax.lax.bitcast_convert_type(x, jnp.int32)


def _from_words(words: Array, dtype: np.dtype) -> Array:
    return words != 0 if dtype == jnp.bool_ else jax.lax.bitcast_convert_type(words, dtype)
