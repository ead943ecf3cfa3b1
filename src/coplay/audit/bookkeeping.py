"""Are figures those of who earned them, and does the loop do what its parts do?

The same updates are made twice: by the product's loop, with its folder and scores, and by hand from its parts
(`captured.py`). They are compiled otherwise, so that rounding may now and then tip a drawn action and send
one game another way; what differs for one seed must differ for another, too, before it counts.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from coplay.audit import captured, small_scale
from coplay.audit.captured import Parts, Round, rounds_from
from coplay.audit.compare import differences, told
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.small_scale import SmallRun
from coplay.audit.subject import Budget, Subject
from coplay.experiment import with_overrides
from coplay.training.job import Job
from coplay.types import Key, Params, PyTree, Transition, stream

CLOSE = 1e-3  # relative to how far weights moved, or to a figure's size
LOGGED = ("return", "length", "count/episodes")


def ledger(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is the return that is logged for a seat what the game paid it?"""
    statistic = "logged returns and lengths, by seat, that are not the sums of what was paid"
    wrong, seen = [], 0
    rounds = subject.rounds()
    so_far = np.asarray(rounds[0].before.actor.episode_return)
    lengths = np.asarray(rounds[0].before.actor.episode_length)
    for number, one in enumerate(rounds):
        returns, ended, so_far, lengths = _episodes(one, so_far, lengths)
        said, length = np.asarray(one.metrics["return"]), float(one.metrics["length"])
        if len(returns):
            seen += said.size
            paid = returns.mean(axis=0)
            for seat in np.flatnonzero(~np.isclose(said, paid, rtol=1e-4, atol=1e-4)):
                wrong.append(
                    f"update {number}: seat {seat} is said to earn {said[seat]:.4g}, not {paid[seat]:.4g}"
                )
            if not np.isclose(length, np.mean(ended), rtol=1e-4):
                wrong.append(f"update {number}: episodes are said to last {length:.4g} steps")
    if not seen:
        return not_run(statistic, "no episode ended in these rounds")
    return exact(statistic, len(wrong), seen, wrong[0] if wrong else "")


def _episodes(one: Round, so_far: np.ndarray, lengths: np.ndarray):
    """Returns [episode, seat] and lengths of episodes that ended in a round; and of those that go on."""
    after = one.trajectory.steps.after
    over = np.asarray(after.truncated) | np.asarray(after.terminated).all(axis=-1)
    returns, ended = [], []
    for reward, is_over in zip(np.asarray(after.reward), over, strict=True):
        so_far, lengths = so_far + reward, lengths + 1
        returns += list(so_far[is_over])
        ended += list(lengths[is_over])
        so_far, lengths = np.where(is_over[:, None], 0.0, so_far), np.where(is_over, 0, lengths)
    return np.array(returns), np.array(ended), so_far, lengths


def resumes(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Stopped, saved and gone on with: the same bits, normalisers and buffers included?"""
    statistic = "everything after four updates, in one go against saved and loaded half-way"
    run = subject.small_run()
    found = differences(run.whole, run.resumed)
    what = f"{told(found)} is another after it was saved and loaded"
    return exact(statistic, len(found), len(jax.tree.leaves(run.whole)), what)


def loop(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Does training do what its parts do, one after the other, each with what the last one left?"""
    statistic = "modules and figures that the loop makes otherwise than its parts do by hand, for two seeds"
    job, parts = subject.learning_job(), subject.parts()
    first = _apart(job, subject.rounds(), subject.small_run())
    if not first:
        return exact(statistic, 0, captured.ROUNDS + len(LOGGED), "")
    second = _apart_again(subject, parts)
    wrong = [line for line in first if line.partition(":")[0] in {x.partition(":")[0] for x in second}]
    return exact(statistic, len(wrong), captured.ROUNDS + len(LOGGED), "; ".join(wrong[:2]))


def _apart(job: Job, rounds: list[Round], run: SmallRun) -> list[str]:
    begun, by_hand = rounds[0].before.params, rounds[-1].after.params
    whole = jax.tree.map(lambda x: x[0], run.whole.params)
    found = [
        f"{name}: weights are {100 * share:.3g}% of their way from where collecting and learning in turn lead"
        for name, share in _off_course(begun, by_hand, whole).items()
        if not share <= CLOSE * 10
    ]
    for name in LOGGED:
        said = [_logged(run, job, name, number) for number in range(len(rounds))]
        should = [np.atleast_1d(np.asarray(one.metrics[name])) for one in rounds]
        pairs = zip(said, should, strict=True)
        if not all(np.allclose(a, b, rtol=CLOSE, atol=CLOSE, equal_nan=True) for a, b in pairs):
            found.append(f"{name}: the log says otherwise than what was played")
    return found


def _off_course(begun: PyTree, left: PyTree, right: PyTree) -> dict[str, float]:
    """By leaf: how far two ends are apart, as a share of how far the first is from the start."""
    found = {}
    for (path, start), a, b in zip(
        jax.tree_util.tree_leaves_with_path(begun), jax.tree.leaves(left), jax.tree.leaves(right), strict=True
    ):
        if jnp.issubdtype(start.dtype, jnp.floating):
            way = float(jnp.linalg.norm((a - start).ravel()))
            found[jax.tree_util.keystr(path)] = float(jnp.linalg.norm((a - b).ravel())) / max(way, 1e-6)
    return found


def _logged(run: SmallRun, job: Job, name: str, update: int) -> Float[np.ndarray, " seat"]:
    """What the table has of an update, by seat; NaN where it has nothing."""
    table = run.metrics
    is_it = (table["metric"] == name) & (table["step"] == update * job.steps_per_update)
    seats = table["seat"][is_it]
    if len(seats) and seats[0] < 0:
        return table["value"][is_it]
    found = np.full(job.env.num_agents if name.endswith("return") else 1, np.nan)
    found[seats] = table["value"][is_it]
    return found


def _apart_again(subject: Subject, parts: Parts) -> list[str]:
    """The same for another seed."""
    assert subject.experiment is not None
    other = with_overrides(subject.experiment, {"seed": subject.experiment.seed + 1})
    work = subject.learning_job()._replace(seed=other.seed)
    rounds = rounds_from(work, parts, captured.start(work), captured.ROUNDS)
    return _apart(work, rounds, small_scale.run_whole(other))


def scores(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Are scores those of the weights they are logged with, and of the seats that earned them?"""
    statistic = "evaluations whose returns by seat are not what those weights earn in the same games by hand"
    job, run, rounds = subject.learning_job(), subject.small_run(), subject.rounds()
    looks = {
        small_scale.UPDATES: jax.tree.map(lambda x: x[0], run.whole.params),
        small_scale.LOOKS_EVERY: rounds[small_scale.LOOKS_EVERY - 1].after.params,
    }
    wrong, earned_last = [], np.zeros(0)
    for update, params in sorted(looks.items()):
        said = _logged(run, job, "eval/return", update)
        earned = earned_last = _earned(job, subject.parts(), params, update, small_scale.GAMES)
        if not np.allclose(said, earned, rtol=CLOSE, atol=CLOSE):
            seats = np.flatnonzero(~np.isclose(said, earned, rtol=CLOSE, atol=CLOSE))
            wrong.append(
                f"after update {update}, seat {seats[0]} is scored {said[seats[0]]:.4g} and earns "
                f"{earned[seats[0]]:.4g}: are these the weights of that update, and that seat's return?"
            )
    if len(wrong) < len(looks):  # one alone may be a draw that rounding tipped
        return exact(statistic, 0, len(looks), "")
    direct = _direct_score(job, looks[small_scale.UPDATES], small_scale.UPDATES)
    is_right = np.allclose(direct, earned_last, rtol=CLOSE, atol=CLOSE)
    return exact(statistic, len(wrong), len(looks), wrong[0], room="training" if is_right else "evaluation")


def _direct_score(job: Job, params: Params, update: int) -> Float[np.ndarray, " seat"]:
    """What evaluation says of these weights when it is asked by itself."""
    assert job.evaluate is not None
    key = jax.random.fold_in(stream(jax.random.key(job.seed), "evaluation"), update)
    evaluate = captured.quick(job.evaluate(job.stretches[0].algorithm))
    return np.asarray(evaluate(params, key)["eval/return"])


def _earned(job: Job, parts: Parts, params: Params, update: int, games: int) -> Float[np.ndarray, " seat"]:
    """One episode in each game, step by step, with the keys that an evaluation has."""
    key = jax.random.fold_in(stream(jax.random.key(job.seed), "evaluation"), update)
    state, timestep = parts.reset(jax.random.split(stream(key, "reset"), games))
    memory = job.stretches[0].algorithm.remember(games)
    earned, over = np.zeros((games, job.env.num_agents)), np.zeros(games, bool)
    for now in jax.random.split(stream(key, "play"), job.env.horizon):
        memory, decision = parts.play(params, memory, timestep, state, stream(now, "act"))
        later, after = parts.step(state, decision.action, jax.random.split(stream(now, "step"), games))
        memory = parts.watch(params, memory, Transition(timestep, decision, after))
        earned += np.where(over[:, None], 0.0, np.asarray(after.reward))
        over |= np.asarray(after.truncated) | np.asarray(after.terminated).all(axis=-1)
        state, timestep = later, after
    return earned.mean(axis=0)


LEDGER = Check("ledger", "data", "Is what is logged what was paid?", "exact", "training", ledger)
BOOKKEEPING = (  # what the loop as a whole does, so that whatever is narrower comes before
    Check("resumes", "pipeline", "Is a resumed run the same?", "exact", "training", resumes, ("repeats",)),
    Check(
        "loop",
        "pipeline",
        "Does the loop do what its parts do?",
        "exact",
        "training",
        loop,
        ("repeats", "ledger"),
    ),
    Check(
        "scores",
        "pipeline",
        "Are scores those of the weights beside them?",
        "exact",
        "evaluation",
        scores,
        ("loop",),
    ),
)
