"""Does an update read what was played, and leave alone what it should not move?

A recorded update is made again: with noise where players have left, and with every learning rate at 0.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from coplay.audit.captured import Round, update_key
from coplay.audit.compare import all_disturbed, changed_modules, module_at, modules, without_rates
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.subject import Budget, Subject
from coplay.audit.usage import descents
from coplay.types import Key, PyTree, Trajectory

CLOSE, LOUD = 1e-5, 0.1  # difference; noise on every weight, where something is to be heard


def departed(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does what is stored for players that have left reach anybody?"""
    statistic = "networks that learn otherwise when rows of players that have left are filled with noise"
    one = subject.rounds()[1]
    if any(getattr(subject.config(name), "learning_reward", "own") != "own" for name in subject.learners):
        return not_run(statistic, "players that have left go on earning with the team here")
    gone = ~one.trajectory.steps.before.active
    if not bool(jnp.any(gone)):
        return not_run(statistic, "nobody leaves this game before it ends")
    params, haunted = one.before.params, _haunted(one, gone, key)
    plainly, noisy = (after_update(subject, one, params, t)[0] for t in (one.trajectory, haunted))
    wrong = [module.name for module, rows in changed_modules(plainly, noisy).items() if rows.any()]
    what = f"{', '.join(wrong[:3])} learn from players that have left" if wrong else ""
    if wrong and _heard_in_play(subject, one, haunted, key):
        what, room = f"{what}, who are heard in play, too: is what they see masked?", "nets"
        return exact(statistic, len(wrong), len(modules(params)), what, room=room)
    return exact(statistic, len(wrong), len(modules(params)), what)


def _heard_in_play(subject: Subject, one: Round, haunted: Trajectory, key: Key) -> bool:
    """Whether those who are still there act otherwise for what those who have left would see, were this the
    first step of a game."""
    remember = subject.learning_job().stretches[0].algorithm.remember
    before = one.trajectory.steps.before
    there = np.asarray(before.active)
    time = int(np.argmax(np.sum(~there.all(axis=2) & there.any(axis=2), axis=1)))  # most have lost some

    loud, memory = all_disturbed(one.before.params, key, LOUD), remember(there.shape[1])
    state = one.before.actor.env_state  # for who plans; any will do

    def policy(trajectory: Trajectory) -> np.ndarray:
        timestep = jax.tree.map(lambda x: x[time], trajectory.steps.before)
        timestep = dataclasses.replace(timestep, first=jnp.ones_like(timestep.first))
        return np.asarray(subject.parts().act(loud, memory, timestep, state, key)[1].policy)

    apart = np.abs(policy(one.trajectory) - policy(haunted)).max(axis=-1)
    return bool(np.any(there[time] & (apart > CLOSE)))


def after_update(subject: Subject, one: Round, params: PyTree, trajectory: Trajectory | None = None):
    """Weights and figures after a round's update."""
    played = one.trajectory if trajectory is None else trajectory
    (after, _, figures), _ = subject.parts().learn(params, one.before.learner, played, update_key(one.before))
    return after, figures


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
    if moved == 0.0 and not _in_one_step(one):
        wrong.append("policy/kl stays 0 while the policy learns: are old log-probabilities made anew?")
    return exact(statistic, len(wrong), len(apart) + len(figures) + 1, wrong[0] if wrong else "")


def _in_one_step(one: Round) -> bool:
    """Policies are told before they descend, so of a single step nothing of what it moved is seen."""
    own = [descent for name, descent in descents(one).items() if "policy" in name.split("+")]
    return bool(own) and all(descent.epochs * descent.minibatches == 1 for descent in own)


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


ONE_UPDATE = (
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
)
