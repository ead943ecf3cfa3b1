"""Is it believed as Bayes' rule has it what co-players are after?

What HOP notes as it plays is compared with every pair of players followed one by one, with networks and rules
written out in NumPy. What searches make of beliefs is asked in `tree_company.py`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from coplay.algorithms.hop_config import HOPConfig
from coplay.audit.captured import quick
from coplay.audit.finding import Check, Outcome, exact, not_run
from coplay.audit.goal_labels import Seen, seen_in
from coplay.audit.small_scale import at_small_scale
from coplay.audit.subject import Budget, Subject
from coplay.experiment import Experiment, algorithms_in_play, build, with_overrides
from coplay.opponents.belief import FLOOR, SUREST
from coplay.opponents.goals import UNKNOWN
from coplay.training.rollout import collect, start_playing
from coplay.types import Environment, Key, PyTree, Seated, Transition, as_played, stream

WATCHED_STEPS, WATCHED_GAMES = 80, 8
CLOSE = 1e-5
LOUD = 100.0  # how much more than at first models say, so that beliefs move


class Rule(NamedTuple):
    """What is kept of a co-player from one episode to the next, as `opponents.between` describes it."""

    start: Any
    prior: Callable  # kept -> [goal]
    keep: Callable  # kept, label or UNKNOWN, posterior [goal], how many goals were given away -> kept
    again: Callable | None = None  # kept, how many -> chance of another


class Mind(NamedTuple):
    """What is thought of one co-player."""

    belief: Float[np.ndarray, " goal"]
    whim: float
    kept: Any
    label: int = UNKNOWN
    shown: int = 0


class Watched(NamedTuple):
    """One step of one co-player."""

    chance: Float[np.ndarray, " goal"]  # of what it did, for each goal
    by_whim: float  # of what it did, for none
    possible: Bool[np.ndarray, " goal"]
    left: Bool[np.ndarray, " goal"]  # possible after the step
    is_in: bool
    told: int  # the goal it gave away, or UNKNOWN
    is_over: bool
    is_new: bool  # new company has come


def belief(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do beliefs follow Bayes' rule, and start anew with every episode?"""
    statistic = f"beliefs noted in play that a slow Bayes' rule does not give, by {CLOSE:g}"
    if subject.experiment is None or "hop" not in algorithms_in_play(subject.experiment):
        return not_run(statistic, "nobody keeps beliefs about goals here")
    seen, count, wrong = 0, 0, []
    for manner in MANNERS:
        played = _played(subject.experiment, manner, key)
        for name, (found, right) in _compared(played).items():
            places = np.argwhere(~(np.abs(found - right) < CLOSE))
            seen, count = seen + right.size, count + len(places)
            for place in places[:1]:
                told = f"{found[tuple(place)]:.4f} and not {right[tuple(place)]:.4f}"
                wrong.append(f"{name} {manner}, {_where(played, place)}: {told}")
    return exact(statistic, count, seen, "; ".join(wrong))


MANNERS = {
    "when it counts": {"acts": "network"},  # company stays for good
    "in new company": {"searched_games": 0.0, "new_company": 1.0},  # with every episode
}


class Played(NamedTuple):
    env: Environment
    config: HOPConfig
    seats: Int[np.ndarray, " seat"]
    models: PyTree  # weights [seat, other, ...]
    steps: Any  # Transition [time, env, ...] of NumPy's arrays
    is_new: Bool[np.ndarray, "time env"]  # new company has come


def _played(experiment: Experiment, manner: str, key: Key) -> Played:
    """Some episodes in a row, by models that are surer than fresh ones."""
    changes = {f"hop.{name}": value for name, value in MANNERS[manner].items()}
    built = build(with_overrides(at_small_scale(experiment), changes))
    stretch = next(stretch for stretch in built.stretches if "hop" in stretch.lineup)
    stays = manner == "when it counts"
    algorithm = as_played(stretch.algorithm) if stays else stretch.algorithm
    params, rows = _louder(algorithm.init(key)), next(m.seats for m in built.members if m.name == "hop")

    @quick
    def play(params: PyTree) -> Transition:
        actor = start_playing(built.env, algorithm, stream(key, "start"), WATCHED_GAMES)
        play_key = stream(key, "play")
        return collect(built.env, algorithm, params, actor, play_key, WATCHED_STEPS, WATCHED_STEPS)[1].steps

    seats = np.flatnonzero(np.array(stretch.lineup) == "hop")
    own = np.array([rows.index(seat) for seat in seats])
    models = jax.tree.map(lambda x: np.asarray(x)[own], params["hop"]["opponents"].own["group"])
    steps = jax.tree.map(np.asarray, play(params))
    return Played(built.env, built.experiment.hop, seats, models, steps, steps.before.first & (not stays))


def _louder(params: PyTree) -> PyTree:
    part = params["hop"]["opponents"]
    group = eqx.tree_at(lambda net: net.layers[-1].weight, part.own["group"], replace_fn=lambda x: LOUD * x)
    return params | {"hop": params["hop"] | {"opponents": Seated(part.own | {"group": group}, part.common)}}


def _where(played: Played, place: Int[np.ndarray, " axis"]) -> str:
    time, game, seat, other = place[:4].tolist()
    begins = ", where an episode begins" if played.steps.before.first[time, game] else ""
    about = _who(played, seat, other)
    return f"seat {played.seats[seat]} about seat {about}, game {game}, step {time}{begins}"


def _who(played: Played, seat: int, other: int) -> int:
    return int(played.seats[seat] + 1 + other) % played.env.num_agents


def _compared(played: Played) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What was noted and what should have been, [time, env, seat, other, ...]."""
    notes = played.steps.decision.notes["hop"]
    belief, whim = np.zeros(notes["belief"].shape), np.zeros(notes["whim"].shape)
    look, seen = played.env.goals.look, seen_in(played.env, played.steps)
    assert look is not None
    each_row = quick(jax.vmap(jax.vmap(jax.vmap(look))))
    looks = [each_row(timestep.observation) for timestep in (played.steps.before, played.steps.after)]
    looks = jax.tree.map(np.asarray, looks)
    for seat, other in np.ndindex(whim.shape[2:]):
        for game, steps in enumerate(_watched(played, seen, looks, seat, other)):
            place = (slice(None), game, seat, other)
            belief[place], whim[place] = _followed(played.config, steps)
    return {"belief": (notes["belief"], belief), "whim": (notes["whim"], whim)}


def _watched(played: Played, seen: Seen, looks: list[Any], seat: int, other: int) -> list[list[Watched]]:
    """A co-player of one seat, in every game and step."""
    (possible, description), (left, _) = looks
    before, who = played.steps.before, _who(played, seat, other)
    legal, action = before.legal[:, :, who], played.steps.decision.action[:, :, who]
    policy = _policy(played, seat, other, before.observation[:, :, who], legal, description[:, :, who])
    by_whim = 1.0 / legal.sum(axis=-1)
    chance = np.take_along_axis(policy, action[:, :, None, None], axis=-1)[..., 0]
    chance = (1.0 - FLOOR) * chance + FLOOR * by_whim[..., None]
    of_player = [x[:, :, who] for x in (possible, left, before.active, seen.shown)]
    arrays: list[Any] = [chance, by_whim, *of_player, seen.is_over, played.is_new]
    times, games = action.shape
    return [[Watched(*(x[time, game] for x in arrays)) for time in range(times)] for game in range(games)]


def _policy(
    played: Played, seat: int, other: int, row, legal, description
) -> Float[np.ndarray, "time env goal action"]:
    """What one model says of every goal, its network written out."""
    goals, is_told = played.env.goals, played.config.models == "goals"
    seen = np.concatenate([row, legal], axis=-1)[:, :, None]
    seen = np.broadcast_to(seen, (*description.shape[:3], seen.shape[-1]))
    x = np.concatenate([seen, description if is_told else np.zeros_like(description)], axis=-1).astype(float)
    for layer in played.models.layers[:-1]:
        x = np.tanh(x @ layer.weight[seat, other] + layer.bias[seat, other])
    last = played.models.layers[-1]
    odds = np.where(legal[:, :, None], np.exp(x @ last.weight[seat, other] + last.bias[seat, other]), 0.0)
    policy = odds / odds.sum(axis=-1, keepdims=True)
    idle = legal & np.isin(np.arange(legal.shape[-1]), goals.idle)
    for goal in goals.aimless if is_told else ():
        policy[:, :, goal] = idle / np.maximum(idle.sum(axis=-1, keepdims=True), 1)
    return policy


def _followed(config: HOPConfig, steps: list[Watched]) -> tuple[np.ndarray, np.ndarray]:
    """What is believed before each step, and the chance that it wants nothing."""
    rule = RULES[config.between](len(steps[0].possible))
    fresh = Mind(rule.prior(rule.start), config.whim, rule.start)
    mind, beliefs, whims = fresh, [], []
    for now in steps:
        mind = fresh if now.is_new else mind
        beliefs.append(_over_possible(mind.belief, now.possible))
        whims.append(mind.whim)
        mind = _after_step(config, rule, mind, now) if now.is_in else mind
        mind = _after_episode(config, rule, mind) if now.is_over else mind
    return np.array(beliefs), np.array(whims)


def _over_possible(belief: Float[np.ndarray, " goal"], possible: Bool[np.ndarray, " goal"]) -> np.ndarray:
    left = belief * possible
    return left / left.sum() if left.any() else np.full(len(belief), 1.0 / len(belief))


def _after_step(config: HOPConfig, rule: Rule, mind: Mind, now: Watched) -> Mind:
    """b(g) * pi(a | g) / Z; goals that cannot be had gain and lose nothing."""
    for_goals = float(_over_possible(mind.belief, now.possible) @ now.chance)
    moved = mind.belief * np.where(now.possible, now.chance, for_goals)
    moved = moved / moved.sum()
    by_whim = mind.whim * now.by_whim
    whim = min(by_whim / (by_whim + (1.0 - mind.whim) * for_goals), SUREST)
    has_told = now.told != UNKNOWN
    shown = mind.shown + int(has_told)
    label = int(now.told) if has_told and now.possible.all() else mind.label
    others = now.left & (np.arange(len(moved)) < len(moved) - 1)
    if has_told and rule.again and others.any():
        chance = rule.again(mind.kept, shown)
        moved = np.append(chance * _over_possible(moved, others)[:-1], 1.0 - chance)
    if config.within == "none":
        moved, whim = mind.belief, mind.whim
    return Mind(moved, whim, mind.kept, label, shown)


def _after_episode(config: HOPConfig, rule: Rule, mind: Mind) -> Mind:
    """Of whoever wanted something, what it came to is kept; the next episode starts from there."""
    prior, stays = rule.prior(mind.kept), 0.0 if config.between == "none" else 0.9
    posterior = prior + (1.0 - mind.whim) * (mind.belief - prior)
    kept = rule.keep(mind.kept, UNKNOWN if mind.whim > 0.5 else mind.label, posterior, mind.shown)
    return Mind(rule.prior(kept), stays * mind.whim + (1.0 - stays) * config.whim, kept)


# --- rules between episodes ----------------------------------------------------------------------


def _even(count: int) -> Float[np.ndarray, " goal"]:
    return np.full(count, 1.0 / count)


def _is(label: int, count: int) -> Float[np.ndarray, " goal"]:
    return (np.arange(count) == label).astype(float)


def _none(count: int) -> Rule:
    return Rule(_even(count), lambda kept: kept, lambda kept, label, posterior, shown: kept)


def _counters(count: int, start: float = 1.0) -> Rule:
    def keep(kept, label, posterior, shown):
        return kept if label == UNKNOWN else 0.995 * kept + _is(label, count)

    return Rule(np.full(count, start), lambda kept: kept / kept.sum(), keep)


def _average(count: int) -> Rule:
    def keep(kept, label, posterior, shown):
        return kept if label == UNKNOWN else 0.98 * kept + 0.02 * _is(label, count)

    return Rule(_even(count), lambda kept: kept, keep)


def _sticky(count: int, stay: float = 0.9) -> Rule:
    def keep(kept, label, posterior, shown):
        return stay * posterior + (1.0 - stay) / count

    return Rule(_even(count), lambda kept: kept, keep)


def _removal_count(count: int) -> Rule:
    """How many goals are given away in an episode, at first by Poisson(1); what is beyond is put to 0."""
    start = np.exp(-1.0) / np.array([float(math.factorial(number)) for number in range(count)])
    start[0] += 1.0 - start.sum()

    def again(kept, shown):
        return kept[shown + 1 :].sum() / max(kept[shown:].sum(), 1e-9)

    def prior(kept):
        chance = again(kept, 0)
        return np.append(np.full(count - 1, chance / (count - 1)), 1.0 - chance)

    def keep(kept, label, posterior, shown):
        return 0.98 * kept + _is(min(shown, count - 1), count)

    return Rule(start, prior, keep, again)


def _weighed(count: int) -> Rule:
    """Four rules, each trusted by the chance it gave to what was seen, the past fading."""
    rules = [_none(count), _sticky(count), _sticky(count, 0.99), _counters(count, 0.3)]

    def priors(kept):
        return np.array([rule.prior(one) for rule, one in zip(rules, kept[0], strict=True)])

    def prior(kept):
        trust = np.exp(kept[1])
        return trust @ priors(kept) / trust.sum()

    def keep(kept, label, posterior, shown):
        evidence = priors(kept) @ (posterior / prior(kept))
        after = [rule.keep(one, label, posterior, shown) for rule, one in zip(rules, kept[0], strict=True)]
        return after, 0.9 * kept[1] + np.log(evidence)

    return Rule(([rule.start for rule in rules], np.zeros(len(rules))), prior, keep)


RULES: dict[str, Callable[[int], Rule]] = {
    "counters": _counters,
    "average": _average,
    "removal_count": _removal_count,
    "sticky": _sticky,
    "weighed": _weighed,
    "none": _none,
}

BELIEFS = (
    Check("belief", "models", "Do beliefs follow Bayes' rule?", "exact", "opponents", belief, ("labels",)),
)
