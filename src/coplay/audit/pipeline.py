"""How learners start, whether what happens is repeatable, and whether every weight learns. At a small scale.

Whether they are treated alike: `fairness.py`, `renamed_training.py`. How often descent uses what was
played: `usage.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from coplay import types
from coplay.audit import captured, small_scale
from coplay.audit.captured import Round
from coplay.audit.compare import (
    Module,
    changed_modules,
    differences,
    is_still,
    module_at,
    own_tensors,
    plain,
    told,
)
from coplay.audit.fairness import FAIRNESS
from coplay.audit.finding import SHARED, Check, Outcome, exact, not_run
from coplay.audit.subject import Budget, Subject
from coplay.audit.usage import USAGE
from coplay.experiment import build, job, with_overrides
from coplay.nets.mlp import Linear
from coplay.types import Key, PyTree, Seated

UPDATES = 3
NEARLY_EVEN = 0.98  # of the largest entropy there could be
OFF_SCALE = 0.1  # of a layer's scale
DRAWS = 8  # fresh ones, that a start is held against
FEWEST = 16  # numbers that have a scale


# --- before anything is learned ------------------------------------------------------------------


def starts_apart(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do independent learners start with weights of their own?"""
    statistic = "tensors of two independent seats that are equal before training, though drawn"
    work, begun = subject.learning_job(), subject.rounds()[0].before.params
    seen, equal = _equal_rows(begun)
    if not seen:
        return not_run(statistic, SHARED)
    if not equal:
        return exact(statistic, 0, seen, "")
    drawn = work.stretches[0].algorithm.init(jax.random.key(1))
    room = "algorithms" if _equal_rows(drawn)[1] else "training"
    what = f"seat {equal[0][1]} starts with the weights of seat 0 ({equal[0][0]}): one key for all?"
    return exact(statistic, len(equal), seen, what, room=room)


def _equal_rows(params: PyTree) -> tuple[int, list[tuple[str, int]]]:
    """How many rows were compared with the first seat's, and which are equal to it."""
    seen, equal = 0, []
    for path, rows in own_tensors(params):
        for seat in range(1, len(rows)):
            if np.ptp(rows[seat]) > 0 and np.ptp(rows[0]) > 0:
                seen += 1
                equal += [(path, seat)] if np.array_equal(rows[0], rows[seat]) else []
    return seen, equal


def starts_even(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does play start near uniform?"""
    statistic = "surprise at the first decisions, as a share of what an even choice would have, lowest seat"
    rows = subject.rounds()[0].taps.get("rows")
    if rows is None:
        return not_run(statistic, "this learner does not tell what it learns from")
    choice = np.asarray(rows.policy.legal).sum(axis=-1)
    counts = (choice > 1) & np.asarray(rows.policy.counts)
    of_even = np.where(counts, np.log(np.maximum(choice, 2)), 0.0).sum(axis=(0, 1))
    surprise = np.where(counts, -np.asarray(rows.again), 0.0).sum(axis=(0, 1))
    by_seat = np.where(of_even > 0, surprise / np.maximum(of_even, 1e-9), 1.0)
    lowest = int(np.argmin(by_seat))
    is_even = by_seat[lowest] >= NEARLY_EVEN
    return Outcome(
        statistic,
        figure=float(by_seat[lowest]),
        threshold=NEARLY_EVEN,
        verdict="pass" if is_even else "fail",
        next="" if is_even else f"seat {lowest} starts with likes and dislikes: how are last layers drawn?",
        n=int(counts.sum()),
        by_seat=tuple(float(x) for x in by_seat),
    )


def starts_scaled(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is every layer as large as the rule says that it was drawn by, in every seat?"""
    statistic = "layers that start smaller or larger than their rule, fresh draws or other seats have them"
    params, algorithm = subject.begun().params, subject.learning_job().stretches[0].algorithm
    fresh = [types.begun(algorithm, algorithm.init(each)) for each in jax.random.split(key, DRAWS)]
    layers, sizes = _drawn_layers(params, fresh[0]), _sizes(params)
    ruled = [said for place, layer in layers.items() for said in off_rule(place, layer)]
    others = off_draws(sizes, [_sizes(each) for each in fresh])
    room = "training" if others and not ruled else ""
    found = ruled + others
    return exact(statistic, len(found), len(layers) + len(sizes), "; ".join(found[:3]), room=room)


def _drawn_layers(params: PyTree, fresh: PyTree) -> dict[str, Linear]:
    """By their place; what another key leaves as it is was not drawn, but learned elsewhere, say."""
    found, others = (
        jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, Linear))
        for tree in (params, fresh)
    )
    pairs = [(path, x, y) for (path, x), (_, y) in zip(found, others, strict=True) if isinstance(x, Linear)]
    return {
        jax.tree_util.keystr(path): x
        for path, x, y in pairs
        if not np.array_equal(np.asarray(x.weight), np.asarray(y.weight))
    }


def off_rule(place: str, layer: Linear) -> list[str]:
    """Rows or columns of a layer are orthogonal and `gain` long, so that the mean square of its weights is
    gain^2 / the longer side, in every draw. There may be further axes first, such as the seat."""
    weight = np.asarray(layer.weight, np.float64)
    gains = np.sqrt(np.mean(weight**2, axis=(-2, -1)) * max(weight.shape[-2:]))
    is_off = np.abs(gains - layer.gain) > OFF_SCALE * layer.gain
    if not np.any(is_off):
        return []
    return [f"{place} starts with a gain of {gains[is_off].ravel()[0]:.3g}, drawn with {layer.gain:.3g}"]


def _sizes(params: PyTree) -> dict[str, tuple[Float[np.ndarray, " row"], int]]:
    """Root mean squares of every tensor, by seat where seats have their own, and how many numbers each is."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            rows = np.asarray(leaf, np.float64).reshape(leaf.shape[0] if module_at(path).is_own else 1, -1)
            found[jax.tree_util.keystr(path)] = np.sqrt(np.mean(rows**2, axis=1)), rows.shape[1]
    return found


def off_draws(begun: dict, fresh: list[dict]) -> list[str]:
    """Tensors that are off by more than a tenth and four standard errors from fresh draws of the others."""
    found = []
    for place, (sizes, numbers) in begun.items():
        drawn = np.stack([each[place][0] for each in fresh])  # [draw, row]
        for row, size in enumerate(sizes):
            others = np.delete(drawn, row, axis=1) if len(sizes) > 1 else drawn
            mean = float(others.mean())
            error = max(float(others.std(ddof=1)), mean / np.sqrt(2 * numbers))
            if numbers >= FEWEST and abs(size - mean) > OFF_SCALE * mean + 4 * error:
                who = f" of seat {row}" if len(sizes) > 1 else ""
                times = size / max(mean, 1e-30)
                found.append(f"{place}{who} starts {times:.3g} times as large as fresh draws")
    return found


def equal_terms(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are all learners given the same rates, counts and moments to begin with?"""
    statistic = "numbers of the learners' own state that differ between seats before training"
    learner = subject.rounds()[0].before.learner
    found, count = [], 0
    for path, leaf in _own_leaves(learner):
        rows = plain(leaf)
        count += rows[1:].size
        is_other = ~((rows == rows[:1]) | ((rows != rows) & (rows[:1] != rows[:1])))
        if is_other.any():
            found.append((path, int(np.argwhere(is_other)[0][0])))
    if not count:
        return not_run(statistic, SHARED)
    what = f"seat {found[0][1]} is given another {found[0][0]} than seat 0" if found else ""
    return exact(statistic, len(found), count, what)


def _own_leaves(tree: PyTree) -> list[tuple[str, jax.Array]]:
    found = []
    for path, seated in jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda x: isinstance(x, Seated)):
        if isinstance(seated, Seated):
            for below, leaf in jax.tree_util.tree_leaves_with_path(seated.own):
                found.append((jax.tree_util.keystr((*path, *below)), leaf))
    return found


# --- the same again ------------------------------------------------------------------------------


def repeats(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """The same seed twice: the same bits?"""
    statistic = "the start and one update, made and traced anew from the same seed"
    work, first = subject.learning_job(), subject.rounds()[0]
    found = differences(first.before, captured.start(work))
    again = captured.one_round(work, captured.parts_of(work), first.before)
    found += differences(first.after, again.after)
    what = f"{told(found)} came out otherwise the second time"
    return exact(statistic, len(found), len(jax.tree.leaves(first.after)), what)


def seeds_apart(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does another seed give another run?"""
    statistic = "parts of a start that another seed leaves as they were"
    assert subject.learning_job() and subject.experiment is not None
    other = with_overrides(subject.experiment, {"seed": subject.experiment.seed + 1})
    work = job(build(small_scale.at_small_scale(other)))
    begun = subject.rounds()[0].before
    if work.seed != subject.experiment.seed + 1:
        return exact(statistic, 1, 1, "the seed that is given is not the one that is used", room="cli")
    again = captured.start(work)
    moved = changed_modules(begun.params, again.params)
    drawn = _drawn_modules(begun.params)
    same = [module.name for module, rows in moved.items() if not rows.all() and module in drawn]
    same += [] if differences(begun.key, again.key) else ["the key"]
    return exact(
        statistic, len(same), len(moved) + 1, f"{same[0] if same else ''} is the same for another seed"
    )


def _drawn_modules(params: PyTree) -> set[Module]:
    """Those with weights that are not all one number, as they are where a start is not left to chance."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    drawn = {module_at(path) for path, x in leaves if x.size and np.ptp(plain(x)) > 0}
    return {module for module in drawn if module.short != "scale"}


# --- every weight ---------------------------------------------------------------------------------


def moves(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does every weight of every seat learn, but those that are said to stay as they are?"""
    statistic = f"tensors, by seat where seats have their own, that {UPDATES} updates wrongly left, or moved"
    rounds = subject.rounds()
    if not np.any(np.asarray(rounds[0].trajectory.steps.before.observation)):
        return not_run(statistic, "there is nothing to see in this game: first layers have nothing to learn")
    if _remembers_nothing(rounds):
        return not_run(statistic, "every game is over after one step: what reads memory has nothing to learn")
    begun, after = rounds[0].before.params, rounds[UPDATES - 1].after.params
    still, roused, count = _still(begun, after, subject.learning_job().stretches[0].algorithm.still)
    if roused:
        what = f"{roused[0]} moved, and is said to stay as it is"
        return exact(statistic, len(roused) + len(still), count, what, room="algorithms")
    if not still:
        return exact(statistic, 0, count, "")
    path, seat, module, everyones = still[0]
    is_part = everyones and bool(changed_modules(begun, after)[module].any())
    room, why = _why_still(_gradient_of(rounds[UPDATES - 1], module.short), is_part)
    who = "" if seat is None else f" of seat {seat}"
    return exact(statistic, len(still), count, f"{path}{who} did not move: {why}", room=room)


def _remembers_nothing(rounds: list[Round]) -> bool:
    """There is memory, and it always starts afresh."""
    has_memory = bool(jax.tree.leaves(rounds[0].trajectory.memory))
    return has_memory and all(bool(jnp.all(one.trajectory.steps.before.first)) for one in rounds)


def _still(begun: PyTree, after: PyTree, declared: tuple[str, ...]):
    """Tensors that did not move (of which seat, in which network, and whether of all seats alike), those that
    moved though they are declared to stay, and how many in all."""
    still, roused, count = [], [], 0
    pairs = zip(jax.tree_util.tree_leaves_with_path(begun), jax.tree.leaves(after), strict=True)
    for (path, a), b in pairs:
        if jnp.issubdtype(a.dtype, jnp.floating):
            module = module_at(path)
            rows = a.shape[0] if module.is_own else 1
            same = (np.asarray(a) == np.asarray(b)).reshape(rows, -1).all(axis=1)
            count += rows
            if is_still(path, declared):
                roused += [] if same.all() else [jax.tree_util.keystr(path)]
                continue
            seats = [int(s) if module.is_own else None for s in np.flatnonzero(same)]
            still += [(jax.tree_util.keystr(path), seat, module, bool(same.all())) for seat in seats]
    return still, roused, count


def _why_still(gradient: float | None, is_part: bool) -> tuple[str, str]:
    """Where to look for what keeps a tensor from learning, and what to ask there; it may be part of a network
    that learns otherwise."""
    if gradient == 0.0:
        return "nets", "no gradient reaches it"
    if is_part:
        return "nets", "the rest of its network learns, so where is its gradient cut?"
    return "algorithms", "is it in the optimiser, and for every seat?"


def _gradient_of(one: Round, module: str) -> float | None:
    """Size of its gradient where a metric tells it."""
    name = {"critic": "value"}.get(module, module)
    found = one.metrics.get(f"{name}/grad_norm")
    return None if found is None else float(np.nanmax(np.asarray(found)))


PIPELINE = (
    Check("starts_apart", "pipeline", "Do learners start apart?", "exact", "nets", starts_apart),
    Check("starts_even", "pipeline", "Does play start near uniform?", "judgement", "nets", starts_even),
    Check(
        "starts_scaled",
        "pipeline",
        "Is every layer drawn by its rule?",
        "exact",
        "nets",
        starts_scaled,
        ("starts_apart",),
    ),
    Check("equal_terms", "pipeline", "Do learners start on equal terms?", "exact", "algorithms", equal_terms),
    Check("repeats", "pipeline", "Does a seed repeat to the bit?", "exact", "training", repeats),
    Check("seeds_apart", "pipeline", "Is another seed another run?", "exact", "training", seeds_apart),
    *USAGE,
    *FAIRNESS,
    Check(
        "moves", "pipeline", "Does every weight learn?", "exact", "algorithms", moves, ("steps_taken", "rows")
    ),
)
