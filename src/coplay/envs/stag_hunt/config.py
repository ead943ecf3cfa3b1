"""The stag hunt's settings and its state."""

import dataclasses
from typing import Literal

from jaxtyping import Array, Bool, Int

from coplay.envs import grid
from coplay.errors import require
from coplay.types import pytree

HUNT_STAG, HUNT_HARE = 5, 6
ACTION_NAMES = (*grid.MOVE_NAMES, "hunt stag", "hunt hare")
NUM_ACTIONS = len(ACTION_NAMES)


@dataclasses.dataclass(frozen=True)
class StagHuntConfig:
    size: int = 8  # the board is size x size
    players: int = 4  # 2 to 8
    hares: int = 4
    stags: int = 1
    wall_components: int = 0  # pieces of wall; 0 for an open board
    horizon: int = 35  # steps in an episode
    end_after_first_hunt: int | None = None  # end this many steps after the first catch
    stag_hunters: int = 2  # players who must hunt the same stag in the same step
    stag_reward: float = 10.0
    hare_reward: float = 1.0
    strengths: tuple[int, ...] | None = None  # a stag is split in this proportion; None: equally
    mask_lone_stag_hunt: bool = False  # hunting a stag is legal only in company
    observation: Literal["board", "entities"] = "board"  # planes, or offsets (smaller and faster)
    map_seed: int = 0  # of the bank of wall maps
    num_maps: int = 512  # wall maps in the bank

    def __post_init__(self):
        cells = self.size**2
        require(2 <= self.size <= 32, f"size={self.size} must lie between 2 and 32")
        require(2 <= self.players <= 8, f"players={self.players} must lie between 2 and 8")
        require(self.hares >= 0, f"hares={self.hares} must not be negative")
        require(self.stags >= 0, f"stags={self.stags} must not be negative")
        require(self.hares + self.stags > 0, "there is no prey: raise hares or stags")
        require(
            self.hares + self.stags + 4 * self.wall_components <= cells,
            f"stags={self.stags} and hares={self.hares} with wall_components={self.wall_components} "
            f"do not fit on {cells} cells; lower them or raise size={self.size}",
        )
        require(self.wall_components >= 0, f"wall_components={self.wall_components} must not be negative")
        require(self.horizon >= 1, f"horizon={self.horizon} must be at least 1")
        require(
            self.end_after_first_hunt is None or self.end_after_first_hunt >= 1,
            f"end_after_first_hunt={self.end_after_first_hunt} must be at least 1, or left out",
        )
        require(
            1 <= self.stag_hunters <= self.players,
            f"stag_hunters={self.stag_hunters} must lie between 1 and players={self.players}",
        )
        require(self.num_maps >= 1, f"num_maps={self.num_maps} must be at least 1")
        require(
            self.strengths is None or len(self.strengths) == self.players,
            f"strengths={self.strengths} must name one whole number for each of {self.players} players",
        )
        require(min(self.strengths or (1,)) >= 0, f"strengths={self.strengths} must not be negative")

    @property
    def idle(self) -> frozenset[str]:
        """Options that change nothing as the others are."""
        walls = () if self.wall_components else ("map_seed", "num_maps")
        stags = () if self.stags else ("stag_hunters", "stag_reward", "mask_lone_stag_hunt")
        return frozenset((*walls, *stags, *(() if self.hares else ("hare_reward",))))


@pytree
class StagHuntState:
    map: Int[Array, ""]  # number of the wall map; the bank itself stays outside
    players: Int[Array, " agent"]  # cell of each
    stags: Int[Array, " stag"]
    hares: Int[Array, " hare"]
    active: Bool[Array, " agent"]
    stag_alive: Bool[Array, " stag"]
    hare_alive: Bool[Array, " hare"]
    previous: Int[Array, " agent"]  # the action each carried out last
    strengths: Int[Array, " agent"]
    time: Int[Array, ""]
    end: Int[Array, ""]  # the horizon, until a first catch shortens it
