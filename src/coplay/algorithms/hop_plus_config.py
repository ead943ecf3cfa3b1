"""The settings of HOP+, with its parts as switches and the reference's faults as options."""

import dataclasses
from typing import Literal

from coplay.algorithms.ppo import PPOConfig
from coplay.algorithms.search_settings import SearchSettings


@dataclasses.dataclass(frozen=True)
class HOPPlusConfig(PPOConfig, SearchSettings):
    subgoals: Literal["inferred", "none"] = "inferred"  # none: co-players are not read at all
    policy_reads: bool = True  # subgoals of the others, beside its own row
    subgoal_size: int = 4  # numbers in a subgoal
    subgoal_weight: float = 0.001  # of keeping subgoals near a standard Gaussian, per nat
    model_hidden: tuple[int, ...] = (64, 64)  # widths of what reads co-players and of what foretells them
    model_learning_rate: float = 1e-3  # of both
    model_epochs: int = 4  # passes over each round
    model_minibatches: int = 4  # in each pass
    world: Literal["learned", "game", "none"] = "learned"  # game: the true one, as a bound
    world_hidden: tuple[int, ...] = (64, 64)  # widths of each of its networks
    world_members: int = 3  # networks that learn apart
    world_learning_rate: float = 3e-3  # of Adam
    world_steps: int = 16  # of descent in each round, for each member
    world_batch: int = 256  # moves in each
    world_memory: int = 40_000  # newest moves that it learns from
    others: Literal["models", "policies"] = "models"  # who acts for them; policies: their own, as a bound
    real_share: float = 0.5  # of the policy's loss; the rest is imagined; 1: nothing is
    imagined_steps: int = 1  # from every real moment
    imagined_branches: int = 1  # of so many steps from each
    critic_data: Literal["real", "both"] = "real"  # both: imagined returns teach the critic too
    gates: Literal["auto", "off"] = "auto"  # off: imagined from the first round on, whatever it is worth
    acts: Literal["policy", "one_step", "search"] = "policy"  # when it counts
    acts_in: Literal["world", "game"] = "world"  # what plans are made in: as `world` says, or the true game
    guesses: int = 16  # drawn moves of the others over which one_step takes the mean
    doubt: float = 1.0  # imagined rows weigh exp(-doubt * disagreement of the members)

    def __post_init__(self):
        super().__post_init__()
        counts = ("subgoal_size", "model_epochs", "model_minibatches", "world_members", "world_steps")
        for name in (
            *counts,
            "world_batch",
            "world_memory",
            "imagined_steps",
            "imagined_branches",
            "guesses",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("model_learning_rate", "world_learning_rate"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        for name in ("model_hidden", "world_hidden"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must name at least one width of 1 or more")
        if not 0 <= self.real_share <= 1:
            raise ValueError(f"real_share={self.real_share} must lie between 0 and 1")
        for name in ("doubt", "subgoal_weight"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 0")
        self.check_search(self.discount)
        if self.acts != "policy" and self.acts_in == "world" and self.world == "none":
            raise ValueError("plans are made in a world: set world='learned' or 'game', or acts_in='game'")
        if self.acts != "policy" and self.others == "models" and self.subgoals == "none":
            raise ValueError("plans foresee the others by subgoals: set subgoals='inferred'")
        if "gru" in self.network:
            raise ValueError("hop_plus reads histories by its subgoals; set network='mlp' or 'cnn'")
        if self.imagines and self.world == "none":
            raise ValueError("to imagine takes a world: set world='learned' or 'game', or real_share=1")
        if self.imagines and self.others == "models" and self.subgoals == "none":
            raise ValueError("others='models' takes subgoals='inferred'; or set others='policies'")

    @property
    def imagines(self) -> bool:
        return self.real_share < 1
