"""Is everything wired in? What is disturbed must be felt where it should be, and nowhere else.

A network is disturbed by its weights, a player by what it sees. Nothing has to be compiled for that: weights
and views are arguments of the programs that every other check uses. What settings do: `flags.py`.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from coplay.audit.captured import Round, quick, update_key
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
    without_rates,
)
from coplay.audit.finding import Check, Outcome, exact, not_run
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
    Trajectory,
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
    learned = [_learned(subject, one, weights)[0] for weights in (params, other)]
    changed = changed_modules(*learned)
    if any(rows.any() for name, rows in changed.items() if name != module):
        felt.add(LEARN)
    return felt


def _said(decision: Decision) -> PyTree:
    return {"policy": decision.policy, "thoughts": decision.thoughts, "notes": decision.notes}


def _learned(subject: Subject, one: Round, params: PyTree, trajectory: Trajectory | None = None):
    """Weights and figures after a round's update."""
    played = one.trajectory if trajectory is None else trajectory
    (after, _, figures), _ = subject.parts().learn(params, one.before.learner, played, update_key(one.before))
    return after, figures


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


# --- learning ------------------------------------------------------------------------------------


def departed(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does what is stored for players that have left reach anybody?"""
    statistic = "networks that learn otherwise when rows of players that have left are filled with noise"
    one = subject.rounds()[1]
    if any(getattr(subject.config(name), "learning_reward", "own") != "own" for name in subject.learners):
        return not_run(statistic, "players that have left go on earning with the team here")
    gone = ~one.trajectory.steps.before.active
    if not bool(jnp.any(gone)):
        return not_run(statistic, "nobody leaves this game before it ends")
    params = one.before.params
    plainly, noisy = (
        _learned(subject, one, params, t)[0] for t in (one.trajectory, _haunted(one, gone, key))
    )
    wrong = [module.name for module, rows in changed_modules(plainly, noisy).items() if rows.any()]
    what = f"{', '.join(wrong[:3])} learn from players that have left" if wrong else ""
    return exact(statistic, len(wrong), len(modules(params)), what)


def _haunted(one: Round, gone: jax.Array, key: Key) -> Trajectory:
    """With noise in NumPy: nothing has to be compiled for it."""
    steps = one.trajectory.steps
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    is_gone, observation = np.asarray(gone), np.asarray(steps.before.observation)
    noise = random.standard_normal(observation.shape, np.float32)
    seen = np.where(is_gone[..., None], noise, observation)
    action = random.integers(0, steps.before.legal.shape[-1], gone.shape, np.int32)
    log_prob = random.standard_normal(gone.shape, np.float32)
    before = dataclasses.replace(steps.before, observation=jnp.asarray(seen))
    decision = dataclasses.replace(
        steps.decision,
        action=jnp.asarray(np.where(is_gone, action, np.asarray(steps.decision.action))),
        log_prob=jnp.asarray(np.where(is_gone, log_prob, np.asarray(steps.decision.log_prob))),
    )
    return dataclasses.replace(
        one.trajectory, steps=dataclasses.replace(steps, before=before, decision=decision)
    )


def stillness(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is what is learned from as likely as when it was done, and less so once something was learned?"""
    statistic = "largest divergence from the policy that played, in nats, where nothing has been learned yet"
    one = subject.rounds()[1]
    learner, count = without_rates(one.before.learner)
    rows = one.taps.get("rows")
    if not count or rows is None:
        return not_run(statistic, "this learner does not keep its rates where they could be set to 0")
    apart = np.abs(np.asarray(rows.again) - np.asarray(rows.policy.log_prob))
    apart = np.where(np.asarray(rows.policy.counts) & ~_searched(subject, one), apart, 0.0).max(axis=(0, 1))
    (_, _, still), _ = subject.parts().learn(
        one.before.params, learner, one.trajectory, update_key(one.before)
    )
    figures = {name: _largest(still, name) for name in ("policy/kl", "imagined/policy/kl") if name in still}
    wrong = [
        f"seat {s}: what was done is read otherwise than it was decided"
        for s in np.flatnonzero(apart > CLOSE)
    ]
    wrong += [
        f"{name} is {x:.2g} before anything is learned" for name, x in figures.items() if not x <= CLOSE
    ]
    moved = _largest(one.metrics, "policy/kl")
    if moved == 0.0:
        wrong.append("policy/kl stays 0 while the policy learns: are old log-probabilities made anew?")
    return exact(statistic, len(wrong), len(apart) + len(figures) + 1, wrong[0] if wrong else "")


def _searched(subject: Subject, one: Round) -> Bool[np.ndarray, "time env seat"]:
    """The learner's rows that a search decided: their policy was not the network's."""
    notes = jax.tree_util.tree_leaves_with_path(one.trajectory.steps.decision.notes)
    found = [np.asarray(x) for path, x in notes if "searched" in jax.tree_util.keystr(path)]
    shape = (*one.trajectory.steps.before.first.shape, len(subject.seats))
    return found[0].astype(bool) if found else np.zeros(shape, bool)


def _largest(figures: dict, name: str) -> float:
    return float(np.nanmax(np.abs(np.asarray(figures[name])))) if name in figures else float("nan")


def stays(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """With a rate of 0, does an update leave weights as they were?"""
    statistic = "networks that an update moves though their learning rate is 0"
    one = subject.rounds()[1]
    learner, count = without_rates(one.before.learner)
    if not count:
        return not_run(statistic, "this learner does not keep its rates where they could be set to 0")
    (after, _, _), _ = subject.parts().learn(
        one.before.params, learner, one.trajectory, update_key(one.before)
    )
    moved = changed_modules(one.before.params, after)
    wrong = [
        m.name for m, rows in moved.items() if m.short in ("policy", "critic", "generator") and rows.any()
    ]
    wrong += _leaps(one)
    return exact(
        statistic, len(wrong), len(moved), f"{', '.join(wrong[:3])}: begun anew, or moved by another?"
    )


def _leaps(one: Round) -> list[str]:
    """Networks that moved further in a round than descent could take them: more than half of their size."""
    found = []
    pairs = zip(
        jax.tree_util.tree_leaves_with_path(one.before.params), jax.tree.leaves(one.after.params), strict=True
    )
    for (path, a), b in pairs:
        is_matrix = a.ndim > 1 + module_at(path).is_own
        if jnp.issubdtype(a.dtype, jnp.floating) and is_matrix and module_at(path).short != "scale":
            before, after = np.asarray(a), np.asarray(b)
            if np.linalg.norm(after - before) > max(0.5 * np.linalg.norm(before), 1.0):
                found.append(jax.tree_util.keystr(path))
    return found


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
    Check(
        "departed",
        "liveness",
        "Do the departed teach nobody?",
        "exact",
        "algorithms",
        departed,
        ("rows", "world_names"),
    ),
    Check(
        "stillness",
        "liveness",
        "Is what is learned from what was decided?",
        "exact",
        "algorithms",
        stillness,
        ("samples", "rows"),
    ),
    Check(
        "stays", "liveness", "Does an update begin where the last one ended?", "exact", "algorithms", stays
    ),
    Check("code", "liveness", "Is this the code that made the run?", "exact", "installation", code),
)
