"""The one training loop: compiled chunks of updates, and between them metrics, evaluation, checkpoints.

A chunk is one program for all seeds; how many updates it makes is an argument, so that a last, shorter
chunk or a stop in between is the same program and the same bits. Environments are split over devices.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from coplay.training import checkpoint
from coplay.training.devices import AXIS, own_part
from coplay.training.rollout import collect, describe, start_playing
from coplay.training.run_folder import RunFolder
from coplay.types import Algorithm, Environment, Key, Metrics, TrainState, stream

STEPS_PER_CHUNK = 120_000  # joint steps over all seeds: about two seconds


class Stretch(NamedTuple):
    """One line-up, from one update to another."""

    first_update: int
    last_update: int
    lineup: tuple[str, ...]
    algorithm: Algorithm


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


class Progress(NamedTuple):
    """What a watcher is told after each chunk."""

    step: int
    total_steps: int
    seconds: float  # of the chunk
    chunk_steps: int  # of all seeds together
    seeds: int
    returns: np.ndarray  # [agent], mean over seeds


class Finished(NamedTuple):
    state: TrainState
    updates: int
    stopped: bool  # before the planned end
    compile_seconds: float
    recompiles: int  # programs compiled after the first chunk of their stretch


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
    state = TrainState(params=params, learner=learner, actor=actor, key=key, step=state.step + 1)
    return state, metrics | describe(tally)


# --- between chunks ------------------------------------------------------------------------------


def run(
    job: Job,
    folder: RunFolder,
    state: TrainState | None = None,
    updates: int = 0,
    tell: Callable[[Progress], None] = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> Finished:
    """Train from `state` (a new one if None) to the planned end, or until `stop` says so."""
    compiling, recompiles = 0.0, 0
    for stretch in job.stretches:
        if updates >= stretch.last_update:
            continue
        state = seat(job, stretch, state, updates)
        chunk, evaluate = chunk_program(job, stretch, state), evaluation_program(job, stretch)
        is_first, stopping = True, False
        while updates < stretch.last_update:
            began = time.perf_counter()
            count = next_stop(job, stretch, updates) - updates
            state, metrics = jax.block_until_ready(chunk(state, jnp.int32(count)))
            seconds = time.perf_counter() - began
            compiling += seconds if is_first else 0.0
            is_first = False
            rows = metric_rows(job, jax.device_get(metrics), updates, count)
            updates += count
            score = None
            if evaluate and updates % job.evaluate_every == 0:
                scores = jax.device_get(evaluate(state.params, _evaluation_keys(job, updates)))
                rows = joined(rows, score_rows(job, scores, updates))
                score = float(np.mean(scores["eval/return"]))
            _write(job, folder, rows, updates - count, updates)
            tell(_progress(job, updates, count, seconds, metrics))
            stopping = stop()
            if stopping or _is_due(job, folder, updates, score):
                save(job, folder, state, updates, score)
            if stopping:
                break
        recompiles += chunk._cache_size() - 1
        if stopping:
            break
    assert state is not None
    return Finished(state, updates, updates < job.num_updates, compiling, recompiles)


def _is_due(job: Job, folder: RunFolder, updates: int, score: float | None) -> bool:
    """A checkpoint is due at its interval, at the end, and whenever an evaluation was the best so far."""
    if updates % job.save_every == 0 or updates == job.num_updates:
        return True
    best = checkpoint.best(folder.checkpoints)
    return score is not None and (best is None or score > best[1])


def _write(job: Job, folder: RunFolder, rows: dict[str, np.ndarray], first: int, last: int) -> None:
    folder.write_metrics(first * job.steps_per_update, last * job.steps_per_update, rows)
    if job.tensorboard:
        folder.write_tensorboard(rows)


def next_stop(job: Job, stretch: Stretch, updates: int) -> int:
    """Where the coming chunk ends: at most a chunk on, and never past an evaluation, save or switch."""
    marks = [updates + job.chunk_updates, stretch.last_update, _next_multiple(updates, job.save_every)]
    if job.evaluate:
        marks.append(_next_multiple(updates, job.evaluate_every))
    return min(marks)


def _next_multiple(number: int, of: int) -> int:
    return (number // of + 1) * of


def start(job: Job, stretch: Stretch) -> TrainState:
    """The state before the first update, [seed, ...], each seed initialised by itself."""
    states = [_start_seed(job, stretch, job.seed + index) for index in range(job.seeds)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def _start_seed(job: Job, stretch: Stretch, seed: int) -> TrainState:
    key = jax.random.key(seed)
    params = stretch.algorithm.init(stream(key, "weights"))
    return TrainState(
        params=params,
        learner=stretch.algorithm.learn.init(params),
        actor=_new_games(job, stretch, stream(key, "games")),
        key=stream(key, "training"),
        step=jnp.int32(0),
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
    return jax.tree.map(
        lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)), state, _layout(state)
    )


# --- programs ------------------------------------------------------------------------------------


def chunk_program(job: Job, stretch: Stretch, state: TrainState):
    """A compiled function (state, number of updates) -> state, metrics [seed, update, ...]."""
    step = functools.partial(
        train_step, job.env, stretch.algorithm, job.num_steps, job.sequence_length
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
        return jax.vmap(one_seed, (0, None))(state, count)

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
    return jax.jit(sharded, donate_argnums=0, in_shardings=(placed, None), out_shardings=(placed, None))


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
        return PartitionSpec(None, AXIS) if path[0].name == "actor" else PartitionSpec()

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
    return {column: np.concatenate([table[column] for table in tables]) for column in tables[0]}


def save(job: Job, folder: RunFolder, state: TrainState, updates: int, score: float | None = None) -> None:
    """A checkpoint; `score` is its evaluated mean return, where this very state was evaluated."""
    step = updates * job.steps_per_update
    meta = {"updates": updates, "step": step, "score": score}
    checkpoint.save(folder.checkpoints, step, state, meta)
    best = checkpoint.best(folder.checkpoints)
    checkpoint.prune(folder.checkpoints, job.keep, {best[0]} if best else set())


def _evaluation_keys(job: Job, updates: int) -> Key:
    keys = [stream(jax.random.key(job.seed + index), "evaluation") for index in range(job.seeds)]
    return jax.vmap(jax.random.fold_in, (0, None))(jnp.stack(keys), updates)


def _progress(job: Job, updates: int, count: int, seconds: float, metrics: Metrics) -> Progress:
    returns = np.asarray(metrics["return"])[:, :count].reshape(-1, job.env.num_agents)
    ended = returns[np.isfinite(returns[:, 0])][-job.seeds :]
    return Progress(
        step=updates * job.steps_per_update,
        total_steps=job.num_updates * job.steps_per_update,
        seconds=seconds,
        chunk_steps=count * job.steps_per_update * job.seeds,
        seeds=job.seeds,
        returns=ended.mean(axis=0) if len(ended) else np.full(job.env.num_agents, np.nan),
    )
