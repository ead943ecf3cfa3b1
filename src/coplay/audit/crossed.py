"""Learners, names and positions taken apart: who earns more because of what it is, is called, or where it is?

A learner is a set of weights, a name the row that code has for it, a position a body on the board. In every
episode learners take their names by one turn of the circle and names their positions by another, all turns
equally often, so that each learner has each name in each position as often as any other. Learners may differ.
What names or positions then add to a learner's own mean is a matter of chance, however learners differ,
unless a name or a position pays.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coplay.audit import captured
from coplay.audit.compare import all_disturbed, map_seated
from coplay.audit.finding import Check, Effect, Outcome, not_run
from coplay.audit.flags import plans
from coplay.audit.seat_effects import CONSTANT, WIDTH
from coplay.audit.subject import Budget, Subject
from coplay.envs.seats import start_as
from coplay.training.rollout import is_over
from coplay.types import Algorithm, Environment, Key, PyTree, Seated, TimeStep, Transition, stream

EPISODES, PLANNED, BY_LIKES = 4096, 1024, 16_384  # of learners, of who plans its moves, of random players
FULL = 8  # times as many
MARGIN = 0.05  # deviations of returns
NOISE = 0.2  # on fresh weights, so that learners differ
LIKES = 1.0  # deviation of what random players like and dislike, in nats

Play = Callable[[Int[Array, " agent"], Key], Float[np.ndarray, "episode agent"]]
# names' learners, key -> returns by name; name n is in position n + e in episode e


def permuted_ids(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does a name or a position pay, whoever has it?"""
    statistic = "what a name or a position adds to its learner's own return, the least likely of all"
    env = subject.env
    if env.num_agents < 2:
        return not_run(statistic, "there is one player: nobody to change places with")
    if len(set(env.alike)) > 1:
        return not_run(statistic, "players have parts of their own: names cannot go round")
    who, play = _players(subject, FULL if budget.is_full else 1, stream(key, "players"))
    return judged_effects(crossed(play, env.num_agents, stream(key, "play")), who, statistic)


def _players(subject: Subject, times: int, key: Key) -> tuple[str, Play]:
    """Learners with random weights; random players with likes where nobody learns, or not everybody.

    Games of others show players in an order of their own, which a turn of the circle may change: who looks
    would play otherwise there, so that random players play those, too."""
    env = subject.env
    if len(set(subject.lineup)) == 1 and not env.package and (work := subject.small_job()) is not None:
        algorithm, params = work.stretches[0].algorithm, all_disturbed(subject.begun().params, key, NOISE)
        games = _games(env, times * (PLANNED if plans(subject.config(subject.learner)) else EPISODES))
        return "learners with random weights", _by_algorithm(work.env, algorithm, params, games)
    return "random players with likes of their own", _by_likes(env, _games(env, times * BY_LIKES), key)


def _games(env: Environment, episodes: int) -> int:
    """Side by side, for each turn of learners: as many for every turn of positions."""
    return env.num_agents * max(1, episodes // env.num_agents**2)


# --- playing -------------------------------------------------------------------------------------


def _by_algorithm(env: Environment, algorithm: Algorithm, params: PyTree, games: int) -> Play:
    def remember(params: PyTree) -> PyTree:
        return algorithm.remember(games)

    play = captured.quick(_episodes(env, games, remember, algorithm.act, algorithm.watch))

    def by_name(learners: Int[Array, " agent"], key: Key) -> np.ndarray:
        def seated(part: Any) -> Any:
            if not isinstance(part, Seated):
                return part
            return Seated(jax.tree.map(lambda x: x[learners], part.own), part.common)

        return np.asarray(play(map_seated(seated, params), key))

    return by_name


def _by_likes(env: Environment, games: int, key: Key) -> Play:
    likes = LIKES * jax.random.normal(key, (env.num_agents, env.num_actions))

    def act(likes, memory, timestep: TimeStep, state, key: Key):
        drawn = likes[None] + jax.random.gumbel(key, timestep.legal.shape)
        return memory, jnp.argmax(jnp.where(timestep.legal, drawn, -jnp.inf), axis=-1).astype(jnp.int32)

    play = captured.quick(_episodes(env, games, lambda likes: (), act, None))
    return lambda learners, key: np.asarray(play(likes[np.asarray(learners)], key))


def _episodes(
    env: Environment, games: int, remember: Callable, act: Callable, watch: Callable | None
) -> Callable[[PyTree, Key], Float[Array, "game agent"]]:
    """A function (players, key) -> returns of whole episodes, by name."""
    agents = env.num_agents
    positions = (jnp.arange(agents)[None] + jnp.arange(games)[:, None]) % agents

    def one_step(players, carry, key: Key):
        memory, state, before, earned, is_on = carry
        memory, decision = act(players, memory, before, state, stream(key, "act"))
        action = decision if watch is None else decision.action
        next_state, after = jax.vmap(env.step)(state, action, jax.random.split(stream(key, "step"), games))
        memory = memory if watch is None else watch(players, memory, Transition(before, decision, after))
        earned = earned + jnp.where(is_on[:, None], after.reward, 0.0)
        return (memory, next_state, after, earned, is_on & ~is_over(after)), None

    def play(players: PyTree, key: Key) -> Float[Array, "game agent"]:
        keys = jax.random.split(stream(key, "start"), games)
        state, first = jax.vmap(lambda order, k: start_as(env, order, k))(positions, keys)
        start = remember(players), state, first, jnp.zeros((games, agents)), jnp.ones(games, bool)
        steps = jax.random.split(stream(key, "steps"), env.horizon)
        return jax.lax.scan(lambda carry, k: one_step(players, carry, k), start, steps)[0][3]

    return play


# --- three effects -------------------------------------------------------------------------------


class Crossed(NamedTuple):
    """What was earned, by episode and name, and who had that name where."""

    returns: Float[np.ndarray, "episode agent"]
    learner: Int[np.ndarray, "episode agent"]
    position: Int[np.ndarray, "episode agent"]


def crossed(play: Play, agents: int, key: Key) -> Crossed:
    """Every turn of learners against every turn of positions, equally often."""
    names, parts = np.arange(agents), []
    for turn in range(agents):
        learners = (names + turn) % agents
        returns = np.asarray(play(jnp.asarray(learners), jax.random.fold_in(key, turn)), np.float64)
        position = (names[None] + np.arange(len(returns))[:, None]) % agents
        parts.append(Crossed(returns, np.broadcast_to(learners, returns.shape), position))
    return Crossed(*[np.concatenate(each) for each in zip(*parts, strict=True)])


class Level(NamedTuple):
    """One learner, name or position, and what it adds, in deviations of returns."""

    factor: str
    number: int
    value: float
    error: float


def three_effects(played: Crossed) -> list[Level]:
    """Within episodes: what one earned less what the others did. Learners' own means are taken off before
    names and positions are asked about."""
    returns, agents = played.returns, played.returns.shape[1]
    deviation = float(returns.std())
    if deviation < CONSTANT:
        return []
    apart = (returns - returns.mean(axis=1, keepdims=True)) * (agents / (agents - 1)) / deviation
    names = np.broadcast_to(np.arange(agents), returns.shape)
    learners = _levels("learner", played.learner, apart)
    rest = apart - np.array([level.value for level in learners])[played.learner]
    return [*learners, *_levels("name", names, rest), *_levels("position", played.position, rest)]


def _levels(factor: str, number: Int[np.ndarray, "episode agent"], values: np.ndarray) -> list[Level]:
    each = [values[number == level] for level in range(values.shape[1])]  # one in every episode
    return [
        Level(factor, level, float(x.mean()), float(x.std() / math.sqrt(len(x))))
        for level, x in enumerate(each)
    ]


def judged_effects(played: Crossed, who: str, statistic: str) -> Outcome:
    """Learners may differ; a name or a position that pays is a defect."""
    levels = three_effects(played)
    asked = [level for level in levels if level.factor != "learner"]
    if not asked:
        return not_run(statistic, "everyone earns the same in every episode")
    worst = max(asked, key=lambda level: abs(level.value) / max(level.error, 1e-12))
    likely = math.erfc(abs(worst.value) / max(worst.error, 1e-12) / math.sqrt(2.0))
    apart = max(abs(level.value) for level in levels if level.factor == "learner")
    look = {
        "name": "code goes by the name: look for an index of seats in acting, memory or book-keeping",
        "position": "the game favours it: look at starts and the order in which players are gone through",
    }[worst.factor]
    return Outcome(
        statistic,
        figure=abs(worst.value),
        threshold=MARGIN,
        next=f"{worst.factor} {worst.number} earns {worst.value:+.3f} deviations beside the others, whoever "
        f"has it ({who}, up to {apart:.2f} apart): {look}",
        unit="deviations",
        n=len(played.returns),
        p=min(1.0, len(asked) * likely),
        effect=Effect(worst.value, worst.value - WIDTH * worst.error, worst.value + WIDTH * worst.error),
        by_seat=tuple(level.value for level in levels if level.factor == "name"),
        room={"name": "training", "position": "envs"}[worst.factor],
        drawing=_drawn(levels),
    )


def _drawn(levels: list[Level]) -> dict[str, Any]:
    rows = [
        {
            "name": f"{factor} {number}",
            "seat": number,
            "value": value,
            "low": value - WIDTH * error,
            "high": value + WIDTH * error,
        }
        for factor, number, value, error in levels
    ]
    title = "what a learner, a name and a position add to returns"
    return {"kind": "intervals", "title": title, "unit": "deviations", "margin": MARGIN, "rows": rows}


CROSSED = (
    Check(
        "permuted_ids",
        "environment",
        "Does a name or a position pay?",
        "test",
        "envs",
        permuted_ids,
        ("renaming", "views", "rules", "resets", "contests", "random_play"),
    ),
)
