"""Do the co-players in HOP's trees do what their models say, for goals that can be had?

Its own trees are asked, on boards from random play: one move deep, with a critic that says nothing, a tree
expects the next reward, and that follows from what the co-players do.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.audit.captured import quick
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.random_play import Moments
from coplay.audit.search_trees import NO_SEARCH, searchers
from coplay.audit.small_scale import at_small_scale
from coplay.audit.subject import Budget, Subject
from coplay.experiment import Experiment, build, with_overrides
from coplay.opponents.goal_policy import wishes
from coplay.opponents.goals import UNKNOWN
from coplay.types import Environment, EnvState, Goals, Key, PyTree, Seated, TimeStep

CLOSE = 1e-5
MOMENTS, BOARDS = 8192, 32
SURE, LOUD = 100.0, 30.0  # logits between one move and the next; how much more than at first models say


class Trees(NamedTuple):
    """HOP's searches of one move, and where they are made."""

    decide: Callable  # params, told [board, agent], state, timestep, key -> what its trees found, by name
    params: PyTree
    seats: Int[np.ndarray, " seat"]  # who searches
    rows: Int[np.ndarray, " seat"]  # where its weights are


def tree_company(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do co-players in a tree do what their models say, for goals that can be had?"""
    statistic = "moves that a tree expects something else of than its co-players' models and goals lead to"
    if "hop" not in searchers(subject.experiment):
        return not_run(statistic, "HOP searches nowhere here" if subject.experiment else NO_SEARCH)
    assert subject.experiment is not None
    trees = _shallow_trees(subject.experiment, key)
    seen, wrong = _against_vanished(subject, trees, key)
    if subject.experiment.hop.company == "models":
        asked, otherwise = _against_models(subject, trees, key)
        seen, wrong = seen + asked, wrong + otherwise
    if not seen:
        return not_run(statistic, "nothing a co-player does or wants makes a difference here")
    return exact(statistic, len(wrong), seen, "; ".join(dict.fromkeys(wrong)))


def _shallow_trees(experiment: Experiment, key: Key) -> Trees:
    """Trees one move deep, wide enough to try every move; nobody is on a whim."""
    changes = {"trees": 1, "simulations": 24, "search_depth": 1, "whim": 0.0, "leaf": "critic"}
    changes = {f"hop.{name}": value for name, value in (changes | {"acts": "search"}).items()}
    built = build(with_overrides(at_small_scale(experiment), changes))
    stretch = next(stretch for stretch in built.stretches if "hop" in stretch.lineup)
    rows = next(member.seats for member in built.members if member.name == "hop")
    algorithm, seats = stretch.algorithm, np.flatnonzero(np.array(stretch.lineup) == "hop")
    assert algorithm.play is not None and algorithm.told is not None
    play, told = algorithm.play, algorithm.told

    def decide(
        params: PyTree, goals: Int[Array, "board agent"], state: EnvState, timestep: TimeStep, key: Key
    ) -> PyTree:
        memory = told(algorithm.remember(goals.shape[0]), goals)
        return play(params, memory, timestep, state, key)[1].notes["hop"]

    return Trees(quick(decide), algorithm.init(key), seats, np.array([rows.index(seat) for seat in seats]))


def _against_models(subject: Subject, trees: Trees, key: Key) -> tuple[int, list[str]]:
    """Models that are sure of one move after another: is the reward expected that these moves bring?"""
    env, moments = subject.env, subject.moments(MOMENTS)
    paid = np.asarray(moments.after.reward).sum(axis=1)
    state, timestep = _boards(moments, np.argsort(-paid, kind="stable")[:BOARDS])
    is_errand = ~np.isin(np.arange(len(env.goals.names)), env.goals.aimless)
    goals = jnp.asarray(np.argmax(_possible(env.goals, timestep) & is_errand, axis=-1), jnp.int32)
    is_in, rewards = np.asarray(timestep.active)[:, trees.seats, None], _rewards_of(env)
    asked = differing = 0
    for first in range(env.num_actions):
        params, ranks = _sure_of(trees.params, first)
        found = trees.decide(params, goals, state, timestep, key)
        moves = _by_rank(np.asarray(timestep.legal), trees, ranks)
        paid = np.asarray(rewards(state, jnp.asarray(trees.seats), jnp.asarray(moves)))
        tried = (np.asarray(found["search/visits"]) > 0) & is_in
        asked += int(tried.sum())
        differing += int((tried & (np.abs(np.asarray(found["search/q"]) - paid) > CLOSE)).sum())
    return asked, ["co-players in a tree do not do what their models say"] * differing


def _by_rank(
    legal: Bool[np.ndarray, "board agent action"], trees: Trees, ranks: Int[np.ndarray, "row other action"]
) -> Int[np.ndarray, "board seat agent"]:
    """What everyone does in the eyes of each seat: of the moves it may make, the one ranked lowest."""
    boards, agents, actions = legal.shape
    moves = np.zeros((boards, len(trees.seats), agents), np.int32)
    for place, (seat, row) in enumerate(zip(trees.seats, trees.rows, strict=True)):
        for after, order in enumerate(ranks[row]):
            other = (seat + 1 + after) % agents
            moves[:, place, other] = np.where(legal[:, other], order, actions).argmin(axis=-1)
    return moves


def _rewards_of(env: Environment) -> Callable[..., Float[Array, "board seat action"]]:
    """What each of these seats would be paid for each of its moves, the others doing theirs."""

    def paid(state: EnvState, seat: Int[Array, ""], moves: Int[Array, " agent"], action: Int[Array, ""]):
        return env.step(state, moves.at[seat].set(action), jax.random.key(0))[1].reward[seat]

    def one_board(state: EnvState, seats: Int[Array, " seat"], moves: Int[Array, "seat agent"]):
        each_action = jax.vmap(paid, (None, None, None, 0))
        each_seat = jax.vmap(each_action, (None, 0, 0, None))
        return each_seat(state, seats, moves, jnp.arange(env.num_actions))

    return quick(jax.vmap(one_board, (0, None, 0)))


def _sure_of(params: PyTree, first: int) -> tuple[PyTree, Int[np.ndarray, "row other action"]]:
    """Models that know an order of moves and nothing else, each another, and a critic that says nothing; and
    those orders."""
    hop = params["hop"]
    models = _times(0.0, hop["opponents"].own["group"])
    row, other, action = np.indices(models.layers[-1].bias.shape)
    ranks = (action - first - row - other) % action.shape[-1]
    bias = jnp.asarray(-SURE * ranks, jnp.float32)
    models = eqx.tree_at(lambda tree: tree.layers[-1].bias, models, bias)
    networks = hop["policy"].own["group"]
    networks = networks | {"critic": _times(0.0, networks["critic"])}
    changed = {
        "opponents": _with_group(hop["opponents"], models),
        "policy": _with_group(hop["policy"], networks),
    }
    return params | {"hop": hop | changed}, ranks


def _against_vanished(subject: Subject, trees: Trees, key: Key) -> tuple[int, list[str]]:
    """Who is said to be after what is gone: is it taken to be after what is left?"""
    moments = subject.moments(MOMENTS)
    gone, left = _gone_and_left(subject.env.goals, moments.before)
    boards = np.flatnonzero((gone != UNKNOWN).sum(axis=1) >= 2)
    if not len(boards):
        return 0, []
    boards = np.resize(boards, BOARDS)
    state, timestep = _boards(moments, boards)
    hop = trees.params["hop"]
    louder = _with_group(hop["opponents"], _times(LOUD, hop["opponents"].own["group"]))
    params = trees.params | {"hop": hop | {"opponents": louder}}
    found = [
        np.asarray(trees.decide(params, jnp.asarray(goals[boards]), state, timestep, key)["search/q"])
        for goals in (gone, left)
    ]
    is_in = np.asarray(timestep.active)[:, trees.seats]
    differs = (found[0] != found[1]).any(axis=-1) & is_in
    return int(is_in.sum()), ["co-players in a tree go after what is gone"] * int(differs.sum())


def _gone_and_left(goals: Goals, before: TimeStep) -> tuple[np.ndarray, np.ndarray]:
    """For every player a goal that is gone, and what then comes to the same: the only one left or, where more
    are, another that is gone. UNKNOWN in both where there is no such pair."""
    possible = _possible(goals, before)
    is_last = possible.sum(axis=-1) == 1
    another = possible.shape[-1] - 1 - np.argmax(~possible[..., ::-1], axis=-1)
    gone, left = np.argmin(possible, axis=-1), np.where(is_last, np.argmax(possible, axis=-1), another)
    is_pair = np.asarray(before.active) & possible.any(axis=-1) & ~possible.all(axis=-1) & (gone != left)
    gone, left = (np.where(is_pair, goal, UNKNOWN).astype(np.int32) for goal in (gone, left))
    return gone, left


def _boards(moments: Moments, places: Int[np.ndarray, " board"]) -> tuple[EnvState, TimeStep]:
    return jax.tree.map(lambda x: x[places], (moments.state, moments.before))


def _possible(goals: Goals, timestep: TimeStep) -> Bool[np.ndarray, "board agent goal"]:
    return np.asarray(quick(lambda timestep: wishes(goals, timestep).possible)(timestep))


def _times(factor: float, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: factor * x, tree)


def _with_group(part: Seated, group: PyTree) -> Seated:
    """The same seats with other weights."""
    return Seated(part.own | {"group": group}, part.common)


TREE_COMPANY = (
    Check(
        "tree_company",
        "models",
        "Do co-players in a tree do what is believed of them?",
        "exact",
        "algorithms",
        tree_company,
        ("search",),
    ),
)
