"""What every game of JaxMARL needs to keep our contract: rows for dictionaries, fixed types, no reset.

JaxMARL is an extra, imported when a game of it is made. Its `step` starts a finished game anew, so
`step_env` is called, which does not; when a game ends is for the adapters to say. Observations come from
the state alone, so that `view` and `step` cannot disagree.
"""

import contextlib
import functools
import importlib
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.errors import BadInput
from coplay.types import EnvState, Key, PyTree

PACKAGE = "jaxmarl"


class Adapted(NamedTuple):
    """One of its games in our terms: a row for each agent, in the order of its own list of agents."""

    reset: Callable[[Key], EnvState]
    step: Callable[[EnvState, Array, Key], tuple[EnvState, Array]]  # state, action, key -> state, reward
    observe: Callable[[EnvState], Array]  # [agent, feature], shorter rows padded with zeros
    num_actions: int  # the most that any agent has
    has_action: np.ndarray  # [agent, action]


def load(module: str) -> ModuleType:
    """A part of JaxMARL, without what it prints on being imported."""
    try:
        with _nothing_printed():
            return importlib.import_module(f"{PACKAGE}.environments.{module}")
    except ImportError as error:
        raise BadInput(
            f"this is a game of JaxMARL, which cannot be imported ({error}): pip install 'coplay[games]'"
        ) from error


@contextlib.contextmanager
def _nothing_printed() -> Iterator[None]:
    """JaxMARL puts the process's own streams in the place of those in use: all are set aside."""
    streams = {name: getattr(sys, name) for name in ("stdout", "stderr", "__stdout__", "__stderr__")}
    for name in ("stdout", "__stdout__"):
        setattr(sys, name, io.StringIO())
    try:
        yield
    finally:
        for name, stream in streams.items():
            setattr(sys, name, stream)


def adapt(game: Any) -> Adapted:
    agents: list[str] = game.agents

    def step(state: EnvState, action: Int[Array, " agent"], key: Key):
        choices = {agent: action[seat] for seat, agent in enumerate(agents)}
        _, state, reward, _, _ = game.step_env(key, state, choices)
        return steady(state), jnp.stack([jnp.float32(reward[agent]) for agent in agents])

    counts = np.array([game.action_spaces[agent].n for agent in agents])
    return Adapted(
        reset=as_written(lambda key: steady(game.reset(key)[1])),
        step=as_written(step),
        observe=as_written(lambda state: padded(game.get_obs(state), agents)),
        num_actions=int(counts.max()),
        has_action=np.arange(counts.max())[None, :] < counts[:, None],
    )


def as_written(function: Callable) -> Callable:
    """Code of others as its authors run it: they count on silent broadcasting, which our tests forbid."""

    @functools.wraps(function)
    def call(*arguments):
        with jax.numpy_rank_promotion("allow"):
            return function(*arguments)

    return call


def steady(tree: PyTree) -> PyTree:
    """The same numbers with types that stay. A type that is weak at the start and not later on has every
    program that steps the game compiled twice."""
    return jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), tree)


def padded(rows: Mapping[str, Array], agents: Sequence[str]) -> Float[Array, "agent feature"]:
    longest = max(rows[agent].shape[0] for agent in agents)
    return jnp.stack([jnp.pad(rows[agent], (0, longest - rows[agent].shape[0])) for agent in agents])


def carried_out(
    action: Int[Array, " agent"], legal: Bool[Array, "agent action"], neutral: int
) -> Int[Array, " agent"]:
    """The action where it is legal, elsewhere the neutral one."""
    choices = jnp.arange(legal.shape[1])
    chosen = jnp.any(legal & (action[:, None] == choices[None, :]), axis=1)
    return jnp.where(chosen, action, neutral).astype(jnp.int32)
