"""Searches of all seats, games and trees as one batch: whose is whose, and what is made of all of them.

The batch is [seat, env, tree] as one axis, so that each seat's searches lie together and can be given its own
weights and keys.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coplay.planning.search import Searched
from coplay.types import pytree


@pytree
class Plans:
    """What was found for every seat of every game, over all trees."""

    visits: Float[Array, "env seat action"]  # summed
    q: Float[Array, "env seat action"]  # mean over trees


@dataclasses.dataclass(frozen=True)
class Table:
    seats: np.ndarray  # who plans
    others: np.ndarray  # [seat, other]: who sits after each of them
    num_trees: int

    def spread(self, x: Array) -> Array:
        """[env, ...] as [search, ...]: every seat and tree of a game starts from the same."""
        shape = (len(self.seats), x.shape[0], self.num_trees, *x.shape[1:])
        return jnp.broadcast_to(x[None, :, None], shape).reshape(-1, *x.shape[1:])

    def spread_seats(self, x: Array) -> Array:
        """[env, seat, ...] as [search, ...]."""
        by_seat = jnp.moveaxis(x, 1, 0)[:, :, None]
        shape = (*by_seat.shape[:2], self.num_trees, *by_seat.shape[3:])
        return jnp.broadcast_to(by_seat, shape).reshape(-1, *by_seat.shape[3:])

    def gathered(self, x: Array) -> Array:
        """[search, ...] as [env, seat, tree, ...]."""
        return jnp.moveaxis(x.reshape(len(self.seats), -1, self.num_trees, *x.shape[1:]), 0, 1)

    def by_seat(self, x: Array) -> Array:
        """[search, ...] as [seat, row, ...], for weights of each seat."""
        return x.reshape(len(self.seats), -1, *x.shape[1:])

    def own(self, x: Array) -> Array:
        """Each search's own entry of [search, agent, ...]."""
        rows = self.by_seat(x)
        return jnp.concatenate([rows[place, :, seat] for place, seat in enumerate(self.seats)])

    def of_others(self, x: Array) -> Array:
        """The co-players' entries of [search, agent, ...], in the order they sit after the planner."""
        rows = self.by_seat(x)
        return jnp.concatenate([rows[place][:, order] for place, order in enumerate(self.others)])

    def everyone(self, others: Int[Array, "search other"]) -> Int[Array, "search agent"]:
        """The co-players' moves in their own places; the planner's place is empty for now."""
        count = others.shape[1] + 1
        rows = []
        for place, order in enumerate(self.others):
            moves = self.by_seat(others)[place]
            rows.append(jnp.zeros((moves.shape[0], count), jnp.int32).at[:, order].set(moves))
        return jnp.concatenate(rows)

    def with_own(
        self, moves: Int[Array, "search agent"], action: Int[Array, " search"]
    ) -> Int[Array, "search agent"]:
        """With the planner's own move in its place."""
        planner = np.repeat(self.seats, action.shape[0] // len(self.seats))
        is_own = planner[:, None] == np.arange(moves.shape[1])[None]
        return jnp.where(is_own, action[:, None], moves)

    def plans(self, found: Searched) -> Plans:
        visits, q = self.gathered(found.visits), self.gathered(found.q)
        return Plans(visits=jnp.sum(visits, axis=2), q=jnp.mean(q, axis=2))


# --- what to do ----------------------------------------------------------------------------------


def most_visited(plans: Plans, trees: int) -> Int[Array, "env seat"]:
    """The greatest Q where several were tried most."""
    return _greatest_q(plans, jnp.max(plans.visits, axis=-1, keepdims=True))


def best_visited(plans: Plans, trees: int) -> Int[Array, "env seat"]:
    """The greatest Q among actions that were tried as often as there are trees, if any was."""
    return _greatest_q(plans, jnp.minimum(jnp.max(plans.visits, axis=-1, keepdims=True), trees))


def _greatest_q(plans: Plans, enough: Float[Array, "env seat one"]) -> Int[Array, "env seat"]:
    q = jnp.where(plans.visits >= enough, plans.q, -jnp.inf)
    return jnp.argmax(q, axis=-1).astype(jnp.int32)


CHOICES = {"visits": most_visited, "visited_q": best_visited}
