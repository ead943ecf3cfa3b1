"""How defects are planted: something of the product is replaced from outside for a while, then put back.

A defect says which room it is in, on which experiment it shows, and which check is to fail for it. The
product has no switch for any of them.
"""

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from coplay.types import Seated


class Planted(NamedTuple):
    number: int  # in the list of docs/mutants.md
    what: str
    room: str  # that it is in, and that must be named first
    check: str  # that must fail
    plant: Callable[[], AbstractContextManager]
    experiment: str = "ppo_4h1s_4x4"  # on which it shows
    settings: Mapping[str, Any] = {}  # changed there


@contextlib.contextmanager
def replaced(module: str, name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """`module.name` is `change(it)` meanwhile, wherever that name is looked up there; `Class.method` too."""
    home: Any = importlib.import_module(module)
    *owners, last = name.split(".")
    for owner in owners:
        home = getattr(home, owner)
    kept = home[last] if isinstance(home, dict) else getattr(home, last)
    put(home, last, change(kept))
    try:
        yield
    finally:
        put(home, last, kept)


def put(home: Any, name: str, value: Any) -> None:
    if isinstance(home, dict):
        home[name] = value
    else:
        setattr(home, name, value)


def replacing(module: str, name: str, change: Callable[[Any], Any]) -> Callable[[], AbstractContextManager]:
    return lambda: replaced(module, name, change)


def both(*plants: Callable[[], AbstractContextManager]) -> Callable[[], AbstractContextManager]:
    """Several places, as where a name is bound more than once."""

    @contextlib.contextmanager
    def plant() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for one in plants:
                stack.enter_context(one())
            yield

    return plant


def map_seated(change: Callable, *trees: Any) -> Any:
    return jax.tree.map(change, *trees, is_leaf=lambda x: isinstance(x, Seated))


def keeping(seat: int, old: Any, new: Any, share: float = 1.0) -> Any:
    """`new`, but that seat's own rows are `share` of the way back to `old`."""

    def one(before: Seated, after: Seated) -> Seated:
        def rows(a: jax.Array, b: jax.Array) -> jax.Array:
            kept = b[seat] + share * (a[seat] - b[seat]) if jnp.issubdtype(b.dtype, jnp.floating) else a[seat]
            return b.at[seat].set(kept.astype(b.dtype))

        return dataclasses.replace(after, own=jax.tree.map(rows, before.own, after.own))

    return map_seated(one, old, new)
