"""Do errors of a run's model of the game breed, when it is fed what was foretold of a board?

From real boards it foretells, move by move, what the moves that were made lead to; each by one member of an
ensemble, drawn as in imagined play. Errors that add up are no alarm, errors that multiply are.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from coplay.audit import captured
from coplay.audit.by_seed import judged
from coplay.audit.finding import Outcome
from coplay.audit.learned_world import Learned, learned_world
from coplay.audit.subject import Budget, Subject
from coplay.errors import BadInput
from coplay.nets import world as worlds
from coplay.nets.world import World
from coplay.training.rollout import is_over
from coplay.types import Board, Environment, Key, PyTree

AHEAD = (1, 3, 5, 10)  # steps
STARTS = 1024  # from which so many are foretold
ONCE_IN = 0.01  # below such an error growth is not asked about


def growth(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Do errors of the model of the game breed when it is fed what it foretold?"""
    statistic = "error after several steps as a multiple of what independent errors come to, the worst"
    errors = _errors(subject, learned_world(subject), key)
    beyond = [beyond_independent(error) for error in errors]
    ratio = np.array([float(x.max()) for x in beyond])
    look = f"what becomes of boards that cannot be (world_possible); error after one step {errors[0][0]:.3g}"
    return judged(statistic, ratio, 3.0, 1.5, look, least=False, drawing=_growth_drawing(errors))


def beyond_independent(error: Float[np.ndarray, " ahead"]) -> Float[np.ndarray, " ahead"]:
    """e_k as a multiple of 1 - (1 - e_1)^k; 0 where next to nothing is wrong at all."""
    expected = independent(error[0])[: len(error)]
    return np.where(error < ONCE_IN, 0.0, error / np.maximum(expected, 1e-9))


def independent(once: float | np.floating) -> Float[np.ndarray, " ahead"]:
    """What errors of so much at every step come to."""
    return 1.0 - (1.0 - float(once)) ** np.array(AHEAD, float)


def _errors(subject: Subject, learned: Learned, key: Key) -> list[Float[np.ndarray, " ahead"]]:
    foretell = captured.quick(lambda *given: _foretell(subject.env, learned.world, *given))
    read = captured.quick(jax.vmap(learned.world.entities.read))
    found = []
    for members, games in zip(learned.members, learned.games, strict=True):
        lasts = lasting(np.asarray(is_over(games.steps.after)))
        time, env = _starts(lasts)
        later = time[None] + np.arange(AHEAD[-1])[:, None]
        state, after = _at(games.steps.state, time, env), _at(games.steps.next_state, later, env[None])
        told = foretell(members, state, games.steps.decision.action[later, env[None]], key)
        counts = lasts[time, env] >= np.array(AHEAD)[:, None]
        found.append(misplaced(read(state), told, jax.vmap(read)(after), counts))
    return found


def _at(tree: PyTree, time: np.ndarray, env: np.ndarray) -> PyTree:
    return jax.tree.map(lambda x: x[time, env], tree)


def _starts(lasts: Int[np.ndarray, "time env"]) -> tuple[np.ndarray, np.ndarray]:
    """Times and games from which to foretell; moves beyond the end of a round are none."""
    time, env = np.nonzero(np.ones_like(lasts[: len(lasts) - AHEAD[-1] + 1], bool))
    if not len(time) or lasts.max() < AHEAD[1]:
        raise BadInput(f"no episode lasts for {AHEAD[1]} steps")
    chosen = np.linspace(0, len(time) - 1, min(STARTS, len(time))).astype(int)
    return time[chosen], env[chosen]


def lasting(over: Bool[np.ndarray, "time env"]) -> Int[np.ndarray, "time env"]:
    """How many moves of its episode begin with each, up to the end of the round."""
    lasts, later = np.zeros(over.shape, int), np.zeros(over.shape[1:], int)
    for time in reversed(range(len(over))):
        later = np.where(over[time], 1, later + 1)
        lasts[time] = later
    return lasts


def _foretell(env: Environment, world: World, members: PyTree, state: PyTree, action, key: Key) -> Board:
    """Boards [step, row, ...] after the moves that were made, each from the one before as it was foretold."""

    def one_step(state, given):
        action, key = given
        keys = jax.random.split(key, action.shape[0])
        state, *_ = jax.vmap(
            lambda state, action, key: worlds.imagined_by_some(
                env, world, members, state, action, key, jnp.int32(0)
            )
        )(state, action, keys)
        return state, jax.vmap(world.entities.read)(state)

    return jax.lax.scan(one_step, state, (action, jax.random.split(key, AHEAD[-1])))[1]


def misplaced(
    start: Board, told: Board, true: Board, counts: Bool[np.ndarray, "ahead row"]
) -> Float[np.ndarray, " ahead"]:
    """The share of what was there at the start that is not where it should be, after so many steps."""
    told, true = jax.tree.map(lambda x: np.asarray(x)[np.array(AHEAD) - 1], (told, true))
    is_elsewhere = told.here & true.here & (told.players != true.players)
    wrong = [((told.here != true.here) | is_elsewhere), told.there != true.there]
    asked = [counts[..., None] & np.asarray(x)[None] for x in (start.here, start.there)]
    errors = sum((w & a).sum(axis=(1, 2)) for w, a in zip(wrong, asked, strict=True))
    return np.asarray(errors / np.maximum(sum(a.sum(axis=(1, 2)) for a in asked), 1))


def _growth_drawing(errors: list[Float[np.ndarray, " ahead"]]) -> dict[str, Any]:
    lines = [
        {"name": f"seed {seed}", "x": list(AHEAD), "y": error.tolist()} for seed, error in enumerate(errors)
    ]
    expected = independent(np.median([error[0] for error in errors]))
    lines.append({"name": "independent errors", "x": list(AHEAD), "y": expected.tolist()})
    title = "share of players and things that are not where they should be"
    return {"kind": "lines", "title": title, "x_name": "steps foretold", "y_name": "error", "lines": lines}
