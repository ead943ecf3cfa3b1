"""The one training loop: compiled chunks of updates, and between them metrics, evaluation, checkpoints.

A chunk is one program for all seeds; how many updates it makes is an argument, so that a last, shorter
chunk or a stop in between is the same program and the same bits. Environments are split over devices.
"""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from coplay.errors import BadInput
from coplay.training import checkpoint
from coplay.training.devices import AXIS, own_part
from coplay.training.rollout import collect, describe, start_playing
from coplay.training.run_folder import RunFolder
from coplay.types import Algorithm, Environment, Key, Metrics, PyTree, TrainState, begun, stream

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


class Compiled(NamedTuple):
    """What a watcher is told of a line-up's program before it runs."""

    seconds: float  # that compiling took
    need: int | None  # bytes it takes while it runs; None where the compiler does not say
    held: int  # of these, what its arguments hold already


class Progress(NamedTuple):
    """What a watcher is told after each chunk."""

    step: int
    total_steps: int
    seconds: float  # of the chunk, once compiled
    chunk_steps: int  # of all seeds together
    seeds: int
    returns: np.ndarray  # [agent], mean over seeds


class Finished(NamedTuple):
    state: TrainState
    updates: int
    stopped: bool  # before the planned end
    compile_seconds: float
    recompiles: int  # programs compiled after the first chunk of their stretch
    program_bytes: int | None  # that the largest of its programs needs; None where the compiler does not say


def train_step(
    env: Environment, algorithm: Algorithm, num_steps: int, sequence_length: int, state: TrainState
) -> tuple[TrainState, Metrics]:
    """Collect with the current policy, then learn from what was collected."""
    key, collect_key, update_key = jax.random.split(state.key, 3)
    actor, trajectory, tally = collect(
        env, algorithm, state.params, state.actor, own_part(collect_key), num_steps, sequence_length
    )
    params, learner, metrics = algorithm.learn.update(
        state.params, state.learner, trajectory, own_part(update_key)
    )
    state = TrainState(params=params, learner=learner, actor=actor, key=key, updates=state.updates + 1)
    return state, metrics | describe(tally, env.action_names)


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

    def compile(self, chunk: "Program", state: TrainState, before: TrainState | None, updates: int) -> None:
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
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def _start_seed(job: Job, stretch: Stretch, seed: int, begins: bool = True) -> TrainState:
    key = jax.random.key(seed)
    params = stretch.algorithm.init(stream(key, "weights"))
    params = begun(stretch.algorithm, params) if begins else params
    return TrainState(
        params=params,
        learner=stretch.algorithm.learn.init(params),
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
        state = dataclasses.replace(state, actor=jax.tree.map(lambda *x: jnp.stack(x), *actors))
    mesh = _mesh(job)
    return jax.tree.map(lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)), state, _layout(state))


# --- programs ------------------------------------------------------------------------------------


@final
class Program:
    """A function, compiled ahead for what it is called with; other shapes or types compile it again, and that
    is counted."""

    def __init__(self, function: Any):
        self.function = function
        self.programs: dict[Any, Callable] = {}

    def run(self, *arguments: PyTree) -> Any:
        return self.compiled_for(*arguments)(*arguments)

    def compiled_for(self, *arguments: PyTree) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        kind = structure, tuple((x.shape, x.dtype, getattr(x, "weak_type", False)) for x in leaves)
        if kind not in self.programs:
            self.programs[kind] = self.function.lower(*arguments).compile()
        return self.programs[kind]

    @property
    def recompiles(self) -> int:
        return max(0, len(self.programs) - 1)


def account_of(program: Any, seconds: float, devices: int) -> Compiled:
    """What a compiled program says of itself: it needs its arguments, its results and what lies between, on
    all devices. A result that takes an argument's place counts once."""
    told = program.memory_analysis()
    if told is None:
        return Compiled(seconds, need=None, held=0)
    both_ends = told.argument_size_in_bytes + told.output_size_in_bytes - told.alias_size_in_bytes
    need = devices * (both_ends + told.temp_size_in_bytes)
    return Compiled(seconds, need, held=devices * told.argument_size_in_bytes)


def chunk_program(job: Job, stretch: Stretch, state: TrainState) -> Program:
    """A program (state, number of updates) -> state, metrics [seed, update, ...]."""
    # As a function of its own, so that asking for its shapes and running it trace it once.
    step = jax.jit(
        functools.partial(train_step, job.env, stretch.algorithm, job.num_steps, job.sequence_length),
        inline=True,
    )

    def one_seed(state: TrainState, count: jax.Array):
        shapes = jax.eval_shape(step, state)[1]
        empty = jax.tree.map(lambda s: jnp.zeros((job.chunk_updates, *s.shape), s.dtype), shapes)

        def one_update(index, carry):
            state, metrics = carry
            state, new = step(state)
            return state, jax.tree.map(lambda all_, one: all_.at[index].set(one), metrics, new)

        return jax.lax.fori_loop(0, count, one_update, (state, empty))

    def all_seeds(state: TrainState, count: jax.Array):
        # One seed after the other inside the program: as fast as side by side on a CPU, and only one
        # seed's round of play is in memory at a time (docs/decisions/0002).
        return jax.lax.map(lambda one: one_seed(one, count), state)

    layout = _layout(state)
    sharded = jax.shard_map(
        all_seeds,
        mesh=_mesh(job),
        in_specs=(layout, PartitionSpec()),
        out_specs=(layout, PartitionSpec()),
        check_vma=False,
    )
    # Placements are said on both sides: what comes out must go back in without compiling again.
    placed = jax.tree.map(lambda spec: NamedSharding(_mesh(job), spec), layout)
    return Program(
        jax.jit(sharded, donate_argnums=0, in_shardings=(placed, None), out_shardings=(placed, None))
    )


def evaluation_program(job: Job, stretch: Stretch):
    """A compiled function (params, keys) -> scores [seed, ...], or None where evaluation is off."""
    if job.evaluate is None:
        return None
    return jax.jit(jax.vmap(job.evaluate(stretch.algorithm)))


def _mesh(job: Job) -> Mesh:
    devices = jax.devices()[: job.devices]
    return Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))


def _layout(state: TrainState) -> TrainState:
    """Environments are split over devices, behind the seed axis; all else is the same everywhere."""

    def place(path, leaf) -> PartitionSpec:
        names = {getattr(key, "name", None) for key in path}
        return PartitionSpec(None, AXIS) if names & {"actor", "per_env"} else PartitionSpec()

    return jax.tree_util.tree_map_with_path(place, state)


# --- records -------------------------------------------------------------------------------------


def metric_rows(job: Job, metrics: dict[str, np.ndarray], updates: int, count: int) -> dict[str, np.ndarray]:
    """Tidy columns; the step of a row is that of the weights that earned it."""
    steps = (updates + np.arange(count)) * job.steps_per_update
    return joined(*[_columns(job, name, value[:, :count], steps) for name, value in metrics.items()])


def score_rows(job: Job, scores: dict[str, np.ndarray], updates: int) -> dict[str, np.ndarray]:
    steps = np.array([updates * job.steps_per_update])
    return joined(*[_columns(job, name, value[:, None], steps) for name, value in scores.items()])


def _columns(job: Job, name: str, value: np.ndarray, steps: np.ndarray) -> dict[str, np.ndarray]:
    """[seed, update] or [seed, update, agent] as rows; seat -1 stands for the whole table."""
    per_agent = value if value.ndim == 3 else value[..., None]
    seats = np.arange(value.shape[2]) if value.ndim == 3 else np.array([-1])
    seed, step, seat = np.meshgrid(job.seed + np.arange(job.seeds), steps, seats, indexing="ij")
    keep = np.isfinite(per_agent).ravel()
    return {
        "step": step.ravel()[keep],
        "seed": seed.ravel()[keep],
        "seat": seat.ravel()[keep],
        "metric": np.full(int(keep.sum()), name),
        "value": per_agent.astype(np.float64).ravel()[keep],
    }


def joined(*tables: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    filled = [table for table in tables if table]
    return {name: np.concatenate([table[name] for table in filled]) for name in (filled[0] if filled else ())}


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
    )
