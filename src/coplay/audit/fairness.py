"""Are learners treated alike? Who learns from what is whose, and whose chance is whose.

What reaches whom is seen by disturbing it: a reward, or weights, of one seat, and then which seats learn
otherwise. What names do to training as a whole is asked in `renamed_training.py`.
"""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy import stats

from coplay.audit.captured import update_key
from coplay.audit.compare import (
    changed_modules,
    differences,
    disturbed,
    keeps_names,
    map_seated,
    modules,
    own_tensors,
    without_rates,
)
from coplay.audit.finding import SHARED, Check, Effect, Outcome, exact, not_run
from coplay.audit.renamed_training import BY_PLACE, POOLED, RENAMED_TRAINING
from coplay.audit.subject import Budget, Subject
from coplay.types import Key, PyTree, Seated, Trajectory

GIFT = 5.0  # added to rewards, to see whom it reaches
STEEP = "policy/grad_norm"
LIKELIER = 1000.0
ALONE = {"policy", "critic", "scale"}  # networks of a learner that models nobody
NOTABLE = 0.02  # share of actions


def own_reward(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is a learner moved by its own reward, and by no other that it should not know of?"""
    statistic = "pairs of seats where a reward does not reach its own learner, or reaches another's alone"
    one, parts = subject.rounds()[1], subject.parts()
    if reason := _not_asked(subject):
        return not_run(statistic, reason)
    agents = subject.learning_job().env.num_agents

    def learned(trajectory: Trajectory) -> PyTree:
        return parts.learn(one.before.params, one.before.learner, trajectory, update_key(one.before))[0][0]

    plainly = learned(one.trajectory)
    reaches = np.stack(
        [
            _moved(plainly, learned(_paid_more(one.trajectory, seat, agents)))
            for seat in subject.seats.tolist()
        ]
    )
    return exact(statistic, *_told_reach(subject, reaches, "reward"))


def _moved(left: PyTree, right: PyTree) -> Bool[np.ndarray, " seat"]:
    """Which seats' policies and critics differ; what they know of others is another matter."""
    changed = {module: rows for module, rows in changed_modules(left, right).items() if module.is_own}
    acting = [rows for module, rows in changed.items() if module.short in ("policy", "critic")]
    return np.any(np.stack(acting or list(changed.values())), axis=0)


def _paid_more(played: Trajectory, seat: int, agents: int) -> Trajectory:
    """In every second game: what is paid in all of them, a mean that is taken off would hide."""
    after, games = played.steps.after, played.steps.before.first.shape[1]
    is_asked = (jnp.arange(games) % 2 == 0)[:, None] & (jnp.arange(agents) == seat)[None]
    is_paid = is_asked[None] & played.steps.before.active
    paid = dataclasses.replace(after, reward=after.reward + jnp.where(is_paid, GIFT, 0.0))
    return dataclasses.replace(played, steps=dataclasses.replace(played.steps, after=paid))


def _told_reach(subject: Subject, reaches: Bool[np.ndarray, "source sink"], what: str):
    """Breaches, comparisons and a sentence: one's own must arrive, and pairs must be treated alike."""
    seats, rows = subject.seats, range(len(reaches))
    wrong = [f"seat {seats[row]} learns nothing from its own {what}" for row in rows if not reaches[row, row]]
    names = {module.short for module in modules(subject.rounds()[0].before.params)}
    config = subject.config(subject.learner)
    is_alone = names <= ALONE and getattr(config, "learning_reward", "") == "own"
    for source in rows:
        for sink in rows:
            is_odd = reaches[source, sink] and (is_alone or not reaches[sink, source])
            if source != sink and is_odd:
                wrong.append(f"seat {seats[sink]} learns from the {what} of seat {seats[source]}")
    return len(wrong), reaches.size, "; ".join(wrong[:3])


def _not_asked(subject: Subject) -> str:
    """Why it is not asked who learns from whom; nothing where it is."""
    if _in_turns(subject):
        return "learners take turns here, as they should"
    reward = getattr(subject.config(subject.learner), "learning_reward", "own")
    if reward not in ("own", "team", "mix"):
        return "learners are taught a reward of the user's own"
    return "" if own_tensors(subject.rounds()[0].before.params) else SHARED


def _in_turns(subject: Subject) -> bool:
    return subject.learning_job().stretches[0].algorithm.in_turns


def turns(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does it matter who learns first? Does anybody learn from weights it should not know of?"""
    statistic = "pairs of seats where one's weights reach what the other learns, and not the other way round"
    one, parts = subject.rounds()[1], subject.parts()
    own = [module for module in modules(one.before.params) if module.is_own]
    if _in_turns(subject):
        return _later_weigh_earlier(subject)
    if reason := _not_asked(subject):
        return not_run(statistic, reason)

    def learned(params: PyTree) -> PyTree:
        return parts.learn(params, one.before.learner, one.trajectory, update_key(one.before))[0][0]

    plainly, reaches = learned(one.before.params), []
    for seat in range(len(subject.seats)):
        params = one.before.params
        for number, module in enumerate(own):
            params = disturbed(params, module, jax.random.fold_in(key, number), seat, size=0.05)
        reaches.append(_moved(plainly, learned(params)))
    return exact(statistic, *_told_reach(subject, np.stack(reaches), "weights"))


def _later_weigh_earlier(subject: Subject) -> Outcome:
    """Where learners take turns, a later one weighs its advantages by what an earlier one has changed.

    Without rates nobody moves. One seat's moves are said to have been unlikely when they were made, as if it
    had since made them a thousand times as likely: gradients of whoever comes later grow, and no others."""
    statistic = "pairs of learners of whom the later does not weigh what the earlier one changed"
    one, seats = subject.rounds()[1], subject.seats
    learner, count = without_rates(one.before.learner)
    if not count or STEEP not in one.metrics:
        return not_run(statistic, "this learner does not keep its rates where they could be set to 0")

    def steep(trajectory: Trajectory) -> Float[np.ndarray, " seat"]:
        key = update_key(one.before)
        (_, _, figures), _ = subject.parts().learn(one.before.params, learner, trajectory, key)
        return np.asarray(figures[STEEP])[seats]

    grown = np.stack([steep(_once_unlikely(one.trajectory, int(s))) for s in seats]) / steep(one.trajectory)
    wrong, pairs = [], list(itertools.combinations(range(len(seats)), 2))
    for i, j in pairs:
        earlier, later = sorted((grown[i, j], grown[j, i]))
        if abs(earlier - 1) > POOLED or later < np.sqrt(LIKELIER):
            wrong.append(
                f"where seat {seats[i]} or {seats[j]} has made its moves {LIKELIER:g} times as likely, the "
                f"other's gradient is {later:.3g} and {earlier:.3g} times as long; one must be much longer"
            )
    return exact(statistic, len(wrong), len(pairs), wrong[0] if wrong else "", room="algorithms")


def _once_unlikely(played: Trajectory, seat: int) -> Trajectory:
    decision = played.steps.decision
    log_prob = decision.log_prob.at[..., seat].add(-np.log(LIKELIER))
    decided = dataclasses.replace(decision, log_prob=log_prob)
    return dataclasses.replace(played, steps=dataclasses.replace(played.steps, decision=decided))


def twins(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Two seats with the same weights, the same games and the same keys: do they learn the same?"""
    statistic = "tensors of seats that learned otherwise than their twin in seat 0"
    job, one, parts = subject.learning_job(), subject.rounds()[1], subject.parts()
    tensors = own_tensors(one.before.params)
    if _in_turns(subject):
        return not_run(statistic, "learners take turns here, as they should")
    reads = job.stretches[0].algorithm.reads_states or _share_memory(one.before.learner)
    if not tensors or reads or len(set(subject.lineup)) > 1:
        return not_run(statistic, "seats share weights or memory, differ, or read the game itself")

    def alike(part: Any) -> Any:
        if not isinstance(part, Seated):
            return part
        return Seated(
            jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), part.own),
            part.common,
        )

    params, learner = (map_seated(alike, tree) for tree in (one.before.params, one.before.learner))
    rows = _as_first_seat(one.trajectory, job.env.num_agents)
    after, other = (parts.learn(params, learner, rows, k)[0][0] for k in (update_key(one.before), key))
    if not keeps_names(params) and differences(after, other):
        return not_run(statistic, BY_PLACE)
    wrong = [
        (path, seat)
        for path, rows in own_tensors(after)
        for seat in range(1, len(rows))
        if not np.array_equal(rows[0], rows[seat], equal_nan=True)
    ]
    what = f"seat {wrong[0][1]} learns otherwise than seat 0 from the same ({wrong[0][0]})" if wrong else ""
    return exact(statistic, len(wrong), len(tensors) * (job.env.num_agents - 1), what)


def _share_memory(learner: PyTree) -> bool:
    parts = jax.tree.leaves(learner, is_leaf=lambda x: isinstance(x, Seated))
    return any(jax.tree.leaves(part.common) for part in parts if isinstance(part, Seated))


def _as_first_seat(played: Trajectory, agents: int) -> Trajectory:
    """What happened to the first seat happens to everyone."""

    def steps(x: Array) -> Array:
        is_by_seat = x.ndim > 2 and x.shape[2] == agents
        return jnp.broadcast_to(x[:, :, :1], x.shape) if is_by_seat else x

    def games(x: Array) -> Array:
        return jnp.broadcast_to(x[:, :1], x.shape) if x.ndim > 1 and x.shape[1] == agents else x

    return Trajectory(
        jax.tree.map(steps, played.steps),
        jax.tree.map(steps, played.memory),
        jax.tree.map(games, played.next),
        jax.tree.map(games, played.next_memory),
    )


# --- chance --------------------------------------------------------------------------------------


def draws(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are actions drawn from what is recorded as the policy, each by chance of its own?"""
    statistic = "how often actions agree between seats, steps or games, beyond what their policies say"
    seen = {"seats": [], "steps": [], "games": [], "actions": []}
    for one in subject.rounds():
        for name, (agree, expected) in _agreements(one.trajectory).items():
            seen[name].append((agree, expected))
    tested = {name: _beyond_chance(pairs) for name, pairs in seen.items() if pairs}
    worst = min(tested, key=lambda name: (abs(tested[name][1].value) <= NOTABLE, tested[name][0]))
    p, effect, n = tested[worst]
    what = {
        "seats": "players do the same more often than chance allows: do they share a key?",
        "steps": "what was done before comes again more often than chance allows: is a key used twice?",
        "games": "games go the same way more often than chance allows: do they share a key?",
        "actions": "actions are not drawn from the policy that is recorded with them",
    }[worst]
    is_one_name = worst == "seats" and _share_identity(subject.rounds()[0].before.params)
    return Outcome(
        statistic,
        figure=effect.value,
        threshold=NOTABLE,
        p=min(1.0, p * len(tested)),
        effect=effect,
        n=n,
        next=what,
        unit="share of actions",
        room="training" if is_one_name or worst in ("steps", "games") else "algorithms",
    )


def _share_identity(params: PyTree) -> bool:
    """Whether two seats are told that they are the same player."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if "identity" in jax.tree_util.keystr(path):
            return len(np.unique(np.asarray(leaf))) < leaf.size
    return False


def _agreements(played: Trajectory) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By kind: whether two actions agree, and the chance of it given what came before."""
    steps = played.steps
    policy, action = np.asarray(steps.decision.policy, np.float64), np.asarray(steps.decision.action)
    active = np.asarray(steps.before.active)
    taken = np.eye(policy.shape[-1])[action]
    first, second = np.triu_indices(action.shape[-1], 1)
    pairs = active[..., first] & active[..., second]
    both = np.sum(policy[..., first, :] * policy[..., second, :], axis=-1)
    later = active[1:] & active[:-1]
    beside = active[:, 1:] & active[:, :-1]
    return {
        "seats": ((action[..., first] == action[..., second])[pairs], both[pairs]),
        "steps": ((action[1:] == action[:-1])[later], np.sum(policy[1:] * taken[:-1], axis=-1)[later]),
        "games": (
            (action[:, 1:] == action[:, :-1])[beside],
            np.sum(policy[:, 1:] * policy[:, :-1], axis=-1)[beside],
        ),
        "actions": (np.where(action == 0, 1, 0)[active], policy[..., 0][active]),
    }


def _beyond_chance(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[float, Effect, int]:
    """Two-sided p of as many agreements, and their share beyond what was expected, with interval."""
    agree, chance = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
    chance = np.clip(chance, 0.0, 1.0)
    deviation = np.sqrt(max(float(np.sum(chance * (1.0 - chance))), 1e-9))
    beyond = float(np.sum(agree - chance))
    count = max(len(agree), 1)
    half = 3.8 * deviation / count
    share = beyond / count
    return float(2 * stats.norm.sf(abs(beyond) / deviation)), Effect(share, share - half, share + half), count


FAIRNESS = (
    Check("draws", "pipeline", "Does each player decide by its own chance?", "test", "training", draws),
    Check(
        "own_reward",
        "pipeline",
        "Does everyone learn from its own reward?",
        "exact",
        "algorithms",
        own_reward,
        ("rows", "samples"),
    ),
    Check("turns", "pipeline", "Does it matter who learns first?", "exact", "training", turns, ("rows",)),
    Check(
        "twins",
        "pipeline",
        "Do equal learners learn equally?",
        "exact",
        "algorithms",
        twins,
        ("rows", "samples"),
    ),
    *RENAMED_TRAINING,
)
