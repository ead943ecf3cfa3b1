"""How far are a run's critics off, on what is played and on what is imagined? By its last weights."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from coplay.audit.by_seed import at_end
from coplay.audit.finding import Check, Outcome, Verdict
from coplay.audit.slow_returns import Walk, ends_of, explained, slow_advantages, slow_returns
from coplay.audit.subject import Budget, Subject
from coplay.audit.trained import Update
from coplay.errors import BadInput
from coplay.types import Environment, Key

FAILS, DOUBTFUL = 3.0, 1.5  # times the error on what is played
LEAST = 1e-3  # of the variance of returns: who errs by less hardly errs
BARELY = 0.05  # of the greatest reward: returns that deviate by less leave nothing to explain


class Errors(NamedTuple):
    """Mean squared errors of every seat's critic, as shares of the variance of what was earned."""

    played: Float[np.ndarray, " seat"]
    imagined: Float[np.ndarray, " seat"]


def critic_error(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do critics foresee what is earned, and are they no further off on what is imagined?"""
    subject.trained("learns")
    config, updates = getattr(subject.experiment, subject.learner), subject.trained_updates()
    if "estimates" not in updates[0].taps:
        raise BadInput("this learner does not tell what its targets are made of")
    foreseen = np.max(_foreseen(subject, updates), axis=0)  # a fault is what every seed shows
    if not getattr(config, "imagines", False):
        statistic = "share of the variance of returns that critics explain, by seat, in the best seed"
        look = "the rewards that are taught; references"
        return _told(statistic, foreseen, float(foreseen.min()), 0.0, _verdict(foreseen), look)
    errors = [_errors(subject, config, one) for one in updates]
    times = np.min([each.imagined / np.maximum(each.played, LEAST) for each in errors], axis=0)
    statistic = "error of critics on what is imagined, as times that on what is played, by seat"
    parts = [f"{np.median([getattr(each, name) for each in errors]):.3g} {name}" for name in Errors._fields]
    look = (
        f"world_pay, imagined_alike, told_apart; of the variance of returns they err by "
        f"{' and '.join(parts)}, and explain {foreseen.min():.3g} at least"
    )
    return _told(statistic, times, float(times.max()), FAILS, _verdict(foreseen, times), look)


def _verdict(
    foreseen: Float[np.ndarray, " seat"], times: Float[np.ndarray, " seat"] | None = None
) -> Verdict:
    most = 0.0 if times is None else float(times.max())
    return "fail" if most > FAILS else "warn" if most > DOUBTFUL or foreseen.min() < 0 else "pass"


def _told(
    statistic: str,
    by_seat: Float[np.ndarray, " seat"],
    worst: float,
    threshold: float,
    verdict: Verdict,
    look: str,
) -> Outcome:
    return Outcome(
        statistic,
        figure=worst,
        threshold=threshold,
        verdict=verdict,
        next=f"{worst:.3g} at worst; look at {look}",
        by_seat=tuple(float(x) for x in by_seat),
        n=len(by_seat),
    )


def _foreseen(subject: Subject, updates: list[Update]) -> Float[np.ndarray, "seed seat"]:
    """As the run logged it over its last fifth; else of the games that were played afresh. 1 where returns
    hardly vary."""
    logged = [at_end(subject, f"value/{name}") for name in ("explained_variance", "return_std")]
    if all(x is not None and x.shape[1] == len(subject.seats) for x in logged):
        share, deviation = (x for x in logged if x is not None)
    else:
        share, deviation = np.moveaxis(np.array([_of_round(subject, one) for one in updates]), 1, 0)
    return np.where(deviation < BARELY * greatest(subject.env), 1.0, share)


def greatest(env: Environment) -> float:
    """The greatest reward; 0 where a game does not say."""
    return max(map(abs, env.reward_values or env.reward_range or (0.0,)))


def _of_round(subject: Subject, one: Update) -> list[list[float]]:
    """Of every seat: what its critic explains of its returns, and by how much these deviate."""
    config, made = getattr(subject.experiment, subject.learner), one.taps["estimates"]
    made = jax.tree.map(np.asarray, made)
    earned = slow_advantages(made, ends_of(subject, one.trajectory), config.discount, 1.0) + made.value
    columns = [(made.value[..., s], earned[..., s], made.counts[..., s]) for s in range(earned.shape[-1])]
    shares = [explained(value[counts], earned[counts]) for value, earned, counts in columns]
    return [shares, [float(earned[counts].std()) for _, earned, counts in columns]]


def _errors(subject: Subject, config: Any, one: Update) -> Errors:
    """Of as many steps from every moment, to where they are cut."""
    made, imagined, after = one.taps["estimates"], one.taps["imagined"], ends_of(subject, one.trajectory)
    counts = np.asarray(made.counts)
    told = after.terminated, np.broadcast_to(after.truncated[..., None], counts.shape)
    walk = Walk(*[walks(np.asarray(x), config.imagined_steps) for x in (made.reward, made.next_value, *told)])
    goes_on = np.cumprod(~(walk.ends | walk.cut), axis=-1).astype(bool)  # what follows is another game
    is_walked = walks(counts, config.imagined_steps)
    is_walked[..., 1:] &= goes_on[..., :-1]
    returns = slow_returns(walk, config.imagined_steps, config.discount, config.trace)
    played = squared(returns - walks(np.asarray(made.value), config.imagined_steps), is_walked)
    ahead = squared(np.asarray(imagined.advantage), np.asarray(imagined.counts) & counts[..., None])
    earned = np.where(counts, np.asarray(made.value) + np.asarray(made.advantage), np.nan)
    variance = np.nanvar(earned, axis=(0, 1)).clip(1e-8)
    return Errors(played / variance, ahead / variance)


def walks(x: np.ndarray, steps: int) -> np.ndarray:
    """[time, env, seat] as so many steps from every moment, [time, env, seat, step]; the last moments begin
    none."""
    moments = len(x) - steps + 1
    return np.stack([x[step : step + moments] for step in range(steps)], axis=-1)


def squared(
    error: Float[np.ndarray, "time env seat step"], counts: Bool[np.ndarray, "time env seat step"]
) -> Float[np.ndarray, " seat"]:
    """The mean over rows that count."""
    return np.where(counts, error**2, 0.0).sum(axis=(0, 1, 3)) / counts.sum(axis=(0, 1, 3)).clip(1)


CRITICS = (
    Check(
        "critic_error",
        "value",
        "Do critics foresee what is earned?",
        "judgement",
        "algorithms",
        critic_error,
        ("references", "imagined_references", "world_pay"),
    ),
)
