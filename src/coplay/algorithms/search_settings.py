"""How searches are made when it counts: settings that HOP and HOP+ share."""

import dataclasses
from typing import Literal

from coplay.planning.search import SearchConfig


@dataclasses.dataclass(frozen=True)
class SearchSettings:
    trees: int = 3  # drawn guesses at what the others want, for each decision
    simulations: int = 32  # walks in each tree
    exploration: float = 1.0  # c of pUCT
    open_prior: float = 0.5  # share of chance in what a search tries first, beside the policy
    search_depth: int = 32  # a walk ends here with the critic's value
    root: Literal["puct", "gumbel"] = "puct"  # how moves are tried at the root; gumbel: by halving the field
    q_mode: Literal["value", "reference"] = "value"  # Q of what is not tried: the node's; or total / (N + 1)
    choose: Literal["visits", "visited_q"] = "visits"  # never an action that no tree has tried

    def search_with(self, discount: float) -> SearchConfig:
        return SearchConfig(
            simulations=self.simulations,
            exploration=self.exploration,
            discount=discount,
            max_depth=self.search_depth,
            root=self.root,
            q_mode=self.q_mode,
        )

    def check_search(self, discount: float) -> None:
        if self.trees < 1:
            raise ValueError(f"trees={self.trees} must be at least 1")
        if not 0 <= self.open_prior <= 1:
            raise ValueError(f"open_prior={self.open_prior} must lie between 0 and 1")
        self.search_with(discount)  # checks itself
