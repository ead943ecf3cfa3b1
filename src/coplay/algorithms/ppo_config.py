"""The settings of PPO, which every learner with a policy of its own has, and MAPPO's own defaults."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    parameters: Literal["per_agent", "shared", "shared_with_id"] = "per_agent"  # whose weights
    network: Literal["mlp", "cnn", "gru", "cnn_gru"] = "mlp"  # of policy and critic alike
    hidden: tuple[int, ...] = (64, 64)  # widths; a GRU is as wide as the last
    activation: Literal["tanh", "relu", "elu"] = "tanh"  # between layers
    learning_rate: float = 1e-3  # of Adam
    anneal: bool = True  # learning rate falls to 0 over the run
    epochs: int = 4  # passes over each round of play
    minibatches: int = 4  # per epoch; num_envs is a multiple
    clip: float = 0.2  # largest change of the ratio that still pays
    clip_by_team: bool = False  # clip is divided by the number of players that learn
    entropy_weight: float = 0.01  # of the policy's entropy, which is sought
    value_weight: float = 0.5  # of the critic's loss
    value_clip: float | None = 0.2  # of predictions in normalised units; None: unclipped
    huber: float | None = 10.0  # value errors beyond this count in proportion; None: squares
    max_grad_norm: float = 0.5  # of policy and critic each
    stop_kl: float | None = None  # no further epoch once a policy has moved 1.5 times these nats
    align_weight: float = 0.0  # at the start, of the divergence from the policy that played
    align_adaptive: bool = True  # that weight follows align_target
    align_target: float = 0.01  # nats a player's policy may move in an update
    discount: float = 0.99
    trace: float = 0.95  # GAE's lambda
    returns: Literal["gae", "monte_carlo"] = "gae"
    advantage_scale: Literal["round", "running"] = "round"  # by the round's deviation, or all returns'
    value_normalisation: bool = True  # the critic predicts returns on a running scale
    learning_reward: str = "own"  # own, team, mix, or file.py:function
    team_share: float = 0.5  # weight of the team's mean where learning_reward is mix
    chunk_rows: int = 140  # rows per gradient chunk, or 16 sequences with memory; speed only, to rounding

    def __post_init__(self):
        positive = ("learning_rate", "epochs", "minibatches", "clip", "max_grad_norm", "chunk_rows")
        for name in (*positive, "align_target"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        if self.align_weight < 0:
            raise ValueError(f"align_weight={self.align_weight} must not be negative")
        for name in ("discount", "trace", "team_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must lie between 0 and 1")
        if self.advantage_scale == "running" and not self.value_normalisation:
            raise ValueError("advantage_scale='running' is the critic's scale: set value_normalisation=true")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"hidden={self.hidden} must name at least one width of 1 or more")

    @property
    def added_terms(self) -> dict[str, float]:
        """Terms of the loss beside PPO's own, and their weights."""
        return {"align": self.align_weight}

    @property
    def idle(self) -> frozenset[str]:
        """Settings that change nothing as the others are."""
        matters = {"team_share": self.learning_reward == "mix", "trace": self.returns == "gae"}
        aligns = {
            "align_adaptive": self.align_weight > 0,
            "align_target": self.align_weight > 0 and self.align_adaptive,
        }
        return without_effect(matters | aligns | {"chunk_rows": False})  # but for speed

    @property
    def surrogate_floor(self) -> float | None:
        """How many times a negative advantage may count at most; None: without bound."""
        return None


def without_effect(matters: dict[str, bool]) -> frozenset[str]:
    """The settings, several between spaces, that do not matter."""
    return frozenset(name for names, is_used in matters.items() if not is_used for name in names.split())


@dataclasses.dataclass(frozen=True)
class MAPPOConfig(PPOConfig):
    parameters: Literal["per_agent", "shared", "shared_with_id"] = "shared_with_id"
    learning_rate: float = 5e-4
    value_weight: float = 1.0
    max_grad_norm: float = 10.0
