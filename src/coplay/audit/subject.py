"""What is audited, what was recorded of it once for all checks, and the time there is."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from coplay.audit import captured, random_play, small_scale, trained
from coplay.audit.captured import Parts, Round
from coplay.audit.random_play import Moments
from coplay.audit.small_scale import SmallRun
from coplay.audit.trained import UNTRAINED, Trained, Update
from coplay.errors import BadInput
from coplay.experiment import (
    Experiment,
    algorithms_in_play,
    build,
    is_run,
    job,
    parse_run,
    read_experiment,
    read_run,
    settings_of,
)
from coplay.training.job import Job
from coplay.training.run_folder import RunFolder
from coplay.types import Environment, TrainState, Trajectory, stream

MOST_MOMENTS = 16_384


@dataclass(frozen=True)
class Subject:
    env: Environment
    name: str  # as the user gave it
    lineup: tuple[str, ...] = ()  # who plays each seat at the end; () where nobody is asked about
    run: RunFolder | None = None  # where it was trained
    experiment: Experiment | None = None  # None: only the game is asked about
    seed: int = 0  # of what is drawn once for all checks
    kept: dict[str, Any] = field(default_factory=dict)

    def moments(self, count: int) -> Moments:
        """The first so many of the same moments of random play, whoever asks."""
        assert count <= MOST_MOMENTS
        made = self.once(
            "moments", lambda: random_play.moments(self.env, MOST_MOMENTS, jax.random.key(self.seed))
        )
        return jax.tree.map(lambda x: x[:count], made)

    def small_job(self) -> Job | None:
        """The experiment at a small scale; None where nobody learns."""
        if self.experiment is None or not algorithms_in_play(self.experiment):
            return None
        experiment = self.experiment
        return self.once("job", lambda: job(build(small_scale.at_small_scale(experiment))))

    def learning_job(self) -> Job:
        """The same where somebody must learn: a check without a learner is not run."""
        work = self.small_job()
        if work is None:
            raise BadInput("nobody learns here")
        return work

    def parts(self) -> Parts:
        return self.once("parts", lambda: captured.parts_of(self.learning_job()))

    def begun(self) -> TrainState:
        """Before anything is learned."""
        work = self.learning_job()
        return self.once("begun", lambda: captured.start(work))

    def rounds(self) -> list[Round]:
        """A few updates at a small scale, from the start, by hand."""
        work = self.learning_job()
        return self.once(
            "rounds",
            lambda: captured.rounds_from(work, self.parts(), self.begun(), captured.ROUNDS),
        )

    def small_run(self) -> SmallRun:
        """The same updates by the product's own loop, with a folder, logs and scores."""
        self.learning_job()
        assert self.experiment is not None
        experiment = self.experiment
        return self.once("small_run", lambda: small_scale.run_whole(experiment))

    # --- a trained run, afresh --------------------------------------------------------------------

    def trained(self, what: str = "plays") -> Trained:
        """Its last weights; a check of what was learned is not run where there are none."""
        if self.run is None:
            raise BadInput(UNTRAINED)
        self.learning_job()
        assert self.experiment is not None
        experiment, run = self.experiment, self.run
        return self.once(f"trained {what}", lambda: trained.trained(experiment, run, what))

    def trained_games(self, what: str = "plays") -> list[Trajectory]:
        """A round of every seed, up to three, with what it thinks."""
        run = self.trained(what)
        key = stream(jax.random.key(self.seed), "trained games")
        return self.once(f"trained games {what}", lambda: trained.games_of(run, key, what))

    def trained_updates(self) -> list[Update]:
        """A round of every seed, with what lies in the update after it."""
        run = self.trained("learns")
        key = stream(jax.random.key(self.seed), "trained updates")
        return self.once("trained updates", lambda: trained.updates_of(run, key))

    # --- kept ---------------------------------------------------------------------------------------

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Made by whoever asks first."""
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

    def config(self, name: str) -> Any:
        """An algorithm's settings, at a small scale."""
        assert self.experiment is not None
        return settings_of(small_scale.at_small_scale(self.experiment), name)

    @property
    def learners(self) -> list[str]:
        """Algorithms that learn, by name."""
        if self.experiment is None:
            return []
        return algorithms_in_play(small_scale.at_small_scale(self.experiment))

    @property
    def learner(self) -> str:
        """The one that learns; where several do, checks of what it learns from are not run."""
        self.learning_job()
        if len(self.learners) > 1:
            raise BadInput("more than one algorithm learns here")
        return self.learners[0]

    @property
    def seats(self) -> Int[np.ndarray, " seat"]:
        """That the one learner holds."""
        lineup = self.learning_job().stretches[0].lineup
        return np.flatnonzero([name == self.learner for name in lineup])


def subject_of(target: str, seed: int = 0) -> Subject:
    """A run with its own experiment, or an experiment by itself."""
    folder = RunFolder.open(parse_run(target).path) if names_a_run(target) else None
    experiment = read_run(folder) if folder else read_experiment(target)
    built = build(experiment)
    return Subject(built.env, target, built.stretches[-1].lineup, folder, experiment, seed)


def names_a_run(target: str) -> bool:
    return is_run(target) and not target.endswith(".toml")


@dataclass
class Budget:
    """How much may be done."""

    seconds: float = 600.0
    is_full: bool = False  # more episodes, every number and rung; networks stay small
    seeds: int = 8  # of every rung of the ladder
    began: float = field(default_factory=time.monotonic)

    @property
    def is_spent(self) -> bool:
        return time.monotonic() - self.began > self.seconds
