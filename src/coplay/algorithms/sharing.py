"""Whose weights: one set per agent, one for all, or one for all that is told who it is.

A learner is written for a group of seats that share weights: data [..., seat, ...], weights without a
seat axis. `per_agent` makes each seat a group of one and maps over groups, so that no agent can be
trained before, after or instead of another; `shared` makes one group of all.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from coplay.types import Key, Params, PyTree, Seated, stacked

PARAMETERS = ("per_agent", "shared", "shared_with_id")


class Sharing(NamedTuple):
    pack: Callable[[PyTree, PyTree], Seated]  # per-group tree, per-seat tree -> Seated
    weights: Callable[[Seated], PyTree]  # the per-group tree
    groups: Callable[[PyTree, int], PyTree]  # data with a seat axis -> one row per group first
    seats: Callable[[PyTree, int], PyTree]  # and back
    alike: Callable[[jax.Array, int], jax.Array]  # data without a seat axis, the same for every group
    map: Callable[[Callable], Callable]
    keys: Callable[[Key, jax.Array], Key]  # a key and the seats' identities -> a key per group
    init: Callable[[Callable[[Key], Params], Key, int], PyTree]


def sharing(parameters: str) -> Sharing:
    return PER_AGENT if parameters == "per_agent" else SHARED


def _to_rows(tree: PyTree, seat_axis: int) -> PyTree:
    return jax.tree.map(lambda x: jnp.expand_dims(jnp.moveaxis(x, seat_axis, 0), seat_axis + 1), tree)


def _from_rows(tree: PyTree, seat_axis: int) -> PyTree:
    return jax.tree.map(lambda x: jnp.moveaxis(jnp.squeeze(x, seat_axis + 1), 0, seat_axis), tree)


def _init_each(init: Callable[[Key], Params], key: Key, num_seats: int) -> PyTree:
    """One after the other, outside any compiled program (see nets.mlp.orthogonal), then stacked."""
    each = [init(jax.random.fold_in(key, seat)) for seat in range(num_seats)]
    return stacked(each)


PER_AGENT = Sharing(
    pack=lambda tree, per_seat: Seated(own={"group": tree, "seat": per_seat}, common={}),
    weights=lambda seated: seated.own["group"],
    groups=_to_rows,
    seats=_from_rows,
    alike=lambda x, num_seats: jnp.broadcast_to(x[None], (num_seats, *x.shape)),
    map=jax.vmap,
    keys=lambda key, identity: jax.vmap(jax.random.fold_in, (None, 0))(key, identity),
    init=_init_each,
)

SHARED = Sharing(
    pack=lambda tree, per_seat: Seated(own={"seat": per_seat}, common={"group": tree}),
    weights=lambda seated: seated.common["group"],
    groups=lambda tree, seat_axis: tree,
    seats=lambda tree, seat_axis: tree,
    alike=lambda x, num_seats: x,
    map=lambda function: function,
    keys=lambda key, identity: key,
    init=lambda init, key, num_seats: init(key),
)
