"""What reaches those who learn: rows of play as the game had them, and what models remember of them.

A round is played again step by step with its own decisions (`replayed`), so that what was stored can be held
against what happened. What models are about to learn from is tapped in the middle of an update.
"""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from coplay.audit.bookkeeping import LEDGER
from coplay.audit.captured import Parts, Round, own_part
from coplay.audit.compare import differences, told
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.subject import Budget, Subject
from coplay.opponents.goal_policy import those_after
from coplay.training.job import Job
from coplay.types import Key, PyTree, TimeStep, Trajectory, Transition, stacked, stream

CLOSE = 1e-4  # relative: the same numbers by a program that was compiled otherwise
NO_TAP = "this learner does not tell what it learns from"


# --- rows of play --------------------------------------------------------------------------------


def rows(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is what was stored what happened?"""
    statistic = "parts of a stored round that are not what the game and the players did, played again"
    job, parts, wrong = subject.learning_job(), subject.parts(), []
    for number, one in enumerate(subject.rounds()[:2]):
        stored, happened = _as_stored(one.trajectory), _as_stored(replayed(job, parts, one))
        found = differences(stored, happened, CLOSE)
        if found:
            place = dict(zip(("step", "game", "seat"), found[0].first, strict=False))
            where = ", ".join(f"{name} {index}" for name, index in place.items())
            wrong.append(f"round {number}: {told(found)} is not what happened, first at {where}")
    leaves = len(jax.tree.leaves(_as_stored(subject.rounds()[0].trajectory)))
    return exact(statistic, len(wrong), 2 * leaves, wrong[0] if wrong else "")


def _as_stored(played: Trajectory) -> PyTree:
    """What learners read of a round; what was decided is compared where it is certain."""
    steps = played.steps
    decided = {"policy": steps.decision.policy, "notes": steps.decision.notes}
    return {
        "before": steps.before,
        "after": steps.after,
        "decision": decided,
        "state": (steps.state, steps.next_state),
        "memory": played.memory,
        "next": played.next,
    }


def replayed(job: Job, parts: Parts, one: Round) -> Trajectory:
    """The round again from where it began, one step after the other, with the actions that were stored."""
    algorithm, actor = job.stretches[0].algorithm, one.before.actor
    collect_key = own_part(jax.random.split(one.before.key, 3)[1])
    shape = (job.num_steps // job.sequence_length, job.sequence_length)
    keys = jax.random.split(collect_key, shape).reshape(-1)
    memory, state, timestep = actor.memory, actor.env_state, actor.timestep
    steps, starts = [], []
    for time in range(job.num_steps):
        if time % job.sequence_length == 0:
            starts.append(memory)
        action = one.trajectory.steps.decision.action[time]
        memory, decision = parts.act(one.before.params, memory, timestep, state, stream(keys[time], "act"))
        decision = dataclasses.replace(decision, action=action)
        later, after = parts.step(state, action, _keys(keys[time], "step", job.num_envs))
        states = (state, later) if algorithm.reads_states else ()
        transition = Transition(timestep, decision, after, *states)
        steps.append(transition)
        memory = parts.watch(one.before.params, memory, transition)
        state, timestep = _gone_on(parts, later, after, _keys(keys[time], "reset", job.num_envs))
    return Trajectory(stacked(steps), stacked(starts), timestep, memory)


def _keys(key: Key, name: str, count: int) -> Key:
    return jax.random.split(stream(key, name), count)


def _gone_on(parts: Parts, state: PyTree, after: TimeStep, keys: Key) -> tuple[PyTree, TimeStep]:
    """A new game where one is over."""
    is_over = np.asarray(after.truncated) | np.asarray(after.terminated).all(axis=-1)
    fresh = parts.reset(keys)

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(is_over.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    return jax.tree.map(choose, fresh, (state, after))


def boundaries(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is what was remembered of one episode gone when the next begins?"""
    statistic = "seats whose first decision in an episode depends on what was remembered before it"
    one, parts = subject.rounds()[1], subject.parts()
    memory = one.before.actor.memory
    if not any(jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(memory)):
        return not_run(statistic, "nothing is remembered")
    if any(getattr(subject.config(name), "between", "none") != "none" for name in subject.learners):
        return not_run(statistic, "something is kept between episodes here, as it should be")
    state, timestep = parts.reset(jax.random.split(key, one.before.actor.episode_length.shape[0]))
    noisy = jax.tree.map(_noisy, memory)

    def policy(memory: PyTree) -> np.ndarray:
        _, decision = parts.act(one.before.params, memory, timestep, state, key)
        return np.asarray(decision.policy)

    apart = np.abs(policy(memory) - policy(noisy)).max(axis=(0, 2))
    wrong = np.flatnonzero(apart > CLOSE)
    what = f"seat {wrong[0]} begins an episode with the memory of another" if len(wrong) else ""
    return exact(statistic, len(wrong), len(apart), what, tuple(float(x) for x in apart))


def _noisy(x: jax.Array) -> jax.Array:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    return x + jax.random.normal(jax.random.key(x.size), x.shape).astype(x.dtype)


# --- what models learn from ----------------------------------------------------------------------


def opponent_rows(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do models of co-players learn from what co-players did while they were there, all of it?"""
    statistic = "rows of co-players' models that are missing, made up, or not what was done"
    rounds = subject.rounds()
    if "opponents/rows" in rounds[0].taps:
        found = [_subgoal_rows(_others(subject), one) for one in rounds]
    elif "opponents/round_before" in rounds[0].taps:
        found = [_goal_rows(_others(subject), *pair) for pair in itertools.pairwise(rounds)]
    else:
        return not_run(statistic, "nobody models anybody here")
    seen, wrong = sum(count for count, _ in found), [line for _, lines in found for line in lines]
    return exact(statistic, len(wrong), seen, wrong[0] if wrong else "")


def _subgoal_rows(others: np.ndarray, one: Round) -> tuple[int, list[str]]:
    learned, steps = one.taps["opponents/rows"], one.trajectory.steps
    here = np.asarray(steps.before.active)[:, :, others]
    counts, taught = np.asarray(learned.counts), np.asarray(learned.taught)
    done = np.asarray(steps.decision.action)[:, :, others]
    wrong = _uneven("rows after a co-player left", counts & ~here)
    wrong += _uneven("rows of co-players in the game that are left out", here & ~counts)
    wrong += _uneven("actions other than what was done", counts & (np.asarray(learned.action) != done))
    is_taught = np.any(taught, axis=(0, 2, 3))  # by game; the others are held out
    left_out = counts & ~taught & is_taught[None, :, None, None]
    wrong += _uneven("rows of a game that is learned from, left out", left_out)
    if is_taught.mean() < 0.7:
        wrong.append(f"only {is_taught.mean():.0%} of the games are learned from")
    wrong += _uneven("rows that say nothing", counts & ~np.any(np.asarray(learned.seen) != 0, axis=-1))
    return counts.size, wrong


def _goal_rows(others: np.ndarray, last: Round, one: Round) -> tuple[int, list[str]]:
    """HOP's models learn a round late."""
    learned, played, label = one.taps["opponents/round_before"]
    steps = last.trajectory.steps
    active = np.swapaxes(np.asarray(steps.before.active), 0, 1)
    done = np.swapaxes(np.asarray(steps.decision.action), 0, 1)
    teaches = np.asarray(played.teaches)
    should = np.moveaxis((teaches & (np.asarray(label) >= 0))[:, :, others], (2, 3), (0, 1))
    weight = np.asarray(learned.weight)
    wrong = _uneven("rows after a co-player left", teaches & ~active)
    wrong += _uneven("actions other than what was done", active & (np.asarray(played.action) != done))
    wrong += _uneven("rows that teach but have no weight", should & (weight <= 0), seat_axis=0)
    wrong += _uneven("rows that have weight but nothing to teach", ~should & (weight > 0), seat_axis=0)
    return weight.size, wrong


def _others(subject: Subject) -> np.ndarray:
    """[seat, other] of the learner's seats."""
    return those_after(tuple(subject.seats.tolist()), subject.env.num_agents)


def _uneven(what: str, is_wrong: Bool[np.ndarray, "..."], seat_axis: int = 2) -> list[str]:
    if not is_wrong.any():
        return []
    axes = tuple(axis for axis in range(is_wrong.ndim) if axis != seat_axis)
    seats = np.flatnonzero(is_wrong.any(axis=axes))
    who = f"seat {seats[0]}" if len(seats) == 1 else f"{len(seats)} seats"
    return [f"{int(is_wrong.sum())} {what} ({who})"]


def world_rows(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does the model of the game remember the moves that were made, with what followed them?"""
    statistic = "parts of remembered moves that are not what the last round had"
    one = subject.rounds()[1]
    if "world/remembered" not in one.taps:
        return not_run(statistic, "nobody learns a model of the game here")
    remembered, found = _newest(one), []
    expected = _moves_of(subject, one)
    for name, seen in expected.items():
        found += [f"{name}: {told(d)}" for d in [differences(seen, remembered[name])] if d]
    return exact(statistic, len(found), len(expected), f"{'; '.join(found[:3])} is not what happened")


def _newest(one: Round) -> dict[str, Any]:
    """The last round as the model remembers it, [time, env, ...]."""
    kept = one.taps["world/remembered"]
    steps = one.trajectory.steps.before.first.shape[0]
    slots = kept.moves.action.shape[1]
    start = (int(kept.rounds[0]) - 1) % (slots // steps) * steps
    moves = jax.tree.map(lambda x: np.swapaxes(np.asarray(x)[:, start : start + steps], 0, 1), kept.moves)
    here = moves.before.here
    return {
        "before": moves.before,
        "after": moves.after,
        "action": moves.action,
        "reward": np.where(here, moves.happened.reward, 0),
    }


def _moves_of(subject: Subject, one: Round) -> dict[str, Any]:
    entities, values = subject.env.entities, subject.env.reward_values
    assert entities is not None and values is not None, "the game has been refused otherwise"
    steps = one.trajectory.steps
    read = jax.jit(jax.vmap(jax.vmap(entities.read)))
    before = jax.tree.map(np.asarray, read(steps.state))
    paid = np.abs(np.asarray(steps.after.reward)[..., None] - np.asarray(values)).argmin(axis=-1)
    return {
        "before": before,
        "after": jax.tree.map(np.asarray, read(steps.next_state)),
        "action": np.asarray(steps.decision.action),
        "reward": np.where(before.here, paid, 0),
    }


def imagined_rows(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is what is imagined of this round, with what was noted in it?"""
    statistic = "imagined first steps that do not start from what was seen and noted at a real moment"
    one = subject.rounds()[1]
    if "rows" not in one.taps or isinstance(one.taps["rows"].imagined, tuple):
        return not_run(statistic, "nobody imagines anything here")
    real = one.taps["rows"]
    seen, counts = np.asarray(real.imagined.policy_input), np.asarray(real.imagined.policy.counts)
    is_other = ~np.isclose(seen[..., 0, :], np.asarray(real.policy_input), rtol=CLOSE, atol=CLOSE).all(
        axis=-1
    )
    wrong = _uneven("first steps that start from another moment", is_other & counts[..., 0])
    wrong += _uneven("rows that say nothing", counts & (seen == 0).all(axis=-1))
    if "imagined" in one.taps:
        wrong += _blank(subject, seen, counts, np.asarray(one.taps["imagined"].company))
    active = np.asarray(one.trajectory.steps.before.active)[..., subject.seats]
    wrong += _uneven("first steps of who has left", counts[..., 0] & ~active)
    return exact(statistic, len(wrong), counts.size, wrong[0] if wrong else "")


def _blank(
    subject: Subject,
    seen: Float[np.ndarray, "*rows feature"],
    counts: Bool[np.ndarray, "*rows"],
    company: Bool[np.ndarray, "*rows other"],
) -> list[str]:
    """Rows that say nothing of a co-player who is still there, or something of one who has left."""
    config, own = subject.config(subject.learner), subject.env.observation_size
    if getattr(config, "goal_gate", "none") == "distance":  # who is far from everything is not read
        return []
    name = subject.env.num_agents if config.parameters == "shared_with_id" else 0
    of_others = seen[..., own : seen.shape[-1] - name]
    if not of_others.shape[-1]:
        return []
    each = of_others.reshape(*company.shape, -1)  # numbers about each co-player
    says_nothing, is_there = (each == 0).all(axis=-1), counts[..., None] & company
    found = _uneven("readings of co-players in the game that say nothing", says_nothing & is_there)
    return found + _uneven(
        "readings of co-players that have left", ~says_nothing & counts[..., None] & ~company
    )


DATA = (
    LEDGER,
    Check("rows", "data", "Is what is stored what happened?", "exact", "training", rows, ("repeats",)),
    Check("boundaries", "data", "Does every episode start afresh?", "exact", "nets", boundaries),
    Check(
        "opponent_rows",
        "data",
        "Do models learn from what others did?",
        "exact",
        "algorithms",
        opponent_rows,
        ("rows", "histories"),
    ),
    Check("world_rows", "data", "Does the world model see what followed?", "exact", "algorithms", world_rows),
    Check(
        "imagined_rows",
        "data",
        "Is what is imagined of this very round?",
        "exact",
        "algorithms",
        imagined_rows,
    ),
)
