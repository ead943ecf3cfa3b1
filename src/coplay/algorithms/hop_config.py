"""The settings of HOP, with the ablations and the published forms as options."""

import dataclasses
from typing import Literal

from coplay.algorithms.company_settings import CompanySettings
from coplay.algorithms.ppo_config import PPOConfig, without_effect
from coplay.algorithms.search_settings import SearchSettings
from coplay.planning.search import SearchConfig

Memory = Literal["counters", "average", "removal_count", "sticky", "weighed", "none"]


@dataclasses.dataclass(frozen=True)
class HOPConfig(PPOConfig, SearchSettings, CompanySettings):
    model_hidden: tuple[int, ...] = (64, 64)  # widths of the co-players' models
    model_learning_rate: float = 1e-3
    model_epochs: int = 2  # passes over each labelled round
    model_minibatches: int = 32  # in each pass, at most; small ones, for there is much to learn
    model_rows: Literal["orders", "everyone"] = "orders"  # of our own seats: under orders only, or all
    labels: Literal["steady", "next"] = "steady"  # next: also of steps before another goal was gone
    models: Literal["goals", "direct"] = "goals"  # told what a co-player is after, or not
    within: Literal["bayes", "none"] = "bayes"  # beliefs in an episode; none goes with between = counters
    between: Memory = "weighed"  # what is kept of a co-player from one episode to the next
    whim: float = 0.05  # chance at first that a co-player wants nothing and does anything
    minibatches: int = 16  # many small steps, for trees ask the critic at every leaf
    discount: float = 0.95
    value_normalisation: bool = False  # trees need values on the game's own scale
    value_clip: float | None = None
    acts: Literal["search", "network"] = "search"  # when it counts
    company: Literal["models", "random", "self"] = "models"  # who acts for the others in a search
    searched_games: float = 0.25  # share of games in which free seats plan their moves while learning
    searched_trees: int = 1
    searched_simulations: int = 16
    search_weight: float = 1.0  # of following the search where it decided
    errand_prior: float = 0.25  # share of the way to the goal worth most in what a search tries first
    searched_errand_prior: float = 0.0  # the same while learning; the other is for when it counts
    leaf: Literal["critic", "rollout"] = "critic"  # rollout: played on towards each goal, no critic asked
    rollout_steps: int = 12

    def __post_init__(self):
        super().__post_init__()
        for name in ("searched_trees", "rollout_steps", "model_epochs", "model_minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.network != "mlp" or self.parameters != "per_agent" or self.value_normalisation:
            raise ValueError("hop has network='mlp', parameters='per_agent' and value_normalisation=false")
        self.check_search(self.discount)
        self.check_company()
        for name in ("whim", "searched_games", "errand_prior", "searched_errand_prior"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must lie between 0 and 1")

    @property
    def idle(self) -> frozenset[str]:
        searches, learns_by_it = self.acts == "search", self.searched_games > 0
        return super().idle | without_effect(
            {
                "trees simulations choose errand_prior": searches,
                "exploration open_prior search_depth root q_mode company leaf": searches or learns_by_it,
                "searched_trees searched_simulations search_weight searched_errand_prior": learns_by_it,
                "rollout_steps": self.leaf == "rollout",
                "labels model_rows": self.models == "goals",
            }
        )

    @property
    def search(self) -> SearchConfig:
        return self.search_with(self.discount)
