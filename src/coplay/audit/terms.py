"""What a loss is made of: does every term weigh what its setting says, pull its way, and is it heard at all?

Learners tell their terms, each with its slope in all weights (`losses.told_terms`), before they descend. The
slope of a loss must be the sum of its terms' slopes, each times what its setting says; where it is not, what
each weighs is found by least squares. And it must be a slope: a small step down it lessens the term by what
it says, or a gradient is cut on its way. Fresh weights say little: the spread of subgoals and the divergence
from the policy that played are next to nothing there. So this is asked of disturbed weights, too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from coplay.algorithms.losses import ToldTerms
from coplay.algorithms.own import is_own
from coplay.algorithms.ppo_config import PPOConfig
from coplay.algorithms.subgoal_stage import ToldSubgoals
from coplay.algorithms.targets import ToldRows
from coplay.audit import captured
from coplay.audit.captured import update_key
from coplay.audit.compare import all_disturbed
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.flags import plain_of
from coplay.audit.small_scale import at_small_scale
from coplay.audit.subject import Budget, Subject
from coplay.experiment import build, job, with_overrides
from coplay.taps import TERMS, heard
from coplay.types import PyTree

SUMS = 1e-4  # of all terms together: rounding
WEIGHS = 0.01  # of a term's weight
STEPS = 1e-3  # of a term's value: a smaller fall is lost in rounding
SLOPES = 0.05  # of what a slope says, after a longer step and a shorter one: what clips make of it shrinks
NOISE = 0.1  # on every weight, where terms are to speak up
QUIET, LOUDEST = 1e-4, 0.9  # share of the gradient, of a term beside those that are needed
LOUD = 5.0  # weight of a term that is to be heard
NOT_TOLD = "this learner does not tell what its losses are made of"
OWN_TERMS = "an algorithm of your own does not say what its terms should weigh"


class Weighed(NamedTuple):
    """How a term enters a loss."""

    sign: float
    setting: str = ""  # that is its weight; "": it counts as it is
    is_added: bool = False  # beside what a learner needs to learn at all


TERM_WEIGHTS = {
    "policy": Weighed(1.0),
    "value": Weighed(1.0, "value_weight"),
    "entropy": Weighed(-1.0, "entropy_weight", True),  # which is sought
    "search": Weighed(1.0, "search_weight"),
    "imagined": Weighed(1.0),
    "imagined_value": Weighed(1.0, "value_weight"),
    "align": Weighed(1.0, "align_weight", True),
    "smooth": Weighed(1.0, "smooth_weight", True),
    "surprise": Weighed(1.0),
    "subgoal": Weighed(1.0, "subgoal_weight", True),
    "ahead": Weighed(1.0),
    "pay": Weighed(1.0, "pay", True),
}


# --- what each term weighs -----------------------------------------------------------------------


def term_weights(subject: Subject, budget: Budget, key: jax.Array) -> Outcome:
    """Is a loss the sum of its terms, each times what its setting says?"""
    statistic = "terms of losses that weigh other than their settings say, never say anything or pull astray"
    config, told = subject.config(subject.learner), told_by(subject)
    if not told or is_own(subject.learner):
        return not_run(statistic, OWN_TERMS if told else NOT_TOLD)
    wrong, strays, seen = [], [], 0
    for name in told[0]:
        learned, loud = (_terms_of(each[name]) for each in told)
        seen += len(loud.values) + 1
        wrong += misweighed(config, loud) + _silent(config, [learned, loud])
        strays += [] if _cuts_slopes(config) else astray(loud)
    _, loud, played = _heard_by(subject)
    wrong += filter(None, [other_surrogate(config, loud), other_errors(config, loud)])
    wrong += filter(None, [other_entropy(config, played, subject.seats)])
    other = [said for each in told[1].values() if (said := other_spread(each))]
    room = "opponents" if other and not wrong + strays else ""
    if (
        len(strays) > 1 and not wrong
    ):  # what several terms have in common is the networks that they go through
        room = "nets"
    found = [*wrong, *strays, *other]
    return exact(statistic, len(found), seen, "; ".join(found[:3]), room=room)


def told_by(subject: Subject) -> list[dict[str, PyTree]]:
    """What learners tell of their losses, by name: as they have learned so far, and disturbed."""
    told = [{n: x for n, x in each.items() if n.startswith(TERMS)} for each in _heard_by(subject)[:2]]
    return told if told[0] else []


def _heard_by(subject: Subject) -> list[dict[str, PyTree]]:
    """The same, and the rows that policies are about to learn from; then of a round that the disturbed
    played, with the chances of what they did ("chances")."""
    return subject.once("terms", lambda: _heard(subject))


def _heard(subject: Subject) -> list[dict[str, PyTree]]:
    one, tell = subject.rounds()[-1], teller(subject)
    after, key = one.after.params, update_key(one.before)
    loud = all_disturbed(after, jax.random.key(subject.seed), NOISE)
    played = subject.parts().collect(loud, one.after.actor, jax.random.key(subject.seed))[1]
    rounds = [(after, one.trajectory), (loud, one.trajectory), (loud, played)]
    heard_of = [tell(params, one.before.learner, trajectory, key) for params, trajectory in rounds]
    heard_of[-1] |= {"chances": played.steps.decision.policy}
    return jax.tree.map(np.asarray, heard_of)


def teller(subject: Subject) -> Callable:
    """A compiled function of weights, learner, trajectory and key: what an update tells of its losses."""

    def make() -> Callable:
        learn = subject.learning_job().stretches[0].algorithm.learn.update
        listening = heard(learn, lambda name: name.startswith(TERMS) or name == "rows")
        return captured.quick(lambda *given: listening(*given)[1])

    return subject.once("teller", make)


def _terms_of(told: ToldTerms | ToldSubgoals) -> ToldTerms:
    return told.terms if isinstance(told, ToldSubgoals) else told


def weight_of(config: Any, name: str) -> float | None:
    """What the settings say a term weighs; None for terms of the user's own that no setting tells of."""
    if name not in TERM_WEIGHTS:
        return getattr(config, "added_terms", {}).get(name)
    term = TERM_WEIGHTS[name]
    return term.sign * (getattr(config, term.setting, 0.0) if term.setting else 1.0)


def misweighed(config: Any, told: ToldTerms) -> list[str]:
    """Which terms have another weight than their setting says, in words; and what else is in the sum."""
    names, found = list(told.values), []
    weights = [weight_of(config, name) for name in names]
    is_known = np.array([weight is not None for weight in weights])
    should = np.array([weight or 0.0 for weight in weights])
    for loss_slope, slopes in zip(*_by_group(told, names), strict=True):
        lengths = np.linalg.norm(slopes, axis=1)
        rest = loss_slope - should @ slopes
        rounding = SUMS * float(np.abs(should) @ lengths)
        if is_known.all() and np.linalg.norm(rest) <= rounding:
            continue  # it adds up; where slopes point one way, what each weighs could not be told anyway
        directions = slopes / np.maximum(lengths, 1e-30)[:, None]
        extra = np.linalg.lstsq(directions.T, rest, rcond=None)[0]
        is_off = is_known & (np.abs(extra) > rounding + WEIGHS * np.abs(should) * lengths)
        weighs = should + extra / np.maximum(lengths, 1e-30)
        found += [_said(names[i], weighs[i], should[i]) for i in np.flatnonzero(is_off)]
        if np.linalg.norm(rest - extra @ directions) > rounding:
            found.append(f"a loss of {', '.join(names)} is not their sum")
    return list(dict.fromkeys(found))


def _by_group(told: ToldTerms, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Slopes of the loss [group, number], and of its terms [group, term, number]."""
    slopes = np.stack([np.asarray(told.slopes[name], np.float64) for name in names], axis=-2)
    numbers = slopes.shape[-1]
    whole = np.asarray(told.loss_slope, np.float64).reshape(-1, numbers)
    return whole, slopes.reshape(-1, len(names), numbers)


def _said(name: str, weighs: float, should: float) -> str:
    setting = TERM_WEIGHTS[name].setting if name in TERM_WEIGHTS else name
    weighs = 0.0 if abs(weighs) < WEIGHS * abs(should) else weighs
    wanted = f"{setting} says {should:.3g}" if setting else f"it should count {should:.3g} times"
    return f"{name} weighs {weighs:.3g} in the loss; {wanted}"


def _silent(config: Any, told: list[ToldTerms]) -> list[str]:
    """Terms that are 0 and have no slope, whatever the weights."""
    asked = [name for name in told[0].values if weight_of(config, name)]
    return [
        f"{name} is 0 whatever the weights"
        for name in asked
        if not any(np.any(each.values[name]) or np.any(each.slopes[name]) for each in told)
    ]


def astray(told: ToldTerms) -> list[str]:
    """Terms that small steps down their own slope lessen by other than the slope says, in words."""
    found = []
    for name, value in told.values.items():
        fell, falls = np.asarray(told.fell[name]), np.asarray(told.falls[name])  # [*group, stride]
        is_asked = falls[..., 0] > STEPS * np.maximum(np.abs(value), 1.0)
        ratios = fell / np.maximum(falls, 1e-30)
        nearest = np.argmin(np.abs(ratios - 1), axis=-1)[..., None]
        ratio = np.where(is_asked, np.take_along_axis(ratios, nearest, axis=-1)[..., 0], 1.0)
        worst = float(ratio.flat[np.argmax(np.abs(ratio - 1))])
        if worst <= 0:
            found.append(f"a step down the slope of {name} does not lessen it: is its gradient its own?")
        elif abs(worst - 1) > SLOPES:
            found.append(f"{name} falls {worst:.2f} times as fast as its gradient says: is all of it there?")
    return found


def _cuts_slopes(config: Any) -> bool:
    """Whether part of the slope is left out on purpose: mixtures' weights that no gradient goes through."""
    return getattr(config, "history_fusion", "off") != "off"


def other_surrogate(config: Any, told: dict[str, PyTree]) -> str:
    """What is wrong with the policy's term, against its formula: minus the sum of the lesser of ratio * A and
    clipped ratio * A.

    Asked of disturbed weights: as long as ratios are 1, most wrong formulas are right."""
    terms, rows = _of_policy(config, told)
    if terms is None or "search" in terms.values:  # which decides some of the rows
        return ""
    counts, advantage = rows.policy.counts, np.float64(rows.policy.advantage)
    ratio = np.exp(np.where(counts, np.float64(rows.again) - rows.policy.log_prob, 0.0))
    clip = config.clip / (rows.again.shape[-1] if config.clip_by_team else 1)
    gain = np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage)
    if config.surrogate_floor is not None:
        gain = np.where(advantage < 0, np.maximum(gain, config.surrogate_floor * advantage), gain)
    said, should = float(np.sum(terms.values["policy"])), -float(gain[counts].sum())
    if abs(said - should) <= 10 * SUMS * max(float(np.abs(gain[counts]).sum()), 1e-3):
        return ""
    return f"the policy's loss is {said:.4g} where its formula has {should:.4g}: is the worse of two taken?"


def other_errors(config: Any, told: dict[str, PyTree]) -> str:
    """What is wrong with the critic's term, against its formula: half the square of each error; beyond
    `huber`, huber * (error - huber / 2). What is predicted is what was, so that nothing is clipped here."""
    terms, rows = _of_policy(config, told)
    if terms is None:
        return ""
    error = np.abs(np.float64(rows.value) - rows.target)[rows.valued]
    huber = np.inf if config.huber is None else config.huber
    each = np.where(error <= huber, 0.5 * error**2, huber * error - 0.5 * huber**2)
    said, should = float(np.sum(terms.values["value"])), float(each.sum())
    if abs(said - should) <= 10 * SUMS * max(should, 1e-3):
        return ""
    return f"the critic's loss is {said:.4g} where its formula has {should:.4g}: huber, or who counts?"


def other_entropy(config: Any, told: dict[str, PyTree], seats: Int[np.ndarray, " seat"]) -> str:
    """What is wrong with the entropy, against its formula, -sum of p log(p), by the chances with which those
    who are about to learn have played."""
    terms, rows = _of_policy(config, told)
    if terms is None or "search" in terms.values:
        return ""
    chances = np.float64(told["chances"][:, :, seats])
    each = -np.sum(chances * np.log(np.where(chances > 0, chances, 1.0)), axis=-1)[rows.policy.counts]
    said, should = float(np.sum(terms.values["entropy"])), float(each.sum())
    if abs(said - should) <= 10 * SUMS * max(should, 1e-3):
        return ""
    return f"the entropy is {said:.4g} nats where its formula has {should:.4g}: who counts?"


def _of_policy(config: Any, told: dict[str, PyTree]) -> tuple[Any, Any]:
    """Its terms, and the rows that they are made of; None where its loss is no PPO's."""
    terms, rows = told.get(TERMS + "policy"), told.get("rows")
    is_known = isinstance(terms, ToldTerms) and isinstance(rows, ToldRows) and isinstance(config, PPOConfig)
    return (terms, rows) if is_known else (None, None)


def other_spread(told: ToldTerms | ToldSubgoals) -> str:
    """What is wrong with the divergence of subgoals, against its formula: between independent Gaussians,
    0.5 * (variance / other + (mean - other mean)^2 / other - 1 - log(variance / other)), over all numbers."""
    if not isinstance(told, ToldSubgoals):
        return ""
    mean, variance = np.float64(told.subgoal.mean), np.exp(2 * np.float64(told.subgoal.log_std))
    other_mean, other = 0.0, 1.0
    if not isinstance(told.target, tuple):
        other_mean, other = np.float64(told.target.mean), np.exp(2 * np.float64(told.target.log_std))
    each = 0.5 * (variance / other + (mean - other_mean) ** 2 / other - 1.0 - np.log(variance / other))
    rows = np.where(told.taught, each.sum(axis=-1), 0.0)
    said = np.asarray(told.terms.values["subgoal"])
    should = rows.reshape(*said.shape, -1).sum(axis=-1)
    if np.allclose(said, should, rtol=10 * SUMS, atol=10 * SUMS * max(float(np.abs(rows).max()), 1e-3)):
        return ""
    return f"the divergence of subgoals is told as {said.sum():.3g} nats and is {should.sum():.3g}"


# --- whether each is heard -----------------------------------------------------------------------


def term_shares(subject: Subject, budget: Budget, key: jax.Array) -> Outcome:
    """Is a term that was added heard, and does it leave the others a say?"""
    statistic = "share of an added term in the gradient of the weights that it reaches, the oddest of all"
    config, told = subject.config(subject.learner), told_by(subject)
    if not told or is_own(subject.learner):
        return not_run(statistic, OWN_TERMS if told else NOT_TOLD)
    by_term: dict[str, list[float]] = {}
    for each in told:
        for one in each.values():
            for name, share in shares(config, _terms_of(one)).items():
                by_term.setdefault(name, []).append(share)
    if not by_term:
        return not_run(statistic, "there is no term beside those that are needed")
    odd = {name: _odd(seen) for name, seen in by_term.items() if _odd(seen)}
    worst = next(iter(odd), min(by_term, key=lambda name: max(by_term[name])))
    return Outcome(
        statistic,
        figure=max(by_term[worst]),
        threshold=QUIET,
        verdict="warn" if odd else "pass",
        next="; ".join(f"{name} {said} the gradient: its weight?" for name, said in odd.items()),
        unit="of the gradient",
        n=len(by_term),
        drawing=_shares_drawn(by_term),
    )


def shares(config: Any, told: ToldTerms) -> dict[str, float]:
    """Of every added term, in the gradient of the weights that it reaches; the mean over groups."""
    names = [name for name in told.values if weight_of(config, name)]
    _, slopes = _by_group(told, names)
    weighed = np.abs(np.array([weight_of(config, name) for name in names]))[None, :, None] * np.abs(slopes)
    found = {}
    for place, name in enumerate(names):
        if name in TERM_WEIGHTS and TERM_WEIGHTS[name].is_added:
            lengths = np.linalg.norm(weighed * (weighed[:, place, None] > 0), axis=-1)
            found[name] = float(np.mean(lengths[:, place] / np.maximum(lengths.sum(axis=-1), 1e-30)))
    return found


def _odd(seen: list[float]) -> str:
    """What is odd about a term's shares, as learned and disturbed: both must be."""
    if max(seen) < QUIET:
        return f"is {max(seen):.1g} of"
    return f"is {min(seen):.2g} of" if min(seen) > LOUDEST else ""


def _shares_drawn(by_term: dict[str, list[float]]) -> dict[str, Any]:
    return {
        "kind": "matrix",
        "title": "share of the gradient",
        "row_name": "term",
        "column_name": "weights",
        "rows": list(by_term),
        "columns": ["as learned", "disturbed"],
        "values": [[round(x, 6) for x in seen] for seen in by_term.values()],
    }


# --- which way each pulls ------------------------------------------------------------------------


def terms(subject: Subject, budget: Budget, key: jax.Array) -> Outcome:
    """Does the entropy term make a policy more even?"""
    statistic = (
        "how much more even a policy is after an update with a loud entropy term than without, in nats"
    )
    name = subject.learner
    if not isinstance(subject.config(name), PPOConfig):
        return not_run(statistic, "this learner has no such term")
    entropies = _entropies(subject, name)
    gains = (entropies[0] - entropies[1])[subject.seats]
    gain = float(np.mean(gains))
    return Outcome(
        statistic,
        figure=gain,
        threshold=0.0,
        verdict="pass" if gain > 0 else "fail",
        next="" if gain > 0 else "the entropy term makes policies less even: its sign?",
        by_seat=tuple(float(x) for x in gains),
        unit="nats",
    )


def _entropies(subject: Subject, name: str) -> list[Float[np.ndarray, " seat"]]:
    """By seat, of policies on the rows they have just learned from, with a loud term and without."""
    assert subject.experiment is not None
    plain = plain_of(subject.experiment, name) or at_small_scale(subject.experiment)
    work = job(build(plain))
    state = captured.start(work)
    _, trajectory, _ = captured.collector(work, work.env)(state.params, state.actor, state.key)
    found = []
    for weight in (LOUD, 0.0):
        loud = {"entropy_weight": weight, "epochs": 8, "learning_rate": 0.01}
        changed = job(build(with_overrides(plain, {f"{name}.{field}": x for field, x in loud.items()})))
        learn = captured.quick(changed.stretches[0].algorithm.learn.update)
        learner = changed.stretches[0].algorithm.learn.init(state.params)
        params, learner, _ = learn(state.params, learner, trajectory, update_key(state))
        found.append(np.asarray(learn(params, learner, trajectory, update_key(state))[2]["policy/entropy"]))
    return found


TERM_CHECKS = (
    Check(
        "term_weights",
        "liveness",
        "Does each term weigh what its setting says?",
        "exact",
        "algorithms",
        term_weights,
    ),
    Check("terms", "liveness", "Does each term pull its way?", "exact", "algorithms", terms),
    Check("term_shares", "liveness", "Is each term heard?", "judgement", "algorithms", term_shares),
)
