"""The settings of hypernetwork MAPPO: what the generator reads, what it makes, and what keeps it gentle."""

import dataclasses
from typing import Literal

from coplay.algorithms.ppo_config import MAPPOConfig, without_effect
from coplay.nets.window import HEADS

MOST_LAG = 4  # updates for which a copy may play
IN_TIME = ("local_history", "joint")  # contexts that change while a game goes on


@dataclasses.dataclass(frozen=True)
class HyperMAPPOConfig(MAPPOConfig):
    context: Literal["identity", "local_history", "joint", "none"] = "identity"  # read; none: plain MAPPO
    context_from: Literal["own_game", "another_game"] = "own_game"  # another_game: a control
    encoder: Literal["mlp", "conv"] = "mlp"  # of what is read; conv: the observation's board by convolutions
    encoder_width: int = 64  # numbers it gives
    attention_heads: int = 4  # over the seats that share the generator; joint only
    history: Literal["none", "gru", "lstm", "transformer"] = "gru"  # of local_history and joint
    history_width: int = 64  # of what it makes of the past
    history_window: int = 16  # rows of the episode that a transformer sees, the present one included
    history_fusion: Literal["off", "kl_weighted"] = "off"  # mixed with states that would have one play alike
    fusion_window: int = 8  # states that are mixed, the present one included
    fusion_temperature: float = 1.0  # nats apart at which a state weighs a factor e less
    history_reads: tuple[str, ...] = ("observation", "action", "reward")  # last action and reward
    identity: Literal["embedding", "one_hot", "none"] = "embedding"  # joined to every context
    embedding: int = 16  # numbers that stand for one player
    trunk: tuple[int, ...] = (64,)  # hidden layers of the generator
    generate: Literal["auto", "full", "last_layer", "low_rank", "scales"] = (
        "auto"  # auto: full by identity, else low_rank
    )
    rank: int = 4  # of low_rank
    increments: Literal["per_agent", "shared"] = "per_agent"  # shared: one for all, from the mean context
    regenerate_every: int = 5  # steps; 0: once an episode; identity is made anew after each update
    accumulate: float = 0.0  # above 0: increments add up within an episode and fade by this factor a step
    delta_scale: float = 1.0  # s in theta_0 + s * delta; 0: a control
    generator_rate: float = 5e-4  # learning rate of the generator
    generated_critic: Literal["off", "last_layer"] = "off"  # what the context moves of the critic
    target: Literal["none", "anchor", "act"] = "none"  # a copy that play is held near (align), or that plays
    target_every: int = 10  # updates between copies; at most 4 where the copy plays
    pretrain: str | None = None  # a run of hyper_mappo: what its generator has learned to read is begun with
    pretrain_seed: int = 0  # which of its seeds
    smooth: Literal["policy", "weight"] = (
        "policy"  # neighbouring increments are compared by what they do, or as numbers
    )
    smooth_weight: float = 0.1  # alpha; without effect by identity, which does not move in time
    align_weight: float = 0.05  # beta
    explore: float = 0.0  # share of moves drawn evenly from what is legal; falls to 0 by half of training

    def __post_init__(self):
        super().__post_init__()
        for name in (
            "encoder_width",
            "history_width",
            "embedding",
            "rank",
            "generator_rate",
            "target_every",
            "fusion_temperature",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        for name in (
            "regenerate_every",
            "delta_scale",
            "smooth_weight",
            "attention_heads",
            "pretrain_seed",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        if not 0 <= self.explore <= 0.3:
            raise ValueError(f"explore={self.explore} must lie between 0 and 0.3")
        if not 0 <= self.accumulate <= 0.95:
            raise ValueError(
                f"accumulate={self.accumulate} must lie between 0 and 0.95: what does not fade has no bound"
            )
        if not self.trunk or min(self.trunk) < 1:
            raise ValueError(f"trunk={self.trunk} must name at least one width of 1 or more")
        if self.pretrain is not None and self.context == "none":
            raise ValueError("pretrain is what a generator begins with; context='none' has none")
        if self.context != "none":
            self._check_generator()

    def _check_generator(self) -> None:
        if self.parameters == "per_agent":
            raise ValueError(
                "hyper_mappo has one generator for all its seats: set parameters to shared_with_id or shared "
                "(separate learners are mappo with parameters='per_agent')"
            )
        if self.network != "mlp":
            raise ValueError(
                f"hyper_mappo generates an mlp, not {self.network!r}; context='local_history' has memory"
            )
        if self.target == "act" and self.target_every > MOST_LAG:
            raise ValueError(
                f"target='act' plays with a copy that lags behind what learns: set target_every to at most "
                f"{MOST_LAG} updates, not {self.target_every}"
            )
        if self.context == "identity" and self.identity == "none":
            raise ValueError("context='identity' needs identity='embedding' or 'one_hot'")
        if self.context == "identity" and self.increments == "shared":
            raise ValueError("context='identity' makes increments per agent: set increments='per_agent'")
        if self.context == "identity" and self.accumulate:
            raise ValueError("accumulate adds up what changes in time; context='identity' does not")
        if self.accumulate and self.made == "low_rank":
            raise ValueError(
                "accumulate: sums of low-rank increments are not of low rank; set generate='last_layer'"
            )
        if self.context == "joint" and not self.attention_heads and self.increments == "per_agent":
            raise ValueError(
                "context='joint' with attention_heads=0 hears nobody: set attention_heads above 0, "
                "increments='shared' or context='local_history'"
            )
        if self.context == "joint" and self.attention_heads and self.encoder_width % self.attention_heads:
            raise ValueError(
                f"encoder_width={self.encoder_width} must be a multiple of "
                f"attention_heads={self.attention_heads}"
            )
        if self.moves_in_time and self.history == "transformer":
            if self.history_window < 2:
                raise ValueError(
                    f"history_window={self.history_window} shows no past: set 2 or more, or history='none'"
                )
            if self.history_width % HEADS:
                raise ValueError(
                    f"history_width={self.history_width} must be a multiple of a transformer's {HEADS} heads"
                )
        if self.history_fusion != "off":
            self._check_fusion()
        if self.moves_in_time:
            self._check_reads()

    def _check_reads(self) -> None:
        if not self.history_reads or set(self.history_reads) - {"observation", "action", "reward"}:
            raise ValueError(
                f"history_reads={self.history_reads} must name some of observation, action and reward"
            )
        if self.encoder == "conv" and "observation" not in self.history_reads:
            raise ValueError(
                "encoder='conv' reads the observation's board: name observation in history_reads, "
                "or set encoder='mlp'"
            )

    def _check_fusion(self) -> None:
        what = f"history_fusion={self.history_fusion!r}"
        if not self.moves_in_time or self.history == "none":
            raise ValueError(
                f"{what} mixes states of a history: set context to local_history or joint, and a history"
            )
        if self.fusion_window < 2:
            raise ValueError(f"{what} needs at least two states: set fusion_window above 1")
        if self.increments == "shared":
            raise ValueError(f"{what} compares players' own policies: set increments='per_agent'")
        if self.accumulate:
            raise ValueError(f"{what} compares increments that do not add up: set accumulate=0")

    @property
    def idle(self) -> frozenset[str]:
        generates, in_time = self.context != "none", self.context in IN_TIME
        fuses = in_time and self.history_fusion != "off"
        return super().idle | without_effect(
            {
                "identity trunk generate delta_scale generator_rate target explore": generates,
                "generated_critic align_weight align_adaptive align_target": generates,
                "context_from encoder encoder_width history history_reads": in_time,
                "regenerate_every increments accumulate history_fusion smooth smooth_weight": in_time,
                "attention_heads": self.context == "joint",
                "history_width": in_time and self.history != "none",
                "history_window": in_time and self.history == "transformer",
                "fusion_window fusion_temperature": fuses,
                "embedding": generates and self.identity == "embedding",
                "rank": generates and self.made == "low_rank",
                "target_every": generates and self.target != "none",
                "pretrain_seed": self.pretrain is not None,
            }
        )

    @property
    def made(self) -> str:
        """What is generated."""
        auto = "full" if self.context == "identity" else "low_rank"
        return auto if self.generate == "auto" else self.generate

    @property
    def moves_in_time(self) -> bool:
        return self.context in IN_TIME

    @property
    def communicates(self) -> bool:
        """What one player sees moves the others' weights: by attention, or through a context they share."""
        return self.context == "joint" or (self.moves_in_time and self.increments == "shared")

    @property
    def surrogate_floor(self) -> float | None:
        return 3.0 if self.target == "act" and self.context != "none" else None

    @property
    def added_terms(self) -> dict[str, float]:
        if self.context == "none":
            return {}
        return super().added_terms | {"smooth": self.smooth_weight if self.moves_in_time else 0.0}
