"""Where names become objects: the game, its players, who sits where, and what the training loop is to do."""

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from coplay.algorithms import ALGORITHMS
from coplay.algorithms.own import is_own, own_algorithm, refuse_unknown
from coplay.algorithms.ppo import Plan
from coplay.envs import make_game
from coplay.envs.seats import shuffled
from coplay.errors import BadInput, nearest
from coplay.evaluation.self_play import play_episodes
from coplay.experiment.fields import (
    EvaluationConfig,
    Experiment,
    Phase,
    algorithms_in_play,
    settings_of,
    with_overrides,
)
from coplay.experiment.named_runs import is_run, parse_run, read_run
from coplay.players.catalogue import make_player, player_names
from coplay.players.frozen import frozen, greedy
from coplay.players.lineup import Build, Member, part_of, seated
from coplay.players.scripted import scripted
from coplay.training import checkpoint
from coplay.training.job import Job, Stretch, stretch_at
from coplay.training.run_folder import RunFolder
from coplay.training.stages import silent
from coplay.types import Algorithm, Environment, Key, Metrics, Params


class Built(NamedTuple):
    """An experiment as objects."""

    experiment: Experiment
    env: Environment
    members: list[Member]
    stretches: list[Stretch]


def build(experiment: Experiment, change: Callable[[Environment], Environment] | None = None) -> Built:
    """Names into objects, with every impossible combination refused in a sentence. The game may be changed
    before anybody is made for it."""
    try:
        env = make_game(experiment.game, **experiment.game_options)
        return _build(experiment, change(env) if change else env)
    except ValueError as error:
        raise BadInput(str(error)) from error


def _build(experiment: Experiment, env: Environment) -> Built:
    phases = _phases(experiment, env)
    _check_rollout(experiment)
    if experiment.seats == "shuffled":
        env = shuffled(env)
    names = dict.fromkeys(name for phase in phases for name in phase.lineup)
    _check_options(experiment)
    members = [_member(experiment, env, name, phases) for name in names]
    _check_own_memory(experiment, members)
    per_update = experiment.rollout.steps_per_update
    starts = [-(-phase.after // per_update) for phase in phases]
    ends = [*starts[1:], max(experiment.rollout.num_updates, starts[-1])]
    stretches = [
        Stretch(start, min(end, experiment.rollout.num_updates), phase.lineup, seated(members, phase.lineup))
        for start, end, phase in zip(starts, ends, phases, strict=True)
        if start < experiment.rollout.num_updates
    ]
    return Built(experiment, env, members, stretches)


def _phases(experiment: Experiment, env: Environment) -> list[Phase]:
    default = experiment.lineup or (experiment.algorithm,) * env.num_agents
    later = sorted(experiment.schedule, key=lambda phase: phase.after)
    if later and later[0].after == 0 and experiment.lineup:
        raise BadInput("lineup and a schedule that begins after 0 steps both say who starts; leave one out")
    phases = later if later and later[0].after == 0 else [Phase(0, default), *later]
    if len({phase.after for phase in phases}) < len(phases):
        raise BadInput("schedule: two line-ups begin after the same number of steps")
    for phase in phases:
        if len(phase.lineup) != env.num_agents:
            raise BadInput(
                f"a line-up names one player for each of {env.num_agents} seats of {experiment.game}; "
                f"this one has {len(phase.lineup)}: {', '.join(phase.lineup)}"
            )
    return phases


def _check_rollout(experiment: Experiment) -> None:
    rollout = experiment.rollout
    if rollout.num_envs % resolved_devices(experiment):
        raise BadInput(f"num_envs={rollout.num_envs} must be a multiple of devices={experiment.devices}")
    for name in algorithms_in_play(experiment):
        config = settings_of(experiment, name)
        if rollout.num_envs % (getattr(config, "minibatches", 1) * resolved_devices(experiment)):
            raise BadInput(
                f"num_envs={rollout.num_envs} must be a multiple of minibatches={config.minibatches} "
                f"times devices={resolved_devices(experiment)}"
            )
        if _reads_sequences(config) and rollout.num_steps % rollout.sequence_length:
            raise BadInput(
                f"num_steps={rollout.num_steps} must be a multiple of sequence_length="
                f"{rollout.sequence_length} with {_what_reads(config)}"
            )


def _check_options(experiment: Experiment) -> None:
    own = list(filter(is_own, algorithms_in_play(experiment)))
    if own:
        refuse_unknown(own, experiment.algorithm_options)


def _check_own_memory(experiment: Experiment, members: list[Member]) -> None:
    rollout = experiment.rollout
    for member in members:
        if _remembers(member) and rollout.num_steps % rollout.sequence_length:
            raise BadInput(
                f"num_steps={rollout.num_steps} must be a multiple of sequence_length="
                f"{rollout.sequence_length} with the memory of {member.name}"
            )


def _remembers(member: Member) -> bool:
    """Whether it is an algorithm of the user's own that keeps anything from step to step."""
    if not is_own(member.name):
        return False
    algorithm = member.build(member.seats)
    return bool(jax.tree.leaves(jax.eval_shape(lambda: algorithm.remember(1))))


def _what_reads(config: Any) -> str:
    """Sequences, in the words of the settings."""
    if "gru" in config.network:
        return f"network={config.network!r}"
    return f"context={config.context!r}" if getattr(config, "moves_in_time", False) else "subgoals"


def resolved_devices(experiment: Experiment) -> int:
    """By a fixed rule, so that the same experiment on the same machine gives the same bits."""
    if experiment.devices:
        return experiment.devices
    cores = os.cpu_count() or 1
    playing = algorithms_in_play(experiment)
    if any(map(is_own, playing)):
        return 1  # whether it adds up what devices must agree on, only its author knows
    widths = [max(getattr(experiment, name).hidden) for name in playing]
    minibatches = [getattr(experiment, name).minibatches for name in playing]
    fits = [
        count
        for count in range(1, cores + 1)
        if all(experiment.rollout.num_envs % (count * m) == 0 for m in minibatches)
    ]
    return max(fits, default=1) if widths and max(widths) <= 256 else 1


def _member(experiment: Experiment, env: Environment, name: str, phases: list[Phase]) -> Member:
    seats = tuple(seat for seat in range(env.num_agents) if any(p.lineup[seat] == name for p in phases))
    return Member(name, _player_builder(experiment, env, name), seats)


def _player_builder(experiment: Experiment, env: Environment, name: str) -> Build:
    rollout = experiment.rollout
    plan = Plan(rollout.num_updates, rollout.sequence_length, rollout.num_envs, rollout.num_steps)
    if name in ALGORITHMS:
        config = getattr(experiment, name)
        return functools.cache(lambda seats: ALGORITHMS[name](env, seats, config, plan))
    if is_own(name):
        options = experiment.algorithm_options
        return functools.cache(lambda seats: own_algorithm(name, env, seats, plan, options))
    return known_player(env, name)


def known_player(env: Environment, name: str) -> Build:
    """A player that learns nothing more: a run, a scripted player, or one from a file."""
    if is_run(name):
        return frozen_run(name, env)
    try:
        player = make_player(name, env)
    except BadInput as error:
        known = [*ALGORITHMS, *player_names(env)]
        if ":" in name or "(" in name:
            raise
        raise BadInput(
            f"line-up: {name!r} is no algorithm, player of {env.name} or run folder; {nearest(name, known)}"
        ) from error
    return lambda seats: scripted(player, env, seats)


def job(built: Built) -> Job:
    """What the training loop needs to know of an experiment."""
    experiment = built.experiment
    rollout, evaluation = experiment.rollout, experiment.evaluation
    return Job(
        env=built.env,
        stretches=built.stretches,
        num_envs=rollout.num_envs,
        num_steps=rollout.num_steps,
        sequence_length=rollout.sequence_length if _has_memory(built) else rollout.num_steps,
        seed=experiment.seed,
        seeds=experiment.seeds,
        devices=resolved_devices(experiment),
        evaluate=functools.partial(_evaluation, built.env, evaluation) if evaluation.every else None,
        evaluate_every=evaluation.every,
        save_every=experiment.saving.every,
        keep=experiment.saving.keep,
        tensorboard=experiment.saving.tensorboard,
    )


def _has_memory(built: Built) -> bool:
    configs = [settings_of(built.experiment, name) for name in algorithms_in_play(built.experiment)]
    return any(map(_reads_sequences, configs)) or any(map(_remembers, built.members))


def _reads_sequences(config: Any) -> bool:
    """Whether something in it is trained through time."""
    return (
        "gru" in getattr(config, "network", "")
        or getattr(config, "subgoals", "none") != "none"
        or getattr(config, "moves_in_time", False)
    )


def _evaluation(env: Environment, config: EvaluationConfig, algorithm: Algorithm):
    player = greedy(algorithm) if config.mode == "greedy" else algorithm

    def evaluate(params: Params, key: Key) -> Metrics:
        scores = play_episodes(env, player, params, key, config.episodes)
        return {
            "eval/return": jnp.mean(scores.episode_return, axis=0),
            "eval/length": jnp.mean(scores.length),
            **{f"eval/outcome/{name}": jnp.mean(count) for name, count in scores.outcomes.items()},
        }

    return evaluate


# --- runs as players -----------------------------------------------------------------------------


class Loaded(NamedTuple):
    """Weights [seed, ...] of a checkpoint, the step they are from, and the line-up that they played in."""

    params: Any
    step: int
    stretch: Stretch
    meta: dict[str, Any]  # what the checkpoint says of itself


def load_params(built: Built, folder: RunFolder, best: bool) -> Loaded:
    """The last or the best checkpoint's weights."""
    one = built.stretches[-1].algorithm.init(jax.random.key(0))
    like = jax.tree.map(lambda x: jnp.stack([x] * built.experiment.seeds), one)
    found = checkpoint.best(folder.checkpoints) if best else None
    if best and found is None:
        raise BadInput(f"{folder.path} has no evaluated checkpoint, so @best means nothing; use @last")
    params, meta = checkpoint.load(folder.checkpoints, like, found[0] if found else None, part=".params")
    return Loaded(params, meta["step"], _stretch_of(built, folder, meta), meta)


def _stretch_of(built: Built, folder: RunFolder, meta: dict[str, Any]) -> Stretch:
    """The line-up that a checkpoint's weights played in; the first runs did not say which it was."""
    if "stretch" not in meta:
        return stretch_at(built.stretches, meta["updates"])
    if meta["stretch"] >= len(built.stretches):
        raise BadInput(f"{folder.path}: with these settings training would end before the line-up it holds")
    return built.stretches[meta["stretch"]]


def frozen_run(name: str, env: Environment) -> Build:
    """A run's player as it is."""
    build, own = _run_player(name, env, {})
    return lambda seats: frozen(build(seats), own)


def learning_run(name: str, env: Environment, overrides: Mapping[str, Any]) -> Build:
    """A run's player that goes on learning from where it stands, its optimisers as on the first day."""
    build, own = _run_player(name, env, overrides)

    def player(seats: tuple[int, ...]) -> Algorithm:
        learner = build(seats)
        return learner._replace(init=lambda key: own, begin=None, learn=silent(learner.learn))

    return player


def _run_player(name: str, env: Environment, overrides: Mapping[str, Any]) -> tuple[Build, Params]:
    reference = parse_run(name)
    folder = RunFolder.open(reference.path)
    built = build(with_overrides(read_run(folder), overrides))
    if (built.env.name, built.env.observation_size) != (env.name, env.observation_size):
        raise BadInput(
            f"{name} was trained on {built.experiment.game} with rows of {built.env.observation_size} "
            f"numbers and cannot sit in {env.name} with {env.observation_size}"
        )
    loaded = load_params(built, folder, reference.best)
    if reference.seed >= built.experiment.seeds:
        raise BadInput(f"{name}: the run has seeds 0 to {built.experiment.seeds - 1}")
    own = jax.tree.map(lambda x: x[reference.seed], loaded.params)
    return functools.partial(part_of, built.members, loaded.stretch.lineup), own
