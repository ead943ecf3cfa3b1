"""Runs from Python: train one, go on with one, open one, score one.

run = coplay.train("ppo_4h1s_4x4", steps=500_000)
print(run.evaluate().mean_return)
"""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from coplay import experiment as experiments
from coplay.errors import BadInput
from coplay.evaluation.self_play import Moment, Scores, play_episodes, watch_episodes
from coplay.evaluation.statistics import bootstrap_interval, largest_seat_gap, pages_l
from coplay.experiment import Built, Experiment, Loaded
from coplay.plan import free_memory, plan, refuse_if_program_too_large, refuse_if_too_large
from coplay.players.frozen import greedy
from coplay.reports.episodes import Episode, save_episode
from coplay.reports.report import write_report
from coplay.training import checkpoint, loop
from coplay.training.devices import prepare
from coplay.training.job import Job, stretch_at
from coplay.training.loop import Finished, Progress
from coplay.training.programs import Compiled
from coplay.training.run_folder import RunFolder, collect_versions, default_name
from coplay.types import Picture, pytree, stream


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of a run's players among themselves; the fields are those of `evaluate --json`."""

    mean_return: float
    interval: tuple[float, float]  # 95%, by bootstrap over seeds, or over episodes below three seeds
    per_seat: list[float]
    per_seed: list[float]
    per_seed_and_seat: list[list[float]]
    seeds: int
    seed_numbers: list[int]
    episodes: int  # per seed
    ceiling: float | None
    mode: str
    needs: str  # what those who played must have at hand, the most of them (`types.NEEDS`)
    outcomes: dict[str, float]
    length: float
    step: int
    largest_seat_gap: dict[str, Any] | None  # with its interval and Page's L, from three seeds on


@dataclasses.dataclass(frozen=True)
class Run:
    """A run folder, and how its training ended where that happened in this process."""

    folder: RunFolder
    experiment: Experiment
    finished: Finished | None = None
    seconds: float = 0.0

    @property
    def path(self) -> Path:
        return self.folder.path

    def metrics(self):
        """All metrics as a tidy PyArrow table: step, seed, seat, metric, value."""
        return self.folder.read_metrics()

    def evaluate(self, episodes: int = 1024, mode: str = "sample", best: bool = False, seed: int = 0):
        return evaluate(self, episodes, mode, best, seed)


class Watcher:
    """Told what happens during training; this one keeps quiet."""

    def planned(self, planned) -> None: ...

    def compiled(self, program: Compiled, free: int) -> None:
        """Before a program runs; `free` is the memory, in bytes, that it may use."""

    def progressed(self, progress: Progress) -> None: ...

    def wants_stop(self) -> bool:
        return False


def train(
    name: str | Experiment,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
    pages: bool = True,
    **overrides: Any,
) -> Run:
    """Train an experiment in a new run folder; with `pages`, record an episode and write its report."""
    given = name if isinstance(name, Experiment) else experiments.read_experiment(name)
    given = resolve(experiments.with_overrides(given, overrides))
    prepare(given.devices)
    built = experiments.build(given)
    planned = plan(built)
    refuse_if_too_large(planned)
    label = Path(name).stem if isinstance(name, str) else given.game.replace(":", "_")
    told = collect_versions(built.env.package) | {"needs": built.stretches[-1].algorithm.needs}
    folder = RunFolder.create(out or default_name(label), experiments.as_toml(given), told)
    try:
        with folder.lock():
            watcher = watcher or Watcher()
            watcher.planned(planned)
            return _go_on(folder, built, None, 0, watcher, pages)
    except BadInput:
        folder.remove_if_unused()
        raise


def resume(
    path: str | Path, steps: int | None = None, watcher: Watcher | None = None, pages: bool = True
) -> Run:
    """Go on from the last good checkpoint, bit for bit; `steps` moves the planned end."""
    folder = RunFolder.open(path)
    with folder.lock():
        experiment = experiments.read_run(folder)
        if steps is not None:
            experiment = _with_later_end(experiment, steps)
        prepare(experiment.devices)
        built = experiments.build(experiment)
        work = experiments.job(built)
        state, updates = _restore(folder, work)
        folder.write_experiment(experiments.as_toml(experiment))
        folder.forget_after(updates * work.steps_per_update)
        checkpoint.forget_after(folder.checkpoints, updates * work.steps_per_update)
        watcher = watcher or Watcher()
        watcher.planned(plan(built, starts=False))
        return _go_on(folder, built, state, updates, watcher, pages)


def load(path: str | Path) -> Run:
    """Open a run folder."""
    folder = RunFolder.open(path)
    return Run(folder, experiments.read_run(folder))


def resolve(experiment: Experiment) -> Experiment:
    """The experiment with everything chosen by rule written out, so that the folder tells it all."""
    rollout = experiment.rollout
    whole = rollout.num_updates * rollout.steps_per_update
    return dataclasses.replace(
        experiment,
        devices=experiments.resolved_devices(experiment),
        rollout=dataclasses.replace(rollout, total_steps=whole),
    )


def _go_on(folder: RunFolder, built: Built, state, updates: int, watcher: Watcher, pages: bool) -> Run:
    began = time.perf_counter()
    work = experiments.job(built)

    def compiled(program: Compiled) -> None:
        free = free_memory() + program.held
        refuse_if_program_too_large(built.experiment, program.need, free)
        watcher.compiled(program, free)

    finished = loop.run(work, folder, state, updates, watcher.progressed, watcher.wants_stop, compiled)
    run = Run(folder, built.experiment, finished, time.perf_counter() - began)
    if not finished.stopped:
        folder.merge_metrics()
        if pages:
            record_episode(run, built)
            write_report(folder.path)
    return run


def _with_later_end(experiment: Experiment, steps: int) -> Experiment:
    planned = experiment.rollout.total_steps
    if steps < planned:
        raise BadInput(f"--steps {steps} lies before the planned end at {planned}; name a later one")
    return resolve(experiments.with_overrides(experiment, {"rollout.total_steps": steps}))


def _restore(folder: RunFolder, work: Job) -> tuple[Any, int]:
    """The newest sound state, and how many updates it has behind it."""
    updates = checkpoint.newest_meta(folder.checkpoints)["updates"]
    if updates >= work.num_updates:
        raise BadInput(f"{folder.path} has finished; name a later end with --steps to go on")
    like = loop.start(work, stretch_at(work.stretches, updates), begins=False)
    state, meta = checkpoint.load(folder.checkpoints, like)
    return state, meta["updates"]


@pytree
class Weights:
    """All that is left of a state in an exported run."""

    params: Any


def export(name: str, out: str | Path, made_by: str = "") -> RunFolder:
    """One seed's weights as a small run folder of its own: to share or to meet, not to go on from."""
    reference = experiments.parse_run(name)
    run = load(reference.path)
    index = _seed_index(run, reference.seed)
    loaded = experiments.load_params(experiments.build(run.experiment), run.folder, reference.best)
    own = jax.tree.map(lambda x: x[index : index + 1], loaded.params)
    alone = dataclasses.replace(run.experiment, seeds=1, seed=run.experiment.seed + index)
    told = {"exported_from": Path(name).name, "made_by": made_by} | run.folder.versions
    folder = RunFolder.create(out, experiments.as_toml(alone), told)
    checkpoint.save(folder.checkpoints, loaded.step, Weights(own), loaded.meta)
    return folder


# --- scores --------------------------------------------------------------------------------------


def evaluate(
    run: Run, episodes: int, mode: str, best: bool = False, seed: int = 0, only: int | None = None
) -> Evaluation:
    """Every trained seed (or `only` one) plays `episodes` whole games; keys are the evaluation's own."""
    built = experiments.build(run.experiment)
    loaded = experiments.load_params(built, run.folder, best)
    seeds = np.arange(run.experiment.seeds) if only is None else np.array([_seed_index(run, only)])
    params = jax.tree.map(lambda x: x[seeds], loaded.params)
    algorithm = loaded.stretch.algorithm
    player = greedy(algorithm) if mode == "greedy" else algorithm

    def one_seed(params, key):
        return play_episodes(built.env, player, params, key, episodes)

    keys = jax.random.split(stream(jax.random.key(seed), "evaluate"), run.experiment.seeds)
    scores: Scores = jax.device_get(jax.jit(jax.vmap(one_seed))(params, keys[seeds]))
    return _summary(built, loaded, scores, mode, seeds)


def _summary(built: Built, loaded: Loaded, scores: Scores, mode: str, seeds: np.ndarray) -> Evaluation:
    returns = np.asarray(scores.episode_return)
    per_seed_and_seat = returns.mean(axis=1)
    per_seed = per_seed_and_seat.mean(axis=1)
    per_episode = returns.mean(axis=2)
    sample = per_seed if len(per_seed) >= 3 else per_episode.ravel()
    low, high = bootstrap_interval(sample)
    return Evaluation(
        mean_return=float(per_seed.mean()),
        interval=(float(low), float(high)),
        per_seat=[float(x) for x in per_seed_and_seat.mean(axis=0)],
        per_seed=[float(x) for x in per_seed],
        per_seed_and_seat=per_seed_and_seat.astype(float).tolist(),
        seeds=len(per_seed),
        seed_numbers=[built.experiment.seed + int(seed) for seed in seeds],
        episodes=returns.shape[1],
        ceiling=built.env.ceiling,
        mode=mode,
        needs=loaded.stretch.algorithm.needs,
        outcomes={name: float(np.mean(count)) for name, count in scores.outcomes.items()},
        length=float(np.mean(scores.length)),
        step=loaded.step,
        largest_seat_gap=_seat_gap(per_seed_and_seat) if len(per_seed) >= 3 else None,
    )


def _seat_gap(table: np.ndarray) -> dict[str, Any]:
    gap, order = largest_seat_gap(table), pages_l(table)
    return {
        "gap": float(gap.gap),
        "interval": [float(gap.low), float(gap.high)],
        "highest": gap.highest,
        "lowest": gap.lowest,
        "page_up": float(order.p_increasing),
        "page_down": float(order.p_decreasing),
    }


def _seed_index(run: Run, index: int) -> int:
    if not 0 <= index < run.experiment.seeds:
        raise BadInput(f"{run.path} has seeds 0 to {run.experiment.seeds - 1}, not {index}")
    return index


def record_episode(run: Run, built: Built | None = None, best: bool = False, seed: int = 0,
                   index: int = 0, mode: str = "sample") -> Path:  # fmt: skip
    """Play one episode with a run's players and keep it in the run's `episodes/`."""
    built = built or experiments.build(run.experiment)
    loaded = experiments.load_params(built, run.folder, best)
    own = jax.tree.map(lambda x: x[_seed_index(run, index)], loaded.params)
    stretch, step = loaded.stretch, loaded.step
    player = greedy(stretch.algorithm) if mode == "greedy" else stretch.algorithm

    def watch(params, key):
        _, moments, start = watch_episodes(built.env, player, params, key, 1)
        draw = jax.vmap(built.env.draw)
        return moments, draw(start), jax.vmap(draw)(moments.state)

    watched = jax.device_get(jax.jit(watch)(own, stream(jax.random.key(seed), "replay")))
    episode = _as_episode(built, stretch.lineup, watched, {"step": step, "seed": index, "mode": mode})
    path = run.folder.episodes / f"step-{step:012d}-seed{index}-{mode}-{seed}.npz"
    save_episode(path, episode)
    return path


def _as_episode(built: Built, lineup, watched: tuple[Moment, Picture, Picture], meta) -> Episode:
    """The first game's moments, from its start to its last step."""
    moments, start, pictures = watched
    length = int(moments.playing[:, 0].sum())

    def steps(of_games) -> np.ndarray:
        return np.asarray(of_games)[:length, 0]

    def frames(first, rest) -> np.ndarray:
        return np.concatenate([np.asarray(first)[None, 0], steps(rest)])

    ended = np.zeros((1, built.env.num_agents), bool)
    return Episode(
        game=built.experiment.game,
        members=tuple(lineup),
        action_names=built.env.action_names,
        grid=np.asarray(start.grid[0]),
        cells={kind: frames(start.cells[kind], pictures.cells[kind]) for kind in start.cells},
        players=frames(start.players, pictures.players),
        action=steps(moments.action),
        reward=steps(moments.reward),
        policy=steps(moments.policy),
        active=np.concatenate([steps(moments.active), ended]),
        meta=meta,
        goal_names=() if isinstance(moments.belief, tuple) else built.env.goals.names,
        belief=None if isinstance(moments.belief, tuple) else steps(moments.belief),
    )
