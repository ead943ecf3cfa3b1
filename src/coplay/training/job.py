"""What the training loop is told of a run: its game, its line-ups, and how often it looks and saves."""

from collections.abc import Callable
from typing import Any, NamedTuple

from coplay.types import Algorithm, Environment, Key, Metrics

STEPS_PER_CHUNK = 120_000  # joint steps over all seeds: about two seconds


class Stretch(NamedTuple):
    """One line-up, from one update to another."""

    first_update: int
    last_update: int
    lineup: tuple[str, ...]
    algorithm: Algorithm


def stretch_at(stretches: list[Stretch], updates: int) -> Stretch:
    """The line-up that made the last of so many updates: the one whose games a checkpoint holds."""
    return next((s for s in stretches if s.first_update < updates <= s.last_update), stretches[0])


class Job(NamedTuple):
    """What the loop needs to know of a run."""

    env: Environment
    stretches: list[Stretch]
    num_envs: int
    num_steps: int
    sequence_length: int
    seed: int
    seeds: int
    devices: int
    evaluate: Callable[[Algorithm], Callable[[Any, Key], Metrics]] | None  # -> a function of params and key
    evaluate_every: int
    save_every: int
    keep: int
    tensorboard: bool

    @property
    def steps_per_update(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def num_updates(self) -> int:
        return self.stretches[-1].last_update

    @property
    def chunk_updates(self) -> int:
        return max(1, STEPS_PER_CHUNK // (self.steps_per_update * self.seeds))
