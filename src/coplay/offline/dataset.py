"""Recorded play as one Parquet file, and back.

A row is a board: what the game was at that moment, and what everyone then did and got. An episode's last row
is the board it ended with; nobody moves there (action -1). Columns: episode, step, the fields of the game's
state, then for each seat action, reward, active (in the game at this board), left (this move was its last:
it left, or the game was over) and goal (a place in the game's goals, -1 for none). The file also says what
made it (`About`).
"""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Bool, Float, Int

from coplay.envs import make_game
from coplay.errors import BadInput
from coplay.files import replace_file
from coplay.types import Environment, EnvState

FORMAT = 1
NOBODY_MOVES, NO_GOAL = -1, -1


@dataclasses.dataclass(frozen=True)
class About:
    """What made a file: the same again gives the same rows."""

    game: str
    options: dict[str, Any]  # of the game
    players: tuple[str, ...]
    is_drawn: bool  # every seat of every episode has one of the players, drawn; else they sit in this order
    episodes: int
    seed: int
    version: str  # of coplay

    def env(self) -> Environment:
        return make_game(self.game, **self.options)


@dataclasses.dataclass(frozen=True)
class Episodes:
    """Whole episodes, [episode, board, ...]; what comes after an episode's last board means nothing."""

    state: EnvState
    action: Int[np.ndarray, "episode board agent"]
    reward: Float[np.ndarray, "episode board agent"]  # paid by the move
    active: Bool[np.ndarray, "episode board agent"]
    left: Bool[np.ndarray, "episode board agent"]
    goal: Int[np.ndarray, "episode board agent"]
    length: Int[np.ndarray, " episode"]  # moves; boards are one more

    @property
    def is_board(self) -> Bool[np.ndarray, "episode board"]:
        return np.arange(self.action.shape[1])[None] <= self.length[:, None]

    @property
    def is_move(self) -> Bool[np.ndarray, "episode board"]:
        return np.arange(self.action.shape[1])[None] < self.length[:, None]


BY_SEAT = {"action": np.int32, "reward": np.float32, "active": bool, "left": bool, "goal": np.int32}


# --- writing -------------------------------------------------------------------------------------


def write(path: Path, about: About, play: Episodes) -> None:
    """All of it or nothing; equal play gives equal files."""
    is_board = play.is_board
    episode, step = np.nonzero(is_board)
    columns = {"episode": episode.astype(np.int32), "step": step.astype(np.int32)}
    columns |= {f"state.{name}": leaf[is_board] for name, leaf in _leaves(play.state).items()}
    columns |= {name: getattr(play, name)[is_board] for name in BY_SEAT}
    arrays = {name: _as_arrow(values) for name, values in columns.items() if values.size}
    said = {"format": FORMAT, **dataclasses.asdict(about)}
    table = pa.table(arrays, metadata={"coplay": json.dumps(said)})
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd")
    replace_file(path, content.getvalue())


def _leaves(state: EnvState) -> dict[str, Any]:
    """By name: `players`, `stag_alive`, ..."""
    named = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in named}


def _as_arrow(values: np.ndarray) -> pa.Array:
    """Rows of one number each, or of a list of numbers."""
    if values.ndim == 1:
        return pa.array(values)
    flat = values.reshape(len(values), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])


# --- reading -------------------------------------------------------------------------------------


def read(path: str | Path) -> tuple[About, Episodes]:
    """A damaged or foreign file is refused in a sentence."""
    if not Path(path).is_file():
        raise BadInput(f"there is no file {path}; `coplay collect` makes one")
    try:
        table = pq.read_table(path)
        about = _about(table.schema.metadata or {})
        return about, _episodes(about.env(), table)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise BadInput(f"{path} is damaged or not recorded play of coplay ({error})") from error


def _about(metadata: dict[bytes, bytes]) -> About:
    said = json.loads(metadata[b"coplay"])
    number = said.pop("format")
    if number != FORMAT:
        raise ValueError(f"format {number}; this coplay reads {FORMAT}")
    return About(**said | {"players": tuple(said["players"])})


def _episodes(env: Environment, table: pa.Table) -> Episodes:
    episode, step = (table[name].to_numpy() for name in ("episode", "step"))
    length = np.bincount(episode) - 1
    starts = np.concatenate([[0], np.cumsum(length + 1)[:-1]])
    if (np.diff(episode) < 0).any() or (step != np.arange(len(step)) - starts[episode]).any():
        raise ValueError("its rows are not whole episodes, one after the other")
    shape = (len(length), length.max() + 1)

    def padded(name: str, one: jax.ShapeDtypeStruct) -> np.ndarray:
        """[episode, board, ...] of things like `one`, zeros where there is no board."""
        whole = np.zeros((*shape, *one.shape), one.dtype)
        if whole.size:
            rows = table[name].combine_chunks()
            flat = rows.flatten() if pa.types.is_fixed_size_list(rows.type) else rows
            whole[episode, step] = flat.to_numpy(zero_copy_only=False).reshape(-1, *one.shape)
        return whole

    like = jax.eval_shape(env.reset, jax.random.key(0))[0]
    state = {name: padded(f"state.{name}", one) for name, one in _leaves(like).items()}
    seats = (env.num_agents,)
    by_seat = {name: padded(name, jax.ShapeDtypeStruct(seats, kind)) for name, kind in BY_SEAT.items()}
    whole_state = jax.tree.unflatten(jax.tree.structure(like), state.values())
    return Episodes(state=whole_state, length=length, **by_seat)
