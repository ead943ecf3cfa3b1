"""Does the game treat all names alike? Step, then rename, or rename, then step: nothing may be different.

Players who are alike (`Environment.alike` says who is) are renamed among themselves, after steps of random
play. Fractions may differ by rounding, for a compiler may compute the same thing in two ways.
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.audit.captured import quick
from coplay.audit.finding import Outcome, exact, not_run
from coplay.audit.random_play import Moments
from coplay.audit.subject import Budget, Subject
from coplay.types import Environment, Key, TimeStep

MOMENTS, MOST_ORDERS = 4096, 24
ROUNDING, OTHERS_ROUNDING = 1e-6, 1e-4  # of fractions; games of others add up by seat
SUMS_ROUNDING = 1e-2  # of sums over a row
NOBODY_ALIKE = "no two players are alike"


def renaming(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Step, then rename; rename, then step: the same state, rewards, ends and masks."""
    env, orders = subject.env, orders_of(subject.env)
    if len(orders) == 0:
        return not_run("step after renaming against renaming after a step", NOBODY_ALIKE)
    seen = subject.moments(MOMENTS)
    # Moments are an argument: as constants, the compiler would work much of it out by itself, slowly.
    same = quick(jax.vmap(functools.partial(_commutes, env), (None, 0)))(seen, orders)
    return _what_differs(env, "step after renaming against renaming after a step", same, orders)


def views(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """What seat i sees is what the first seat would see if it sat there."""
    env, orders = subject.env, orders_of(subject.env)
    if len(orders) == 0:
        return not_run("views after renaming against renamed views", NOBODY_ALIKE)
    seen = subject.moments(MOMENTS)

    def compare(seen: Moments, order: Int[Array, " agent"]) -> dict[str, Bool[Array, "moment agent"]]:
        observation, legal = jax.vmap(env.view)(seen.next_state)
        renamed = jax.vmap(lambda state: env.view(env.rename(state, order)))(seen.next_state)
        return {
            "observation": _rows_alike(env, order, renamed[0], observation[:, order]),
            "legal": jnp.all(renamed[1] == legal[:, order], axis=-1),
        }

    same = quick(jax.vmap(compare, (None, 0)))(seen, orders)
    return _what_differs(env, "views after renaming against renamed views", same, orders)


def orders_of(env: Environment) -> Int[np.ndarray, "order agent"]:
    """Renamings among players who are alike, cyclic ones first; all of them, or a spread of two dozen."""
    agents, alike = env.num_agents, env.alike or (0,) * env.num_agents
    turns = [tuple((i + shift) % agents for i in range(agents)) for shift in range(1, agents)]
    drawn = itertools.permutations(range(agents)) if agents <= 4 else _drawn_orders(alike)
    allowed = [
        order
        for order in dict.fromkeys([*turns, *drawn])
        if order != tuple(range(agents)) and all(alike[i] == alike[j] for i, j in enumerate(order))
    ]
    return np.array(allowed[: MOST_ORDERS - 1], np.int32).reshape(-1, agents)


def _drawn_orders(alike: tuple[int, ...]) -> list[tuple[int, ...]]:
    generator, kinds = np.random.default_rng(0), np.array(alike)
    found = []
    for _ in range(MOST_ORDERS):
        order = np.arange(len(kinds))
        for kind in np.unique(kinds):
            order[kinds == kind] = generator.permutation(order[kinds == kind])
        found.append(tuple(int(i) for i in order))
    return found


def _commutes(env: Environment, seen: Moments, order: Int[Array, " agent"]) -> dict[str, Any]:
    def renamed_first(state, action, key):
        return env.step(env.rename(state, order), action[order], key)

    state, after = jax.vmap(renamed_first)(seen.state, seen.action, seen.key)
    wanted = jax.vmap(lambda s: env.rename(s, order))(seen.next_state)
    rows: TimeStep = seen.after
    return {
        "state": trees_alike(env, state, wanted)[:, None],
        "reward": _close(env, after.reward, rows.reward[:, order]),
        "active": after.active == rows.active[:, order],
        "terminated": after.terminated == rows.terminated[:, order],
        "truncated": (after.truncated == rows.truncated)[:, None],
        "legal": jnp.all(after.legal == rows.legal[:, order], axis=-1),
        "observation": _rows_alike(env, order, after.observation, rows.observation[:, order]),
    }


def _rows_alike(
    env: Environment, order: Int[Array, " agent"], left: Float[Array, "*rows feature"], right
) -> Bool[Array, "*rows"]:
    """As they are if only the circle is turned; else up to the order in which fellows are listed."""
    is_turn = jnp.all((order - order[0]) % len(order) == jnp.arange(len(order))) & (not env.package)
    in_order = jnp.all(_close(env, left, right), axis=-1)
    sums = [jnp.sum(left**power, axis=-1) - jnp.sum(right**power, axis=-1) for power in (1, 2, 3)]
    in_any_order = jnp.max(jnp.abs(jnp.stack(sums)), axis=0) <= SUMS_ROUNDING
    return jnp.where(is_turn, in_order, in_any_order)


def trees_alike(env: Environment, left: Any, right: Any) -> Bool[Array, " moment"]:
    def one(a: Array, b: Array) -> Bool[Array, " moment"]:
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        return jnp.all(_close(env, a, b).reshape(len(a), -1), axis=-1)

    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return jnp.all(jnp.stack([one(a, b) for a, b in pairs]), axis=0)


def _close(env: Environment, left: Array, right: Array) -> Bool[Array, "..."]:
    """To the bit; fractions up to rounding, for a compiler may compute the same thing in two ways."""
    if not jnp.issubdtype(left.dtype, jnp.floating):
        return left == right
    return jnp.abs(left - right) <= (OTHERS_ROUNDING if env.package else ROUNDING) * (1.0 + jnp.abs(right))


def _what_differs(env: Environment, statistic: str, same: dict[str, Array], orders) -> Outcome:
    """Fields with a difference and the seats it strikes; `same` is [order, moment, agent or 1]."""
    wrong = {name: ~np.asarray(value) for name, value in same.items()}
    count = sum(int(value.sum()) for value in wrong.values())
    by_seat = np.zeros(env.num_agents)
    for value in wrong.values():
        by_seat += value.sum(axis=(0, 1)) if value.shape[-1] == env.num_agents else 0
    broken = [name for name, value in wrong.items() if value.any()]
    what = ""
    if broken:
        which, moment = np.argwhere(wrong[broken[0]].any(axis=-1))[0]
        what = (
            f"{', '.join(broken)} of {env.name} depend on who is called what: moment {moment} of random "
            f"play, seats renamed to {tuple(int(i) for i in orders[which])}. Look for an index, an argmax "
            "or a fixed order"
        )
    outcome = exact(statistic, count, sum(value.size for value in wrong.values()), what, tuple(by_seat))
    return dataclasses.replace(outcome, drawing=_differences(wrong, env.num_agents)) if broken else outcome


def _differences(wrong: dict[str, Bool[np.ndarray, "order moment row"]], seats: int) -> dict[str, Any]:
    """How many, by field and seat; what belongs to no seat has a column of its own."""
    counts = {name: value.sum(axis=(0, 1)).tolist() for name, value in wrong.items()}
    return {
        "kind": "matrix",
        "title": "differences by field and seat",
        "row_name": "field",
        "column_name": "seat",
        "rows": list(counts),
        "columns": [*(str(seat) for seat in range(seats)), "no seat's own"],
        "values": [
            [*each, None] if len(each) == seats else [*[None] * seats, *each] for each in counts.values()
        ],
    }
