"""Is everything wired in? What is disturbed must be felt where it should be, and nowhere else.

A network is disturbed by its weights, a player by what it sees. Nothing has to be compiled for that: weights
and views are arguments of the programs that every other check uses. What an update reads is asked in
`one_update.py`, what settings do in `flags.py`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from coplay.audit.captured import quick
from coplay.audit.compare import (
    Module,
    all_disturbed,
    changed_modules,
    differences,
    disturbed,
    is_still,
    module_at,
    modules,
    noise_like,
    plain,
)
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.one_update import ONE_UPDATE, after_update
from coplay.audit.subject import Budget, Subject
from coplay.training.run_folder import collect_versions
from coplay.types import (
    ACT,
    DECENTRALISED,
    LEARN,
    PLAY,
    WITH_MEMORY,
    Algorithm,
    Decision,
    Key,
    PyTree,
    TimeStep,
)

CLOSE = 1e-5
TOLD_APART = 0.1  # noise on every weight, so that a name is heard wherever it is told


# --- networks ------------------------------------------------------------------------------------


def reach(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is every network felt where it should be, each of its weights?"""
    statistic = "weights that are not felt in play or learning though their network should be"
    algorithm, params = subject.learning_job().stretches[0].algorithm, subject.rounds()[1].before.params
    should, wrong, seen = list(algorithm.reaches), [], 0
    for module in modules(params):
        felt = _felt(subject, module, key)
        asked = [where for name, where in should if name == module.name]
        wrong += [f"{module.name} is not felt in {_WHERE[where]}" for where in asked if where not in felt]
        seen += max(len(asked), 1)
        if not asked and not felt and not _all_still(algorithm, params, module):
            wrong.append(f"{module.name} is felt nowhere")
        if PLAY in asked and PLAY in felt:
            unfelt = _unfelt(subject, module, key)
            wrong += [f"{name} of {module.name} is not felt in {_WHERE[PLAY]}" for name in unfelt]
    return exact(statistic, len(wrong), seen, "; ".join(wrong[:3]))


def _all_still(algorithm: Algorithm, params: PyTree, module: Module) -> bool:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params) if module_at(path) == module]
    return all(is_still(path, algorithm.still) for path in paths)


def _unfelt(subject: Subject, module: Module, key: Key) -> list[str]:
    """Tensors of a network that change neither what is done nor what is told when it counts, though they
    learn."""
    one, parts = subject.rounds()[1], subject.parts()
    actor, params = one.before.actor, one.before.params
    now = actor.memory, actor.timestep, actor.env_state, key
    before, found = _said(parts.play(params, *now)[1]), []
    still = subject.learning_job().stretches[0].algorithm.still
    if not np.any(np.asarray(one.trajectory.steps.before.observation)):
        return []  # there is nothing to see in this game
    for path, _ in jax.tree_util.tree_leaves_with_path(params):
        name = jax.tree_util.keystr(path)
        if module_at(path) == module and "weight" in name.rpartition(".")[2] and not is_still(path, still):
            other = disturbed(params, module, key, only=name)
            if not differences(before, _said(parts.play(other, *now)[1])):
                found.append(name)
    return found


_WHERE = {ACT: "what is done while learning", PLAY: "what is done when it counts", LEARN: "what others learn"}


def _felt(subject: Subject, module: Module, key: Key) -> set[str]:
    """Where disturbing a network changes anything."""
    one, parts = subject.rounds()[1], subject.parts()
    params, actor = one.before.params, one.before.actor
    other = disturbed(params, module, key)
    now = actor.memory, actor.timestep, actor.env_state, key
    felt = set()
    for where, decide in ((ACT, parts.act), (PLAY, parts.play)):
        if differences(_said(decide(params, *now)[1]), _said(decide(other, *now)[1])):
            felt.add(where)
    learned = [after_update(subject, one, weights)[0] for weights in (params, other)]
    changed = changed_modules(*learned)
    if any(rows.any() for name, rows in changed.items() if name != module):
        felt.add(LEARN)
    return felt


def _said(decision: Decision) -> PyTree:
    return {"policy": decision.policy, "thoughts": decision.thoughts, "notes": decision.notes}


def own_rows(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does everyone act by its own weights and its own name, and by nobody else's?"""
    statistic = "pairs of seats where one's weights or name change what the other does, or not what it does"
    one, parts, seats = subject.rounds()[1], subject.parts(), subject.seats
    params, actor = one.before.params, one.before.actor
    now = actor.memory, actor.timestep, actor.env_state, key
    before = np.asarray(parts.act(params, *now)[1].policy)
    wrong, pairs = [], 0
    for what, row, other in _others_in_place(subject, params, key):
        moved = np.any(np.asarray(parts.act(other, *now)[1].policy) != before, axis=(0, 2))
        pairs += len(moved)
        others = np.flatnonzero(moved & (np.arange(len(moved)) != seats[row]))
        wrong += [f"{what} of seat {seats[row]} makes seat {others[0]} act otherwise"] if len(others) else []
    if not pairs:
        return not_run(statistic, "seats have neither weights nor names of their own")
    if not wrong and (unheard := _unheard_names(subject, key)):
        return exact(statistic, len(unheard), pairs, unheard[0], room="algorithms")
    return exact(statistic, len(wrong), pairs, wrong[0] if wrong else "")


def _others_in_place(subject: Subject, params: PyTree, key: Key) -> list[tuple[str, int, PyTree]]:
    """What is changed, of which of the learner's rows, and the weights with it."""
    reaches = subject.learning_job().stretches[0].algorithm.reaches
    acting = {name for name, where in reaches if where == ACT}
    own = [module for module in modules(params) if module.is_own and (not reaches or module.name in acting)]
    rows = range(len(subject.seats))
    found = [(m.name, row, disturbed(params, m, key, row)) for m in own for row in rows]
    return found + [("the name", row, other) for row, other in _other_names(subject, params)]


def _unheard_names(subject: Subject, key: Key) -> list[str]:
    """Where weights are shared and told who plays: names under which a seat plays as under its own."""
    if not _tells_names(subject.config(subject.learner)):
        return []
    state, act, found = subject.rounds()[0].before, subject.parts().act, []
    loud = all_disturbed(state.params, key, TOLD_APART)
    now = state.actor.memory, state.actor.timestep, state.actor.env_state, key
    before = np.asarray(act(loud, *now)[1].policy)
    for shift in range(1, subject.env.num_agents):
        for row, other in _other_names(subject, loud, shift):
            seat = subject.seats[row]
            if np.array_equal(np.asarray(act(other, *now)[1].policy)[:, seat], before[:, seat]):
                found.append(f"seat {seat} plays the same under another's name: are all told apart?")
    return found


def _tells_names(config: Any) -> bool:
    """Of policies; generators have a setting of their own for it."""
    if getattr(config, "context", "none") != "none":
        return config.identity != "none"
    return getattr(config, "parameters", "") == "shared_with_id"


def _other_names(subject: Subject, params: PyTree, shift: int = 1) -> list[tuple[int, PyTree]]:
    """The weights with one of the learner's seats after the other called what another is."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    found = []
    for number, (path, leaf) in enumerate(leaves):
        name = jax.tree_util.keystr(path)
        is_name = name.startswith(f"['{subject.learner}']") and "identity" in name
        if is_name and jnp.issubdtype(leaf.dtype, jnp.integer):
            for row in range(leaf.shape[0]):
                new = [x for _, x in leaves]
                new[number] = leaf.at[row].set((leaf[row] + shift) % subject.env.num_agents)
                found.append((row, jax.tree.unflatten(structure, new)))
    return found


# --- what is seen --------------------------------------------------------------------------------


def sight(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does everyone act by what it sees, and by no more than it says it needs?"""
    statistic = "pairs of seats where what one sees reaches the other's decisions against what is declared"
    job = subject.learning_job()
    learning = [seat for seat, name in enumerate(subject.lineup) if name in subject.learners]
    needs, wrong = job.stretches[0].algorithm.needs, []
    for seat in range(job.env.num_agents):
        moved, _ = _seen_otherwise(subject, seat, key)
        if seat in learning and not moved[seat]:
            wrong.append(f"seat {seat} does not act by what it sees")
        others = [s for s in np.flatnonzero(moved) if s != seat]
        if others and needs in (DECENTRALISED, WITH_MEMORY):
            wrong.append(
                f"seat {others[0]} acts by what seat {seat} sees, and says that it does not ({needs})"
            )
    return exact(statistic, len(wrong), job.env.num_agents**2, wrong[0] if wrong else "")


def histories(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is what is noted of a co-player read from that co-player's own rows?"""
    statistic = "notes about a co-player that another's rows change, or its own do not"
    agents, seats, wrong, seen = subject.env.num_agents, subject.seats, [], 0
    about = (seats[:, None] + np.arange(1, agents)[None]) % agents
    for seat in range(agents):
        _, notes = _seen_otherwise(subject, seat, key)
        for name, pairs in notes.items():
            seen += pairs.size
            strange = np.argwhere(pairs & (about != seat) & (seats[:, None] != seat))
            if len(strange):
                owner, place = strange[0]
                wrong.append(
                    f"{name}: what seat {owner} notes of {about[owner, place]} is read from seat {seat}"
                )
            elif np.any(about == seat) and not np.any(pairs & (about == seat)):
                wrong.append(f"{name}: nobody reads what seat {seat} does")
    if not seen:
        return not_run(statistic, "nobody notes anything of the others")
    return exact(statistic, len(wrong), seen, wrong[0] if wrong else "")


def _seen_otherwise(subject: Subject, seat: int, key: Key):
    """Which seats decide otherwise, and which notes about pairs change, when one seat's row is disturbed."""
    one, parts = subject.rounds()[1], subject.parts()
    params, actor = one.before.params, one.before.actor
    state, now = parts.reset(jax.random.split(key, actor.episode_length.shape[0]))
    memory = subject.learning_job().stretches[0].algorithm.remember(actor.episode_length.shape[0])
    plainly, other = (
        parts.act(params, memory, timestep, state, key)[1] for timestep in (now, _strange(now, seat, key))
    )
    moved = np.any(np.asarray(plainly.policy) != np.asarray(other.policy), axis=(0, 2))
    pairs = len(subject.seats), now.active.shape[-1] - 1
    return moved, _changed_pairs(plainly.notes, other.notes, pairs)


def _strange(timestep: TimeStep, seat: int, key: Key) -> TimeStep:
    rows = jnp.swapaxes(timestep.observation, 0, 1)
    noise = np.swapaxes(noise_like(rows, seat, key, 0.5, seat), 0, 1)
    return dataclasses.replace(timestep, observation=timestep.observation + noise)


def _changed_pairs(
    left: PyTree, right: PyTree, shape: tuple[int, int]
) -> dict[str, Bool[np.ndarray, "seat other"]]:
    """Of notes [env, seat, other, ...]."""
    found = {}
    pairs = zip(jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right), strict=True)
    for (path, a), b in pairs:
        a, b = plain(a), plain(b)
        if a.ndim > 3 and a.shape[1:3] == shape and a.dtype.kind == "f" and a.size:
            found[jax.tree_util.keystr(path)] = np.any(a != b, axis=(0, *range(3, a.ndim)))
    return found


def one_row(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does a game go the same way alone as among others?"""
    statistic = "largest difference of a policy in one game from the same game in a batch"
    if any(getattr(subject.config(name), "searched_games", 0.0) > 0 for name in subject.learners):
        return not_run(statistic, "some games are planned while learning: which ones depends on how many")
    if any(getattr(subject.config(name), "ordered_games", 0.0) > 0 for name in subject.learners):
        return not_run(statistic, "orders are drawn by game, and another game has other orders")
    one, job = subject.rounds()[1], subject.learning_job()
    algorithm, actor, params = job.stretches[0].algorithm, one.before.actor, one.before.params
    now = actor.memory, actor.timestep, actor.env_state
    act = quick(lambda params, *now: algorithm.act(params, *now, jax.random.key(0))[1].policy)
    together = np.asarray(act(params, *now))
    alone = np.asarray(act(params, *jax.tree.map(lambda x: x[-1:], now)))
    apart = np.abs(together[-1] - alone[0]).max(axis=1)
    wrong = np.flatnonzero(~(apart <= CLOSE))
    what = f"seat {wrong[0]} acts otherwise when nobody else plays: shapes mix games" if len(wrong) else ""
    return exact(statistic, len(wrong), len(apart), what, tuple(float(x) for x in apart))


# --- the code itself -----------------------------------------------------------------------------


def code(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is the code that is asked here the code that made the run?"""
    statistic = "packages and commits that are not those of the run"
    if subject.run is None:
        return not_run(statistic, "no run is asked about")
    then, now = subject.run.versions, collect_versions(subject.env.package)
    dirty = bool(then.get("dirty"))
    names = sorted({"commit", *then.get("packages", {})} & {"commit", *now.get("packages", {})})
    before, after = ({"commit": v.get("commit"), **v.get("packages", {})} for v in (then, now))
    other = [
        f"{name} {before[name]} then, {after[name]} now" for name in names if before[name] != after[name]
    ]
    return Outcome(
        statistic,
        figure=float(len(other)),
        threshold=0.0,
        verdict="warn" if other or dirty else "pass",
        next=other[0] if other else "the run was made with changes that no commit has" if dirty else "",
        n=len(names),
    )


LIVENESS = (
    Check("reach", "liveness", "Is every network felt where it should be?", "exact", "algorithms", reach),
    Check("own_rows", "liveness", "Does everyone act by its own weights?", "exact", "nets", own_rows),
    Check("sight", "liveness", "Does everyone act by what it may see?", "exact", "algorithms", sight),
    Check(
        "histories", "liveness", "Is every co-player read from its own rows?", "exact", "opponents", histories
    ),
    Check("one_row", "liveness", "Does a game go the same way alone?", "exact", "nets", one_row),
    *ONE_UPDATE,
    Check("code", "liveness", "Is this the code that made the run?", "exact", "installation", code),
)
