"""How often does descent use what was played? Columns, steps and samples of the learner's own update.

`fit` tells what it goes over while an update is traced (`stages.Descent`), and optimisers count their steps.
Both are held against the learner's settings.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from coplay.audit.captured import Round
from coplay.audit.compare import own_tensors
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.subject import Budget, Subject
from coplay.training import stages
from coplay.training.stages import DESCENT, Descent, descent_name
from coplay.types import Key

SETTINGS = {  # a network that a descent moves, and the settings that say how often, in how many pieces
    "policy": ("epochs", "minibatches"),
    "others": ("model_epochs", "model_minibatches"),
    "model": ("model_epochs", "model_minibatches"),
    "q": ("pursuit_epochs", "pursuit_minibatches"),
    "world": (1, "world_steps"),
}
WHOLE = ("policy", "others", "model")  # those that go over all that was played, one row for every step
MOVED = re.compile(r"\.mu\['(\w+)'\]")  # a network's place in what an optimiser remembers


def samples(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is every column of the learner's own batches gone over as often as its settings say, whole?"""
    statistic = "columns that descent used more or less often than settings say, or mixed up"
    told = descents(subject.rounds()[1])
    if not told:
        return not_run(statistic, "this learner does not tell how often it goes over what was played (`fit`)")
    config, wrong, count = subject.config(subject.learner), [], 0
    for name, descent in told.items():
        planned = _planned(config, name, descent)
        if planned is None:
            return not_run(statistic, f"no settings say how often {name} goes over what was played")
        uses, mixed = _uses(descent, key)
        others, count = int(np.sum(~np.isclose(uses, planned[0], atol=1e-3))), count + descent.columns
        if others:
            times = f"{uses.min():.3g} to {uses.max():.3g} times, not {planned[0]}"
            wrong.append((others, f"{others} of {descent.columns} columns of {name} were used {times}"))
        if mixed:
            wrong.append((1, f"what belongs to one column of {name} is shuffled apart"))
        wrong += [(1, said) for said in _left_out(subject, name, descent)]
    return exact(statistic, sum(number for number, _ in wrong), count, "; ".join(said for _, said in wrong))


def descents(one: Round) -> dict[str, Descent]:
    """What `fit` went over in a round's update, by the networks it moved."""
    told = {name.removeprefix(DESCENT): x for name, x in one.taps.items() if name.startswith(DESCENT)}
    return {name: Descent(*map(int, descent)) for name, descent in told.items()}


def _planned(config: Any, name: str, descent: Descent) -> tuple[int, int] | None:
    """Epochs, and minibatches in each, by the settings; those that cut the columns evenly."""
    known = next((SETTINGS[network] for network in name.split("+") if network in SETTINGS), None)
    epochs, most = (
        getattr(config, field, None) if isinstance(field, str) else field
        for field in known or ("epochs", "minibatches")
    )
    if epochs is None or most is None:
        return None
    return epochs, max(number for number in range(1, most + 1) if descent.columns % number == 0)


def _left_out(subject: Subject, name: str, descent: Descent) -> list[str]:
    """Whether what is gone over is not as much as was played, where it should be all of it."""
    work, rows = subject.learning_job(), descent.columns * descent.rows
    played = work.num_envs * work.num_steps
    if rows == played or not set(name.split("+")) & set(WHOLE):
        return []
    return [f"{name} goes over {rows} steps of {played} that were played"]


def _uses(descent: Descent, key: Key) -> tuple[np.ndarray, bool]:
    """How often such a descent sees each column, by a loss whose gradient counts; and whether whole."""
    columns = descent.columns
    number = jnp.arange(columns, dtype=jnp.float32)[:, None]
    batch = {"is": jnp.eye(columns)[:, None], "number": number, "again": number}

    def loss(weights, chunk):
        apart = jnp.sum(chunk["number"] != chunk["again"])
        seen = jnp.sum(chunk["is"], axis=(0, 1))
        return jnp.sum(weights["fit"]["seen"] * seen) + weights["fit"]["apart"] * apart, {}

    weights = {"fit": {"seen": jnp.zeros(columns), "apart": jnp.zeros(())}}
    optimiser = optax.sgd(1.0)
    chunk_columns = max(1, descent.chunk_rows // descent.rows)  # each column is of one row here
    plan = stages.Fit(descent.epochs, descent.minibatches, chunk_columns)
    descend = stages.fit(loss, optimiser, plan)
    # counted as one: what is summed over a minibatch is not divided by how much it is
    after, _, _ = descend(weights, optimiser.init(weights), batch, lambda chunk: jnp.float32(0), key)
    return 0.0 - np.asarray(after["fit"]["seen"]), bool(after["fit"]["apart"] != 0)


# --- steps ----------------------------------------------------------------------------------------


def steps_taken(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does every seat's optimiser take as many steps as settings say, on the rows it should?"""
    statistic = "seats and rounds with other counts of optimiser steps or samples than there should be"
    if any(getattr(subject.config(name), "stop_kl", None) is not None for name in subject.learners):
        return not_run(statistic, "seats stop by themselves here (stop_kl)")
    wrong, seen = [], 0
    for number, one in enumerate(subject.rounds()):
        planned = _planned_steps(subject, one)
        for path, before, after in _counts(one):
            seen += 1
            taken, should = after - before, planned.get(path)
            if (taken != taken.flat[0]).any():
                wrong.append(f"round {number}, {path}: steps by seat are {taken.ravel()[:8].tolist()}")
            elif should is not None and (after != (number + 1) * should).any():
                steps = f"{after.flat[0]} steps in {number + 1} rounds, not {should} in each"
                wrong.append(f"round {number}, {path}: {steps}")
        wrong += _other_samples(subject, number, one)
    room = "algorithms" if wrong and wrong[0].endswith("samples") else ""
    if not seen:
        return not_run(statistic, "this learner's optimisers do not count their steps")
    return exact(statistic, len(wrong), seen, wrong[0] if wrong else "", room=room)


def _counts(one: Round) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Optimisers' own counts of steps, before and after a round."""
    before = jax.tree_util.tree_leaves_with_path(one.before.learner)
    pairs = zip(before, jax.tree.leaves(one.after.learner), strict=True)
    return [
        (jax.tree_util.keystr(path), np.asarray(a), np.asarray(b))
        for (path, a), b in pairs
        if jax.tree_util.keystr(path).endswith(".count") and jnp.issubdtype(a.dtype, jnp.integer)
    ]


def _planned_steps(subject: Subject, one: Round) -> dict[str, int]:
    """How many steps each optimiser should take in a round, by the path of its count: the networks that it
    remembers moments of are those that one descent moves."""
    if len(subject.learners) > 1:
        return {}
    told, config = descents(one), subject.config(subject.learner)
    kept = jax.tree_util.tree_leaves_with_path(one.after.learner)
    leaves = [jax.tree_util.keystr(path) for path, _ in kept]
    found = {}
    for path, _, _ in _counts(one):
        chain = re.sub(r"\[\d+\]\.count$", "", path)
        moved = {m for leaf in leaves if leaf.startswith(chain) for m in MOVED.findall(leaf)}
        name = descent_name(moved).removeprefix(DESCENT)
        planned = _planned(config, name, told[name]) if name in told else None
        if planned is not None:
            found[path] = planned[0] * planned[1]
    return found


def _other_samples(subject: Subject, number: int, one: Round) -> list[str]:
    """Samples that the policy is said to have learned from, against rows in the game times the epochs that
    descent went through."""
    rows, said = one.taps.get("rows"), one.metrics.get("count/samples/policy")
    if rows is None or said is None or len(subject.learners) > 1:
        return []
    epochs = next((d.epochs for name, d in descents(one).items() if "policy" in name.split("+")), None)
    if epochs is None:
        return []
    valued, said = np.asarray(rows.valued).sum(axis=(0, 1)), np.asarray(said)[subject.seats]
    is_pooled = len(np.unique(said)) == 1 and not own_tensors(one.before.params)
    should = np.full(said.shape, valued.sum()) if is_pooled else valued
    is_other = ~np.isclose(said, epochs * should)
    seats = subject.seats
    return [f"round {number}: seat {seats[s]} counts {said[s]:g} samples" for s in np.flatnonzero(is_other)]


USAGE = (
    Check("samples", "pipeline", "Is every sample used equally often?", "exact", "training", samples),
    Check(
        "steps_taken",
        "pipeline",
        "Does every seat take as many steps as settings say?",
        "exact",
        "training",
        steps_taken,
    ),
)
