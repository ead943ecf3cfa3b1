"""Is the game itself fair? Starts, random play, rules and contests; nobody learns anything.

Everything here holds for any game that keeps the contract: players who are alike are treated alike, and
`Environment.alike` says who is. What renaming changes is asked in `renamed_game.py`, what boards show in
`boards.py`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coplay.audit import random_play
from coplay.audit.boards import BOARDS, in_one_place, unannounced, untouched
from coplay.audit.captured import quick
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.random_play import Moments
from coplay.audit.renamed_game import MOMENTS, NOBODY_ALIKE, orders_of, renaming, trees_alike, views
from coplay.audit.seat_effects import WIDTH, Effects, effects, effects_of, groups, sums, worst
from coplay.audit.subject import MOST_MOMENTS, Budget, Subject
from coplay.envs import contract
from coplay.types import Environment, Key, TimeStep, stream

CONTESTS = 16_384
RESETS, RESET_BLOCK, DISTINCT_OF = 65_536, 4096, 256
EPISODES, FULL_EPISODES = 65_536, 1_048_576
RESET_MARGIN, SEAT_MARGIN, FULL_SEAT_MARGIN, CONTEST_MARGIN = 0.02, 0.05, 0.01, 0.02


# --- starts ---------------------------------------------------------------------------------------


def resets(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do all who are alike start alike, and is every start another one?"""
    env = subject.env
    statistic = "means and squares of what is seen at the start, a seat less those alike"
    _, few = quick(lambda k: random_play.starts(env.reset, DISTINCT_OF, k))(stream(key, "few"))
    distinct = len(np.unique(np.asarray(few.observation).reshape(DISTINCT_OF, -1), axis=0))
    fewest = min(DISTINCT_OF, env.starts or DISTINCT_OF) / 2
    if distinct < fewest:
        says = f"{distinct} different starts in {DISTINCT_OF}: does reset use its key, and another each time?"
        return Outcome(statistic, float(distinct), fewest, "fail", says, "different starts", DISTINCT_OF)
    if not groups(env):
        return not_run(statistic, NOBODY_ALIKE)
    found = _effects_at_start(env, stream(key, "many"))
    seat, effect, p = worst(found)
    return Outcome(
        statistic,
        figure=abs(effect.value),
        threshold=RESET_MARGIN,
        next=f"seat {seat} starts otherwise than those alike: look at the order in which players are placed",
        unit="deviations",
        n=RESETS,
        p=p,
        effect=effect,
        drawing=seats_apart(
            "what is seen at the start, in the place of the view that differs most", found, RESET_MARGIN
        ),
    )


def _effects_at_start(env: Environment, key: Key) -> list[Effects]:
    """Block by block, so that not all rows are held at once."""
    alike = groups(env)
    block = quick(lambda k: [sums(_of_starts(env, k)[:, np.array(seats)]) for seats in alike])
    blocks = [jax.device_get(block(jax.random.fold_in(key, i))) for i in range(RESETS // RESET_BLOCK)]
    added = jax.tree.map(lambda *x: np.sum(np.asarray(x, np.float64), axis=0), *blocks)
    return [effects(seats, each, RESETS) for seats, each in zip(alike, added, strict=True)]


def _of_starts(env: Environment, key: Key) -> Float[Array, "game agent feature"]:
    """What a player sees and how far it is from the nearest of each kind, and their squares.

    Fellows are listed in another order for everyone, but under a fair start each place in it is alike."""
    state, timestep = random_play.starts(env.reset, RESET_BLOCK, key)
    picture = jax.vmap(env.draw)(state)
    nearest = [
        jnp.min(jnp.sum(jnp.abs(picture.players[:, :, None] - cells[:, None]), axis=-1), axis=-1)
        for cells in picture.cells.values()
        if cells.shape[1]
    ]
    rows = jnp.concatenate([timestep.observation, *[x[..., None].astype(jnp.float32) for x in nearest]], -1)
    return jnp.concatenate([rows, rows**2], axis=-1)


# --- random play ----------------------------------------------------------------------------------


def uniform_play(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does a seat earn more when everyone plays at random?"""
    env, statistic = subject.env, "return of random play, a seat less those alike"
    if not groups(env):
        return not_run(statistic, NOBODY_ALIKE)
    returns = random_play.random_returns(env, FULL_EPISODES if budget.is_full else EPISODES, key)
    found, margin = effects_of(env, returns), FULL_SEAT_MARGIN if budget.is_full else SEAT_MARGIN
    seat, effect, p = worst(found)
    deviation = returns.std()
    says = (
        f"seat {seat} earns {effect.value * deviation:+.3f} an episode beside those alike "
        f"({effect.low * deviation:+.3f} to {effect.high * deviation:+.3f}) when all play at random"
    )
    return Outcome(
        statistic,
        figure=abs(effect.value),
        threshold=margin,
        next=says,
        unit="deviations",
        n=len(returns),
        p=p,
        effect=effect,
        by_seat=tuple(float(x) for x in returns.mean(axis=0)),
        drawing=seats_apart("return of random play, a seat less those alike", found, margin),
    )


# --- rules ----------------------------------------------------------------------------------------


def rules(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are rewards, masks, departures and ends as the game declares them, and does what is legal act?"""
    env = subject.env
    walked = quick(lambda k: contract.walk(env, MOMENTS, k))(stream(key, "walk"))
    said = contract.breaches(env, contract.in_numpy(walked))
    seen = subject.moments(MOMENTS)
    said += _unpaid(env, seen) + _idle(env, seen)
    said += untouched(env, seen) + in_one_place(env, seen)
    said += _impossible(env, seen) + _told_otherwise(env, seen)
    said += unannounced(env, subject.moments(MOST_MOMENTS))
    return exact("promises of the game that random play broke", len(said), MOMENTS, "; ".join(said))


def _unpaid(env: Environment, seen: Moments) -> list[str]:
    """Where outcomes have a price, what was paid in all is their worth."""
    if not env.pays:
        return []
    counts = jax.vmap(env.outcomes)(seen.state, seen.next_state)
    worth = sum(np.asarray(counts[name], np.float64) * price for name, price in env.pays)
    paid = np.asarray(seen.after.reward, np.float64).sum(axis=1)
    wrong = np.flatnonzero(np.abs(paid - worth) > 1e-4)
    if not len(wrong):
        return []
    one = wrong[0]
    return [f"a step paid {paid[one]:g} in all for what is worth {np.broadcast_to(worth, paid.shape)[one]:g}"]


def _idle(env: Environment, seen: Moments) -> list[str]:
    """An action that is legal and not the neutral one makes some difference, to its player or the game."""
    if env.package:
        return []

    def differs(state, before: TimeStep, key, seat):
        nothing = jnp.full(env.num_agents, env.neutral_action, jnp.int32)
        still = env.step(state, nothing, key)
        tried = jax.vmap(lambda action: env.step(state, nothing.at[seat].set(action), key))(
            jnp.arange(env.num_actions)
        )
        same = [
            jnp.all((a == b[None]).reshape(env.num_actions, -1), axis=1)
            for a, b in zip(jax.tree.leaves(tried), jax.tree.leaves(still), strict=True)
        ]
        is_neutral = jnp.arange(env.num_actions) == env.neutral_action
        return before.legal[seat] & jnp.all(jnp.stack(same), axis=0) & ~is_neutral

    some = jax.tree.map(lambda x: x[: MOMENTS // 4], (seen.state, seen.before, seen.key))
    over_seats = jax.vmap(differs, (None, None, None, 0))
    idle = np.asarray(quick(jax.vmap(lambda s, b, k: over_seats(s, b, k, jnp.arange(env.num_agents))))(*some))
    if not idle.any():
        return []
    _, seat, action = np.argwhere(idle)[0]
    return [f"{env.action_names[action]!r} is legal for seat {seat} and does nothing"]


def _impossible(env: Environment, seen: Moments) -> list[str]:
    """Games that say which boards can follow: none other did."""
    entities = env.entities
    if entities is None:
        return []
    fine = quick(jax.vmap(lambda s, n: entities.possible(s, entities.read(n))))(seen.state, seen.next_state)
    return [] if np.asarray(fine).all() else ["a step led to a board that cannot follow"]


def _told_otherwise(env: Environment, seen: Moments) -> list[str]:
    """Games that are made from boards as well as by steps: made from the board that a step led to, a moment
    is what the step said it was."""
    entities = env.entities
    if entities is None:
        return []

    def made(state, action, after_state, reward):
        return entities.write(state, action, entities.read(after_state), reward)

    state, after = quick(jax.vmap(made))(seen.state, seen.action, seen.next_state, seen.after.reward)
    same = {"state": trees_alike(env, state, seen.next_state)} | {
        field.name: trees_alike(env, getattr(after, field.name), getattr(seen.after, field.name))
        for field in dataclasses.fields(TimeStep)
    }
    other = [name for name, is_same in same.items() if not np.asarray(is_same).all()]
    return [f"{', '.join(other)} after a step: other than where its board is set up"] if other else []


# --- contests -------------------------------------------------------------------------------------


def contests(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Where several are paid or could be, does a name win more often?"""
    env, statistic = (
        subject.env,
        "reward of steps that pay somebody, a seat less those alike, names drawn anew",
    )
    orders = orders_of(env)
    if len(orders) == 0:
        return not_run(statistic, NOBODY_ALIKE)
    seen = subject.moments(CONTESTS)
    count = len(seen.action)
    named = np.concatenate([orders, np.arange(env.num_agents, dtype=np.int32)[None]])
    drawn = jax.random.randint(stream(key, "names"), (count,), 0, len(named))

    def step(state, action, step_key, order):
        return env.step(env.rename(state, order), action[order], step_key)[1].reward

    keys = jax.random.split(stream(key, "step"), count)
    reward = quick(jax.vmap(step))(seen.state, seen.action, keys, jnp.asarray(named)[drawn])
    reward = np.asarray(reward, np.float64)
    contested = reward[np.ptp(reward, axis=1) > 0]
    if len(contested) < 100:
        return not_run(statistic, f"{len(contested)} of {count} steps paid anybody more than others")
    found = effects_of(env, contested)
    seat, effect, p = worst(found)
    return Outcome(
        statistic,
        figure=abs(effect.value),
        threshold=CONTEST_MARGIN,
        next=f"seat {seat} is paid {effect.value:+.3f} deviations beside those alike: see how ties break",
        unit="deviations",
        n=len(contested),
        p=p,
        effect=effect,
        by_seat=tuple(float(x) for x in contested.mean(axis=0)),
        drawing=seats_apart("reward of contested steps, a seat less those alike", found, CONTEST_MARGIN),
    )


def seats_apart(title: str, found: list[Effects], margin: float) -> dict[str, Any]:
    """Every seat's effect with its interval, all in the one feature whose effect is least likely by chance.

    Each seat's own largest would not do: all see the same things in another order, and would be equal."""
    rows = [row for each in found for row in _in_one_feature(each)]
    rows.sort(key=lambda row: row["seat"])
    return {"kind": "intervals", "title": title, "unit": "deviations", "margin": margin, "rows": rows}


def _in_one_feature(each: Effects) -> list[dict[str, Any]]:
    if not each.mean.size:
        return []
    feature = int(np.argmax((np.abs(each.mean) / np.maximum(each.error, 1e-12)).max(axis=0)))
    value, width = each.mean[:, feature], WIDTH * each.error[:, feature]
    columns = zip(each.seats, value.tolist(), (value - width).tolist(), (value + width).tolist(), strict=True)
    return [
        {"name": f"seat {s}", "seat": s, "value": v, "low": low, "high": high} for s, v, low, high in columns
    ]


ENVIRONMENT = (
    Check("renaming", "environment", "Does the game treat all names alike?", "exact", "envs", renaming),
    Check("views", "environment", "Does everyone see the game from its own place?", "exact", "envs", views),
    Check("rules", "environment", "Does the game keep its own rules?", "exact", "envs", rules),
    Check("resets", "environment", "Do all start alike?", "test", "envs", resets, ("renaming", "views")),
    *BOARDS,
    Check(
        "contests", "environment", "Are ties broken fairly?", "test", "envs", contests, ("renaming", "rules")
    ),
    Check(
        "random_play",
        "environment",
        "Does a seat earn more in random play?",
        "equivalence",
        "envs",
        uniform_play,
        ("renaming", "views", "rules", "resets", "mirrored", "contests"),
    ),
)
