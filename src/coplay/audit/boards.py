"""What a game shows: things that share no cell, things that go by touch, a clock that is true, no side of the
board that is favoured."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from coplay.audit.captured import quick
from coplay.audit.finding import Check, Outcome, not_run
from coplay.audit.random_play import Moments
from coplay.audit.seat_effects import Effects, worst
from coplay.audit.subject import Budget, Subject
from coplay.envs import grid
from coplay.envs.contract import random_legal
from coplay.training.rollout import is_over, reset_finished
from coplay.types import Environment, Key, Picture, TimeStep, stream

GAMES, STEPS, BLOCKS = 2048, 16, 8  # of uniform legal play
MIRROR_MARGIN = 0.1  # of how often something is in a place
PLAYERS = "player"


# --- exact: what a game declares -----------------------------------------------------------------


def untouched(env: Environment, seen: Moments) -> list[str]:
    """Where things go by touch only: none went, or moved, where nobody stood before or after the step."""
    if not env.by_touch:
        return []
    before, after = quick(lambda *states: tuple(jax.vmap(env.draw)(state) for state in states))(
        seen.state, seen.next_state
    )
    stood = np.concatenate([before.players, after.players], axis=1)
    found = []
    for kind, cells in before.cells.items():
        cells = np.asarray(cells)
        is_gone = (cells[..., 0] >= 0) & np.any(cells != np.asarray(after.cells[kind]), axis=-1)
        is_touched = np.any(np.all(cells[:, :, None] == stood[:, None], axis=-1), axis=-1)
        if np.any(is_gone & ~is_touched):
            found.append(f"a {kind} went where nobody stood")
    return found


def in_one_place(env: Environment, seen: Moments) -> list[str]:
    """Things that the game keeps apart: no two of them were on one cell."""
    if not env.apart:
        return []
    picture = quick(jax.vmap(env.draw))(seen.state)
    cells = np.concatenate([np.asarray(picture.cells[kind]) for kind in env.apart], axis=1)
    same = np.all(cells[:, :, None] == cells[:, None], axis=-1) & (cells[:, :, None, 0] >= 0)
    same &= ~np.eye(cells.shape[1], dtype=bool)
    moments = int(same.any(axis=(1, 2)).sum())
    return [f"two of {', '.join(env.apart)} lay on one cell in {moments} moments"] if moments else []


def unannounced(env: Environment, seen: Moments) -> list[str]:
    """Where a part of what is seen is called `time`: a game that is over though nobody did anything, and
    nobody earned anything, is over whenever that part says the same."""
    names = env.split(seen.before.observation[0, 0])
    if "time" not in names:
        return []
    still = jnp.full_like(seen.action, env.neutral_action)
    after = quick(jax.vmap(env.step))(seen.state, still, seen.key)[1]
    shown = quick(jax.vmap(lambda timestep: _clock(env, timestep)))(seen.before)
    is_quiet = np.asarray(jnp.all(after.reward == 0, axis=1) & jnp.any(seen.before.active, axis=1))
    is_over_now = np.asarray(jnp.all(after.terminated, axis=1))[is_quiet]
    return _said_of_ends(np.round(np.asarray(shown)[is_quiet], 5), is_over_now)


def _clock(env: Environment, timestep: TimeStep) -> Float[Array, " number"]:
    """As the first player sees it who is there."""
    return env.split(timestep.observation[jnp.argmax(timestep.active)])["time"]


def _said_of_ends(shown: Float[np.ndarray, "moment number"], is_over_now: np.ndarray) -> list[str]:
    times, which = np.unique(shown, axis=0, return_inverse=True)
    ended = np.bincount(which.reshape(-1), weights=is_over_now, minlength=len(times))
    moments = np.bincount(which.reshape(-1), minlength=len(times))
    (mixed,) = np.nonzero((ended > 0) & (ended < moments))
    return [
        f"where all are told the time {np.round(times[i], 3).tolist()}, the clock ends the game in "
        f"{int(ended[i])} of {moments[i]} moments"
        for i in mixed[:1]
    ]


# --- a test: the game in a mirror ----------------------------------------------------------------


def mirrored(subject: Subject, budget: Budget, key: Key) -> Outcome:
    """Is everything as often in a place as in its mirror images, when everyone plays at random?"""
    env, statistic = subject.env, "how often a place is taken in random play, less its mirror images"
    if not env.mirrored:
        return not_run(statistic, "this game does not say that it is the same in a mirror")
    size = _size(env)
    added = _sums(env, size, key)
    names = [(kind, place) for kind, places in added.items() for place in range(len(places[0]))]
    columns = [np.concatenate([np.asarray(places[i]) for places in added.values()]) for i in range(3)]
    found, kept = effects_in_mirrors(*columns, games=GAMES * BLOCKS)
    _, effect, p = worst([found])
    which = int(np.argmax(np.abs(found.mean[0]) / found.error[0])) if found.mean.size else 0
    kind, place = [name for name, is_kept in zip(names, kept, strict=True) if is_kept][which]
    where = _said(place, *size)
    return Outcome(
        statistic,
        figure=abs(effect.value),
        threshold=MIRROR_MARGIN,
        next=f"a {kind} is {100 * effect.value:+.0f}% as often in {where} as in its mirror images: look at "
        "how places are drawn and where boards end",
        unit="share",
        n=GAMES * BLOCKS,
        p=p,
        effect=effect,
    )


def effects_in_mirrors(
    apart: Float[np.ndarray, " feature"],
    squares: Float[np.ndarray, " feature"],
    usual: Float[np.ndarray, " feature"],
    games: int,
) -> tuple[Effects, np.ndarray]:
    """By how much places differ from their images, as a share of both, of sums over so many games; and which
    places anything is ever in."""
    kept = np.asarray(usual) > 0
    apart, squares, usual = (np.asarray(x, np.float64)[kept] / games for x in (apart, squares, usual))
    error = np.sqrt(np.maximum(squares - apart**2, 1e-12) / games)
    return Effects([0], (apart / usual)[None], (error / usual)[None]), kept


def _sums(env: Environment, size: tuple[int, int], key: Key) -> dict[str, list[np.ndarray]]:
    """Of every kind and place, over games: the difference from its images, its square, and their mean."""
    block = quick(lambda k: _of_block(env, size, k))
    blocks = [jax.device_get(block(jax.random.fold_in(key, i))) for i in range(BLOCKS)]
    return jax.tree.map(lambda *x: np.sum(np.asarray(x, np.float64), axis=0), *blocks)


def _of_block(env: Environment, size: tuple[int, int], key: Key) -> dict[str, list[Array]]:
    found = {}
    for kind, board in _taken(env, size, key).items():
        apart, usual = in_mirrors(board)
        found[kind] = [jnp.sum(x, axis=0) for x in (apart, apart**2, usual)]
    return found


def _taken(env: Environment, size: tuple[int, int], key: Key) -> dict[str, Float[Array, "game row column"]]:
    """How often each kind was in each place in some steps of uniform legal play."""

    def boards(state) -> dict[str, Float[Array, "game row column"]]:
        picture: Picture = jax.vmap(env.draw)(state)
        cells = {kind: x for kind, x in picture.cells.items() if x.shape[1]} | {PLAYERS: picture.players}
        return {kind: jax.vmap(lambda x: _as_board(x, size))(x) for kind, x in cells.items()}

    def one_step(carry, key):
        (state, before), taken = carry
        taken = jax.tree.map(jnp.add, taken, boards(state))
        words = grid.random_words(stream(key, "act"), GAMES * env.num_agents).reshape(GAMES, env.num_agents)
        action = jax.vmap(random_legal)(before.legal, words)
        state, after = jax.vmap(env.step)(state, action, jax.random.split(stream(key, "step"), GAMES))
        resets = jax.random.split(stream(key, "reset"), GAMES)
        return (reset_finished(env, state, after, is_over(after), resets), taken), None

    start = jax.vmap(env.reset)(jax.random.split(stream(key, "start"), GAMES))
    nothing = jax.tree.map(jnp.zeros_like, boards(start[0]))
    return jax.lax.scan(one_step, (start, nothing), jax.random.split(key, STEPS))[0][1]


def _as_board(cells: Array, size: tuple[int, int]) -> Float[Array, "row column"]:
    is_there = cells[:, 0] >= 0
    return jnp.zeros(size).at[cells[:, 0], cells[:, 1]].add(is_there.astype(jnp.float32))


def in_mirrors(board: Float[Array, "*games row column"]) -> tuple[Array, Array]:
    """How each cell, each row and each column differs from its images, and how full they are on average."""
    turned = board if board.shape[-1] != board.shape[-2] else jnp.swapaxes(board, -1, -2)
    pairs = (board, turned)
    images = [jnp.flip(x, axes) for x in pairs for axes in ((), (-1,), (-2,), (-1, -2))]
    usual = jnp.mean(jnp.stack(images), axis=0)

    def places(x: Array) -> Array:
        cells = x.reshape(*x.shape[:-2], -1)
        return jnp.concatenate([cells, jnp.sum(x, axis=-1), jnp.sum(x, axis=-2)], axis=-1)

    return places(board - usual), places(usual)


def _size(env: Environment) -> tuple[int, int]:
    state, _ = env.reset(jax.random.key(0))
    height, width = (int(x) for x in env.draw(state).grid)
    return height, width


def _said(place: int, height: int, width: int) -> str:
    """A place by its number among cells, rows and columns."""
    cells = height * width
    if place < cells:
        return f"row {place // width}, column {place % width}"
    return f"row {place - cells}" if place < cells + height else f"column {place - cells - height}"


BOARDS = (
    Check(
        "mirrored",
        "environment",
        "Is no side of the board favoured?",
        "test",
        "envs",
        mirrored,
        ("renaming", "rules"),
    ),
)
