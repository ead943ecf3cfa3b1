"""The settings of HOP+, with its parts as switches and the reference's faults as options."""

import dataclasses
from typing import Literal

from coplay.algorithms.company_settings import CompanySettings
from coplay.algorithms.ppo_config import PPOConfig, without_effect
from coplay.algorithms.search_settings import SearchSettings


@dataclasses.dataclass(frozen=True)
class HOPPlusConfig(PPOConfig, SearchSettings, CompanySettings):
    subgoals: Literal["inferred", "none"] = "inferred"  # none: co-players are not read at all
    policy_reads: bool = True  # something of the others, beside its own row:
    reads: Literal["subgoals", "pay"] = "subgoals"  # all numbers, or what these say of who is paid what next
    subgoal_size: int = 4  # numbers in a subgoal
    subgoal_weight: float = 0.001  # of keeping subgoals near a standard Gaussian, or the prior's, per nat
    ahead: int = 0  # steps, up to which a subgoal is also to foretell a later move
    pay: float = 0.0  # weight of foretelling by a subgoal what its player is paid next, linearly
    model_of: Literal["each", "any"] = "each"  # co-player by where it sits; any: one model for all of them
    between: Literal["average", "none"] = "none"  # what is kept of a co-player after an episode
    goal_gate: Literal["none", "distance"] = "none"  # distance: who is far from any goal is read less
    prior: str = ""  # folder of a trained vae: subgoals are kept near what was chosen in hindsight
    prior_hidden: tuple[int, ...] = (64, 64)  # widths it was trained with
    selector: Literal["optimistic", "conservative"] = "optimistic"  # what is chosen: worth most, or least
    horizon: int = 10  # steps of a co-player among which is chosen
    hindsight_share: float = 0.3  # of training, over which learning with what was chosen falls to nothing
    model_hidden: tuple[int, ...] = (64, 64)  # widths of what reads co-players and of what foretells them
    model_balanced: bool = False  # rare actions of co-players count more
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
    imagined_returns: Literal["bootstrapped", "sums"] = "bootstrapped"  # sums: the cut ends the game, a fault
    critic_data: Literal["real", "both"] = "real"  # both: imagined returns teach the critic too
    gates: Literal["auto", "off"] = "auto"  # off: imagined from the first round on, whatever it is worth
    acts: Literal["policy", "one_step", "search"] = "policy"  # when it counts
    acts_in: Literal["world", "game"] = "world"  # what plans are made in: as `world` says, or the true game
    guesses: int = 16  # drawn moves of the others over which one_step takes the mean
    doubt: float = 1.0  # imagined rows weigh exp(-doubt * disagreement of the members)
    models_from: str = ""  # folder of a trained moa: every model of a co-player begins as it
    world_from: str = ""  # folder of a trained world: the world begins as it
    ordered_games: float = 0.0
    pursuit_minibatches: int = 8

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
            "horizon",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        for name in ("model_learning_rate", "world_learning_rate"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        for name in ("model_hidden", "world_hidden", "prior_hidden"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must name at least one width of 1 or more")
        for name in ("real_share", "hindsight_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must lie between 0 and 1")
        for name in ("doubt", "subgoal_weight", "ahead", "pay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 0")
        self.check_search(self.discount)
        self.check_company()
        if self.ordered_games > 0 and self.parameters != "per_agent":
            raise ValueError("orders are carried out by each seat's own weights: set parameters='per_agent'")
        if self.ordered_games > 0 and self.imagines and self.others == "policies":
            raise ValueError("who follows orders does not act by its policy: set others='models'")
        for name in ("prior", "models_from", "between", "goal_gate"):
            if self.subgoals == "none" and getattr(self, name) not in ("", "none"):
                raise ValueError(f"{name} is about subgoals: set subgoals='inferred'")
        if self.reads == "pay" and not self.policy_reads:
            raise ValueError("reads='pay' says what the policy reads: set policy_reads=true")
        if self.reads == "pay" and self.pay == 0:
            raise ValueError("reads='pay' is about what subgoals say of pay: set pay=1")
        if self.reads == "pay" and self.prior:
            raise ValueError("what is chosen in hindsight are numbers: set reads='subgoals', or prior=''")
        if self.models_from and self.between != "none":
            raise ValueError("a trained moa knows nothing of earlier episodes: set between='none'")
        if self.world_from and self.world != "learned":
            raise ValueError("world_from is where a learned world begins: set world='learned'")
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
    def idle(self) -> frozenset[str]:
        reads, plans, orders = self.subgoals == "inferred", self.acts != "policy", self.ordered_games > 0
        return super().idle | without_effect(
            {
                "policy_reads subgoal_size subgoal_weight ahead pay model_of between goal_gate": reads,
                "model_hidden model_balanced model_learning_rate model_epochs model_minibatches": reads,
                "reads": reads and self.policy_reads,
                "prior_hidden selector horizon hindsight_share": bool(self.prior),
                "world_hidden world_members world_learning_rate": self.world == "learned",
                "world_steps world_batch world_memory": self.world == "learned",
                "imagined_steps imagined_branches imagined_returns critic_data gates doubt": self.imagines,
                "others": self.imagines or plans,
                "acts_in": plans,
                "guesses": self.acts == "one_step",
                "trees simulations exploration open_prior search_depth root q_mode": self.acts == "search",
                "choose": plans,
                "new_company pursuit_discount pursuit_temperature pursuit_learning_rate": orders,
                "pursuit_epochs pursuit_minibatches": orders,
            }
        )

    @property
    def imagines(self) -> bool:
        return self.real_share < 1
