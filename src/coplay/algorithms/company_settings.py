"""Who one learns among: settings that HOP and HOP+ share."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class CompanySettings:
    ordered_games: float = 0.75  # share of games in which some seats follow orders
    new_company: float = 0.1  # chance that an episode begins with new orders and open minds
    pursuit_discount: float = 0.8  # haste: without it any way there is as good
    pursuit_temperature: float = 0.05  # of carrying out orders, as a share of the best Q
    pursuit_learning_rate: float = 1e-3
    pursuit_epochs: int = 2
    pursuit_minibatches: int = 32

    def check_company(self) -> None:
        for name in ("ordered_games", "new_company", "pursuit_discount"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must lie between 0 and 1")
        for name in ("pursuit_epochs", "pursuit_minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("pursuit_temperature", "pursuit_learning_rate"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
