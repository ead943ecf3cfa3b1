"""What a meeting came to: scores by episode, how soon the others were understood, how well foreseen.

Plain NumPy on what `adaptation.play` returns, for one set of weights; only the exact filter runs in JAX.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coplay.evaluation.adaptation import UNKNOWN, WATCHED_EPISODES, Ends, Protocol, Seen
from coplay.players.scripted import PlayerRows, ScriptedPlayer, bayes_filter
from coplay.types import Transition

SURE = 0.9
SHOWN_STEPS = 10
LEAST_SPAN = 0.05  # nats between frequencies and the filter; with less there is nothing to be skilled in
LEAST = 1e-9  # probability that a surprise is counted with


class Episodes(NamedTuple):
    """By game and number of the episode, NaN where it was not played to its end."""

    value: np.ndarray  # [game, episode]: the return, as a mean over the focal seats
    last_step: np.ndarray
    length: np.ndarray


def episodes(early: Ends, late: Ends, seats: tuple[int, ...], kept: int) -> Episodes:
    """Of all games; only the first `kept` of them have a late part."""
    watched, games = early.over.shape
    shape = (watched + late.over.shape[0], games)

    def joined(early, late):
        whole = np.zeros(shape, np.asarray(early).dtype)
        whole[:watched], whole[watched:, :kept] = early, late
        return whole

    def own(episode_return):
        return np.asarray(episode_return)[..., list(seats)].mean(axis=-1)

    over = joined(early.over, late.over)
    value = joined(own(early.episode_return), own(late.episode_return))
    length = joined(early.length, late.length)
    step, game = np.nonzero(over)
    number = (np.cumsum(over, axis=0) - 1)[step, game]
    table = np.full((3, games, over.sum(axis=0).max()), np.nan)
    table[:, game, number] = value[step, game], step + 1, length[step, game]
    return Episodes(*table)


def scores(found: Episodes, protocol: Protocol) -> np.ndarray:
    """By game that went on: the mean return of its episodes that ended in the last part of the steps."""
    value, last_step = found.value[: protocol.kept_games], found.last_step[: protocol.kept_games]
    counts = last_step > protocol.steps * (1 - protocol.scored)
    has_any = counts.any(axis=1)
    return (np.where(counts, value, 0.0).sum(axis=1) / np.maximum(counts.sum(axis=1), 1))[has_any]


def per_step(found: Episodes, protocol: Protocol) -> float:
    """Return per step in the episodes that are scored."""
    counts = found.last_step[: protocol.kept_games] > protocol.steps * (1 - protocol.scored)
    value, length = found.value[: protocol.kept_games], found.length[: protocol.kept_games]
    return float(value[counts].sum() / max(length[counts].sum(), 1))


def curve(found: Episodes, protocol: Protocol) -> np.ndarray:
    """Mean return of each episode, as far as every game has finished it: short ones are not favoured."""
    kept = found.value[: protocol.kept_games]
    early = found.value[:, :WATCHED_EPISODES]
    whole = ~np.isnan(early).any(axis=0)
    late = kept[:, WATCHED_EPISODES:]
    late = late[:, ~np.isnan(late).any(axis=0)]
    return np.concatenate([early[:, whole].mean(axis=0), late.mean(axis=0)])


def few_shot(found: Episodes) -> np.ndarray:
    """By game: the mean of episodes 6 to 10."""
    return found.value[:, 5:WATCHED_EPISODES].mean(axis=1)


# --- beliefs -------------------------------------------------------------------------------------


def belief_figures(seen: Seen, seat: int) -> dict[str, Any] | None:
    """How sure the player in `seat` is of what the others are truly after; None where nobody can tell."""
    if isinstance(seen.belief, tuple):
        return None
    goal, counts = np.asarray(seen.goal)[..., others_of(seen, seat)], _counted(seen, seat)
    counts = counts & (goal != UNKNOWN)
    if not counts.any():
        return None
    sure = np.take_along_axis(np.asarray(seen.belief), np.maximum(goal, 0)[..., None], axis=-1)[..., 0]
    step = steps_in_episode(np.asarray(seen.steps.before.first))
    means = [_mean(sure, counts & (step == k)[..., None]) for k in range(SHOWN_STEPS)]
    return {"in_true_goal": means, **sure_from(sure, counts, step)}


def others_of(seen: Seen, seat: int) -> np.ndarray:
    """In the order they sit after it, as beliefs are kept."""
    agents = seen.goal.shape[-1]
    return (seat + np.arange(1, agents)) % agents


def _counted(seen: Seen, seat: int) -> np.ndarray:
    """Where both the one who looks and the one looked at are in the game, [step, game, other]."""
    active = np.asarray(seen.steps.before.active)
    return active[..., others_of(seen, seat)] & active[..., seat, None]


def _mean(values: np.ndarray, counts: np.ndarray) -> float | None:
    return float(values[counts].mean()) if counts.any() else None


def steps_in_episode(first: np.ndarray) -> np.ndarray:
    """[step, game]: 0 where an episode begins."""
    number = np.arange(len(first))[:, None]
    return number - np.maximum.accumulate(np.where(first, number, 0), axis=0)


def sure_from(sure: np.ndarray, counts: np.ndarray, step: np.ndarray) -> dict[str, float | None]:
    """From which step of an episode on the belief in the true goal stays high; how often it never does."""
    reached, never = [], 0
    for game in range(step.shape[1]):
        begins = np.nonzero(step[:, game] == 0)[0]
        for begin, end in itertools.pairwise(begins):
            for other in range(sure.shape[2]):
                own = sure[begin:end, game, other][counts[begin:end, game, other]]
                if len(own) == 0:
                    continue
                doubts = np.nonzero(own < SURE)[0]
                start = doubts[-1] + 1 if len(doubts) else 0
                if start < len(own):
                    reached.append(start)
                else:
                    never += 1
    episodes = len(reached) + never
    return {
        "steps_to_90": float(np.mean(reached)) if reached else None,
        "never_90": never / episodes if episodes else None,
    }


# --- models of co-players ------------------------------------------------------------------------


def model_figures(
    seen: Seen, seat: int, scripts: dict[int, ScriptedPlayer], known: list[ScriptedPlayer]
) -> dict[str, float] | None:
    """How well scripted co-players were foreseen, beside the best that can be done without being told who
    they are: an exact filter over the `known` players and themselves.

    Skill is 0 for the guess by how often each action is taken, 1 for that filter; NaN if the two are alike.
    """
    if isinstance(seen.prediction, tuple) or not scripts:
        return None
    counts, order = _counted(seen, seat), list(others_of(seen, seat))
    gathered: dict[str, list[np.ndarray]] = {name: [] for name in ("model", "bayes", "frequency")}
    actions = []
    for script, seats in _by_script(scripts):
        best = best_predictions(seen, seats, script, known)
        for place, other in enumerate(seats):
            mask = counts[..., order.index(other)]
            action = np.asarray(seen.steps.decision.action)[..., other][mask]
            legal = np.asarray(seen.steps.before.legal)[..., other, :][mask]
            gathered["model"].append(np.asarray(seen.prediction)[..., order.index(other), :][mask])
            gathered["bayes"].append(best[place][mask])
            gathered["frequency"].append(_by_frequency(action, legal))
            actions.append(action)
    action = np.concatenate(actions)
    guesses = {name: np.concatenate(parts) for name, parts in gathered.items()}
    surprise = {name: float(np.mean(_surprise(guess, action))) for name, guess in guesses.items()}
    right = {name: float(np.mean(guess.argmax(axis=-1) == action)) for name, guess in guesses.items()}
    span = surprise["frequency"] - surprise["bayes"]
    return {
        "top1": right["model"],
        "bayes_top1": right["bayes"],
        "surprise": surprise["model"],
        "bayes_surprise": surprise["bayes"],
        "frequency_surprise": surprise["frequency"],
        "skill": (surprise["frequency"] - surprise["model"]) / span if span > LEAST_SPAN else float("nan"),
    }


def _by_script(scripts: dict[int, ScriptedPlayer]) -> list[tuple[ScriptedPlayer, list[int]]]:
    """Every script with the seats it holds."""
    seats: dict[int, list[int]] = {}
    for seat, script in scripts.items():
        seats.setdefault(id(script), []).append(seat)
    return [(scripts[held[0]], held) for held in seats.values()]


def best_predictions(
    seen: Seen, seats: list[int], script: ScriptedPlayer, known: list[ScriptedPlayer]
) -> np.ndarray:
    """[seat, step, game, action]: what the exact filter expects of the players in these seats."""
    players = [player for player in known if player.name != script.name] + [script]

    def one_game(steps: Transition, seat):
        before, after = steps.before, steps.after
        rows = PlayerRows(
            observation=before.observation[:, seat],
            legal=before.legal[:, seat],
            action=steps.decision.action[:, seat],
            after=after.observation[:, seat],
            active=before.active[:, seat],
            first=before.first,
        )
        return bayes_filter(players, jnp.ones(len(players)), rows).prediction

    each_game = jax.vmap(one_game, in_axes=(1, None), out_axes=1)
    each_seat = jax.jit(jax.vmap(each_game, in_axes=(None, 0)))
    return np.asarray(each_seat(seen.steps, jnp.array(seats)))


def _by_frequency(action: np.ndarray, legal: np.ndarray) -> np.ndarray:
    share = np.bincount(action, minlength=legal.shape[-1]) / max(len(action), 1)
    guess = np.where(legal, share, 0.0)
    return guess / np.maximum(guess.sum(axis=-1, keepdims=True), LEAST)


def _surprise(guess: np.ndarray, action: np.ndarray) -> np.ndarray:
    return -np.log(np.maximum(np.take_along_axis(guess, action[:, None], axis=-1)[:, 0], LEAST))
