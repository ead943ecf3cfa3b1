"""The one training loop: compiled chunks of updates, and between them metrics, evaluation, checkpoints.

The programs themselves are in `programs.py`, what a run is told in `job.py`, tables in `records.py`.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coplay.diagnostics.alarms import alarms
from coplay.errors import BadInput
from coplay.training import checkpoint
from coplay.training.job import Job, Stretch, stretch_at
from coplay.training.programs import (
    Compiled,
    Program,
    account_of,
    chunk_program,
    evaluation_program,
    placed,
)
from coplay.training.records import joined, metric_rows, score_rows
from coplay.training.rollout import start_playing
from coplay.training.run_folder import RunFolder
from coplay.types import Key, Metrics, TrainState, begun, stacked, stream


class Progress(NamedTuple):
    """What a watcher is told after each chunk."""

    step: int
    total_steps: int
    seconds: float  # of the chunk, once compiled
    chunk_steps: int  # of all seeds together
    seeds: int
    returns: np.ndarray  # [agent], mean over seeds
    alarms: Mapping[str, str] = {}  # figures of the chunk that are out of bounds, with a sentence each


class Finished(NamedTuple):
    state: TrainState
    updates: int
    stopped: bool  # before the planned end
    compile_seconds: float
    recompiles: int  # programs compiled after the first chunk of their stretch
    program_bytes: int | None  # that the largest of its programs needs; None where the compiler does not say


# --- between chunks ------------------------------------------------------------------------------


def run(
    job: Job,
    folder: RunFolder,
    state: TrainState | None = None,
    updates: int = 0,
    tell: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    compiled: Callable[[Compiled], None] = lambda program: None,
) -> Finished:
    """Train from `state` (a new one if None) to the planned end, or until `stop` says so. `compiled` is told
    of every program before it runs, and may refuse it."""
    session = Session(job, folder, tell, stop, compiled)
    for stretch in job.stretches:
        if updates < stretch.last_update and not session.stopping:
            state, updates = session.train(stretch, state, updates)
    assert state is not None
    is_stopped = updates < job.num_updates
    return Finished(
        state, updates, is_stopped, session.compile_seconds, session.recompiles, session.program_bytes
    )


@dataclasses.dataclass
class Session:
    """One sitting of a run: what it writes, whom it tells, and what its clock says."""

    job: Job
    folder: RunFolder
    tell: Callable[[Progress], None]
    stop: Callable[[], bool]
    compiled: Callable[[Compiled], None]
    stopping: bool = False
    compile_seconds: float = 0.0
    recompiles: int = 0
    program_bytes: int | None = None
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)  # by phase, since the last record

    def train(self, stretch: Stretch, before: TrainState | None, updates: int) -> tuple[TrainState, int]:
        """Chunk after chunk with one line-up."""
        job = self.job
        state = seat(job, stretch, before, updates)
        chunk, evaluate = chunk_program(job, stretch, state), evaluation_program(job, stretch)
        self.compile(chunk, state, before, updates)
        while updates < stretch.last_update and not self.stopping:
            count = next_stop(job, stretch, updates) - updates
            with self.clock("train"):
                state, metrics = jax.block_until_ready(chunk.run(state, jnp.int32(count)))
            updates += count
            rows = metric_rows(job, jax.device_get(metrics), updates - count, count)
            scores = self.scores(evaluate, state, updates)
            self.write(joined(rows, score_rows(job, scores, updates)), updates - count, updates)
            self.tell(_progress(job, updates, count, self.seconds, metrics))
            self.stopping = self.stop()
            self.save_if_due(state, updates, scores)
            self.write_clock(updates)
        self.recompiles += chunk.recompiles
        return state, updates

    def compile(self, chunk: Program, state: TrainState, before: TrainState | None, updates: int) -> None:
        """The program that is about to run; if it is refused, what was learned before it is kept."""
        with self.clock("compile"):
            program = chunk.compiled_for(state, jnp.int32(0))
        told = account_of(program, self.seconds["compile"], self.job.devices)
        self.program_bytes = max(self.program_bytes or 0, told.need) if told.need else self.program_bytes
        try:
            self.compiled(told)
        except BadInput:
            is_saved = updates * self.job.steps_per_update in checkpoint.steps(self.folder.checkpoints)
            if before is not None and not is_saved:
                save(self.job, self.folder, before, updates)
            raise

    def scores(self, evaluate, state: TrainState, updates: int) -> dict[str, np.ndarray]:
        """Evaluation where it is due, else nothing; in games and keys of its own."""
        if evaluate is None or updates % self.job.evaluate_every:
            return {}
        with self.clock("evaluate"):
            return jax.device_get(evaluate(state.params, _evaluation_keys(self.job, updates)))

    def save_if_due(self, state: TrainState, updates: int, scores: dict[str, np.ndarray]) -> None:
        """A checkpoint at its interval, at the end, at a stop, and when an evaluation was the best so far."""
        score = float(np.mean(scores["eval/return"])) if scores else None
        best = checkpoint.best(self.folder.checkpoints)
        is_best = score is not None and (best is None or score > best[1])
        at_end = updates == self.job.num_updates
        if self.stopping or at_end or is_best or updates % self.job.save_every == 0:
            with self.clock("save"):
                save(self.job, self.folder, state, updates, score)

    def write(self, rows: dict[str, np.ndarray], first: int, last: int) -> None:
        with self.clock("write"):
            self.folder.write_metrics(
                first * self.job.steps_per_update, last * self.job.steps_per_update, rows
            )
            if self.job.tensorboard:
                self.folder.write_tensorboard(rows)

    @contextlib.contextmanager
    def clock(self, phase: str):
        began = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began

    def write_clock(self, updates: int) -> None:
        self.compile_seconds += self.seconds.get("compile", 0.0)
        phases = list(self.seconds)
        step = updates * self.job.steps_per_update
        seconds = [self.seconds[phase] for phase in phases]
        self.folder.write_timing({"step": [step] * len(phases), "phase": phases, "seconds": seconds})
        self.seconds = {}


def next_stop(job: Job, stretch: Stretch, updates: int) -> int:
    """Where the coming chunk ends: at most a chunk on, and never past an evaluation, save or switch."""
    marks = [updates + job.chunk_updates, stretch.last_update, _next_multiple(updates, job.save_every)]
    if job.evaluate:
        marks.append(_next_multiple(updates, job.evaluate_every))
    return min(marks)


def _next_multiple(number: int, of: int) -> int:
    return (number // of + 1) * of


def start(job: Job, stretch: Stretch, begins: bool = True) -> TrainState:
    """The state before the first update, [seed, ...], each seed initialised by itself; if training `begins`,
    parts learned elsewhere are put in."""
    states = [_start_seed(job, stretch, job.seed + index, begins) for index in range(job.seeds)]
    return stacked(states)


def _start_seed(job: Job, stretch: Stretch, seed: int, begins: bool = True) -> TrainState:
    key = jax.random.key(seed)
    params = stretch.algorithm.init(stream(key, "weights"))
    params = begun(stretch.algorithm, params) if begins else params
    return TrainState(
        params=params,
        learner=jax.jit(stretch.algorithm.learn.init)(params),  # one program, not one for every tensor
        actor=_new_games(job, stretch, stream(key, "games")),
        key=stream(key, "training"),
        updates=jnp.int32(0),
    )


def _new_games(job: Job, stretch: Stretch, key: Key):
    return jax.jit(lambda key: start_playing(job.env, stretch.algorithm, key, job.num_envs))(key)


def seat(job: Job, stretch: Stretch, state: TrainState | None, updates: int) -> TrainState:
    """The state with this stretch's players at the table; new company begins with new games."""
    if state is None:
        state = start(job, stretch)
    elif updates == stretch.first_update and updates > 0:
        keys = [stream(jax.random.key(job.seed + i), f"games {updates}") for i in range(job.seeds)]
        actors = [_new_games(job, stretch, key) for key in keys]
        state = dataclasses.replace(state, actor=stacked(actors))
    return placed(job, state)


def save(job: Job, folder: RunFolder, state: TrainState, updates: int, score: float | None = None) -> None:
    """A checkpoint; `score` is its evaluated mean return, where this very state was evaluated."""
    step = updates * job.steps_per_update
    stretch = job.stretches.index(stretch_at(job.stretches, updates))
    meta = {"updates": updates, "step": step, "score": score, "stretch": stretch}
    checkpoint.save(folder.checkpoints, step, state, meta)
    best = checkpoint.best(folder.checkpoints)
    checkpoint.prune(folder.checkpoints, job.keep, {best[0]} if best else set())


def _evaluation_keys(job: Job, updates: int) -> Key:
    keys = [stream(jax.random.key(job.seed + index), "evaluation") for index in range(job.seeds)]
    return jax.vmap(jax.random.fold_in, (0, None))(jnp.stack(keys), updates)


def _progress(job: Job, updates: int, count: int, seconds: dict[str, float], metrics: Metrics) -> Progress:
    returns = np.asarray(metrics["return"])[:, :count].swapaxes(0, 1).reshape(-1, job.env.num_agents)
    ended = returns[np.isfinite(returns[:, 0])][-job.seeds :]  # the last update of every seed
    return Progress(
        step=updates * job.steps_per_update,
        total_steps=job.num_updates * job.steps_per_update,
        seconds=seconds["train"],
        chunk_steps=count * job.steps_per_update * job.seeds,
        seeds=job.seeds,
        returns=ended.mean(axis=0) if len(ended) else np.full(job.env.num_agents, np.nan),
        alarms=alarms({name: np.asarray(value)[:, :count] for name, value in metrics.items()}),
    )
