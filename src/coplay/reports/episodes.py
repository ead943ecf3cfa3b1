"""One played episode on disk: what was on the board, what everyone did, and what it paid.

A file holds plain arrays only (no pickles), so a replay from a stranger can be opened safely.
"""

import dataclasses
import io
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from coplay.errors import BadInput
from coplay.files import replace_file

FORMAT = 1
ARRAYS = ("players", "action", "reward", "policy", "active")


@dataclasses.dataclass(frozen=True)
class Episode:
    """Boards are one more than moves: board t is what the players saw before move t."""

    game: str
    members: tuple[str, ...]  # who sat in each seat
    action_names: tuple[str, ...]
    grid: tuple[int, int] | np.ndarray  # height, width; (0, 0) for a game without a board
    cells: dict[str, np.ndarray]  # int [board, thing, 2] by kind: row, column; -1 where absent
    players: np.ndarray  # int [board, agent, 2]
    action: np.ndarray  # int [move, agent]
    reward: np.ndarray  # float [move, agent], paid by that move
    policy: np.ndarray  # float [move, agent, action], the probabilities it was drawn from
    active: np.ndarray  # bool [board, agent]
    meta: dict[str, Any] = dataclasses.field(default_factory=dict)
    goal_names: tuple[str, ...] = ()  # what players can be after, where beliefs are kept
    belief: np.ndarray | None = None  # float [move, agent, other, goal] before the move, others in the order
    # they sit after an agent; NaN for agents that hold none

    def __post_init__(self):
        """Files come from strangers too, so this holds outside tests."""
        height, width = (int(length) for length in self.grid)
        object.__setattr__(self, "grid", (height, width))
        moves, agents = len(self.action), len(self.members)
        _require(self.action, "action", "iu", (moves, agents))
        _require(self.players, "players", "iu", (moves + 1, agents, 2))
        _require(self.reward, "reward", "f", (moves, agents))
        _require(self.policy, "policy", "f", (moves, agents, len(self.action_names)))
        _require(self.active, "active", "b", (moves + 1, agents))
        if self.belief is not None:
            _require(self.belief, "belief", "f", (moves, agents, agents - 1, len(self.goal_names)))
        for kind, places in self.cells.items():
            things = places.shape[1] if places.ndim == 3 else 0
            _require(places, f"cells[{kind!r}]", "iu", (moves + 1, things, 2))
        if self.action.size and not 0 <= self.action.min() <= self.action.max() < len(self.action_names):
            raise ValueError(f"an action is not one of the {len(self.action_names)} named")

    @property
    def num_moves(self) -> int:
        return len(self.action)

    def thoughts(self, move: int, player: int) -> list[tuple[int, str, float]]:
        """What a player in the game thinks before a move: of each other one still in it, what it is most
        likely after and how sure that is."""
        if self.belief is None or move >= self.num_moves or not self.active[move, player]:
            return []
        others = [(player + 1 + place) % len(self.members) for place in range(len(self.members) - 1)]
        rows = zip(others, self.belief[move, player], strict=True)
        return [
            (other, self.goal_names[int(row.argmax())], float(row.max()))
            for other, row in rows
            if self.active[move, other] and not np.isnan(row).any()
        ]

    @property
    def returns(self) -> Float[np.ndarray, "board agent"]:
        """What each player has been paid by the time of each board."""
        start = np.zeros((1, len(self.members)))
        return np.concatenate([start, np.cumsum(self.reward.astype(float), axis=0)])


def save_episode(path: Path, episode: Episode) -> None:
    """Write the episode; equal episodes give equal files."""
    header = {
        "format": FORMAT,
        "game": episode.game,
        "members": list(episode.members),
        "action_names": list(episode.action_names),
        "grid": list(episode.grid),
        "kinds": list(episode.cells),
        "goal_names": list(episode.goal_names),
        "meta": episode.meta,
    }
    arrays = {name: getattr(episode, name) for name in ARRAYS}
    arrays |= {f"cells_{i}": places for i, places in enumerate(episode.cells.values())}
    arrays |= {} if episode.belief is None else {"belief": episode.belief}
    content = io.BytesIO()
    np.savez_compressed(content, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    replace_file(Path(path), content.getvalue())


def load_episode(path: Path) -> Episode:
    """Read an episode; a damaged or foreign file is refused in a sentence."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return _from_arrays(dict(file))
    except FileNotFoundError:
        raise BadInput(f"there is no episode file {path}") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{path} is damaged or not an episode file of coplay ({error})") from error


def newest_episode(folder: Path) -> Path | None:
    """Of the files called step-<number>..., the first by name of the latest step; None without any."""
    found = [(re.match(r"step-(\d+)", file.name), file) for file in sorted(folder.glob("step-*.npz"))]
    dated = [(int(match.group(1)), file) for match, file in found if match]
    return max(dated, key=lambda pair: pair[0])[1] if dated else None


def _require(array: np.ndarray, name: str, kinds: str, shape: tuple) -> None:
    if array.dtype.kind not in kinds or array.shape != shape:
        raise ValueError(f"{name} is {array.dtype}{list(array.shape)}; expected shape {list(shape)}")


def _from_arrays(arrays: dict[str, np.ndarray]) -> Episode:
    header = json.loads(arrays["header"].tobytes())
    if header["format"] != FORMAT:
        raise ValueError(f"format {header['format']}; this coplay reads {FORMAT}")
    return Episode(
        game=header["game"],
        members=tuple(header["members"]),
        action_names=tuple(header["action_names"]),
        grid=tuple(header["grid"]),
        cells={kind: arrays[f"cells_{i}"] for i, kind in enumerate(header["kinds"])},
        meta=header["meta"],
        goal_names=tuple(header.get("goal_names", ())),
        belief=arrays.get("belief"),
        **{name: arrays[name] for name in ARRAYS},
    )
