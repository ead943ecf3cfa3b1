"""The typed settings of a run, and `build`: where names become objects.

An experiment is a TOML file that names only what differs from the defaults. Reading one checks every
key, type and combination before anything is compiled.
"""

import dataclasses
import functools
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from coplay.algorithms import ALGORITHMS
from coplay.algorithms.hop import HOPConfig
from coplay.algorithms.ppo import MAPPOConfig, Plan, PPOConfig
from coplay.envs import make_game, option_names
from coplay.envs.seats import shuffled
from coplay.errors import BadInput, nearest
from coplay.evaluation.self_play import play_episodes
from coplay.players.catalogue import make_player, player_names
from coplay.players.frozen import frozen, greedy
from coplay.players.lineup import Member, seated
from coplay.players.scripted import scripted
from coplay.settings import Where, from_table, parse_text, read_toml, to_toml
from coplay.training import checkpoint
from coplay.training.loop import Job, Stretch, stretch_at
from coplay.training.run_folder import RunFolder
from coplay.types import Algorithm, Environment, Key, Metrics, Params

EXPERIMENTS = Path(__file__).parent / "experiments"


@dataclasses.dataclass(frozen=True)
class RolloutConfig:
    total_steps: int = 2_000_000  # joint steps, all environments together; rounded up to whole updates
    num_envs: int = 256  # games played side by side
    num_steps: int = 70  # steps in each between updates
    sequence_length: int = 20  # steps a recurrent network is trained through; divides num_steps

    def __post_init__(self):
        for name in ("total_steps", "num_envs", "num_steps", "sequence_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")

    @property
    def steps_per_update(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def num_updates(self) -> int:
        return -(-self.total_steps // self.steps_per_update)


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    every: int = 50  # updates between evaluations; 0 switches them off
    episodes: int = 32  # games per evaluation during training
    mode: Literal["greedy", "sample"] = "greedy"  # likeliest action, or drawn from the policy
    final_episodes: int = 1024  # games of the score printed when training ends, drawn from the policy

    def __post_init__(self):
        if self.every < 0 or self.episodes < 1 or self.final_episodes < 1:
            raise ValueError("evaluation: every must not be negative, episodes and final_episodes at least 1")


@dataclasses.dataclass(frozen=True)
class SavingConfig:
    every: int = 50  # updates between checkpoints; one is always made at the end
    keep: int = 2  # newest checkpoints kept, besides the best one
    tensorboard: bool = True  # also write TensorBoard files

    def __post_init__(self):
        if self.every < 1 or self.keep < 1:
            raise ValueError("saving: every and keep must be at least 1")


@dataclasses.dataclass(frozen=True)
class Phase:
    after: int = 0  # joint steps before this line-up sits down
    lineup: tuple[str, ...] = ()  # one name per seat

    def __post_init__(self):
        if self.after < 0:
            raise ValueError(f"schedule: after={self.after} must not be negative")


MOST_SEEDS = 2**31  # metrics keep a seed in 32 bits


@dataclasses.dataclass(frozen=True)
class Experiment:
    description: str = ""  # the question this experiment asks
    game: str = "4h1s_4x4"  # a name from `coplay games`, or file.py:function
    algorithm: str = "ppo"  # in every seat, where no line-up is given
    lineup: tuple[str, ...] = ()  # who sits where: algorithm, scripted player, run folder or file.py:function
    schedule: tuple[Phase, ...] = ()  # line-ups that take over after so many steps
    seats: Literal["fixed", "shuffled"] = "fixed"  # shuffled: others every episode; scores follow the learner
    seed: int = 0  # of the first seed; the others count on from it
    seeds: int = 1  # trained side by side in one program
    devices: int = 0  # parts the environments are split into; 0: one per core where networks are narrow
    game_options: dict[str, Any] = dataclasses.field(default_factory=dict)  # see `coplay games NAME`
    rollout: RolloutConfig = RolloutConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    saving: SavingConfig = SavingConfig()
    ppo: PPOConfig = PPOConfig()
    mappo: MAPPOConfig = MAPPOConfig()
    hop: HOPConfig = HOPConfig()

    def __post_init__(self):
        if self.seeds < 1:
            raise ValueError(f"seeds={self.seeds} must be at least 1")
        if self.devices < 0:
            raise ValueError(f"devices={self.devices} must not be negative")
        if not 0 <= self.seed <= MOST_SEEDS - self.seeds:
            raise ValueError(f"seed={self.seed} must lie between 0 and {MOST_SEEDS - self.seeds}")


# --- reading -------------------------------------------------------------------------------------


def read_experiment(name: str, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """An experiment by the name of a shipped one or a TOML file, with some fields set otherwise."""
    path = find_experiment(name)
    tables, where = read_toml(path)
    return with_overrides(from_table(Experiment, tables, where), overrides or {})


def find_experiment(name: str) -> Path:
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise BadInput(f"there is no experiment file {name!r}")
        return Path(name)
    known = experiment_names()
    if name not in known:
        raise BadInput(f"{name!r} is neither a TOML file nor a shipped experiment; {nearest(name, known)}")
    return EXPERIMENTS / f"{name}.toml"


def experiment_names() -> list[str]:
    return sorted(path.stem for path in EXPERIMENTS.glob("*.toml"))


def with_overrides(experiment: Experiment, overrides: Mapping[str, Any]) -> Experiment:
    """`{"learning_rate": 1e-3, "rollout.num_envs": 64}`: short names reach into the sections in play.

    Who plays what comes first, because it decides which sections those are.
    """
    table = {ALIASES.get(key, key): value for key, value in overrides.items()}
    for keys in (table.keys() & DECISIVE, table.keys() - DECISIVE):
        experiment = _replaced(experiment, {key: table[key] for key in table if key in keys})
    return experiment


DECISIVE = {"game", "algorithm", "lineup", "schedule"}


def _replaced(experiment: Experiment, overrides: Mapping[str, Any]) -> Experiment:
    if not overrides:
        return experiment
    tables = as_tables(experiment)
    for key, value in overrides.items():
        *sections, field = locate(experiment, key).split(".")
        table = tables
        for section in sections:
            table = table.setdefault(section, {})
        table[field] = parse_text(value) if isinstance(value, str) else value
    return from_table(Experiment, tables, lambda key: "")


ALIASES = {"steps": "rollout.total_steps"}


def locate(experiment: Experiment, key: str) -> str:
    """The dotted place of an override; an ambiguous or unknown one is refused with the nearest."""
    places = override_places(experiment)
    if key in places.values() or key.startswith("game_options."):
        return key
    found = sorted({place for short, place in places.items() if short.split("|")[0] == key})
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"--{key} could mean {' or '.join('--' + place for place in found)}; say which")
    known = {short.split("|")[0] for short in places} | set(ALIASES)
    raise BadInput(f"unknown setting --{key}; {nearest_option(key, known)}")


def nearest_option(key: str, known: set[str]) -> str:
    return nearest(key, known).replace("mean '", "mean '--")


def override_places(experiment: Experiment) -> dict[str, str]:
    """`short|place` -> place, for the top level, the game's options and the sections in play."""
    places = [f.name for f in dataclasses.fields(Experiment) if not _is_section(f.name)]
    for section in ("rollout", "evaluation", "saving", *algorithms_in_play(experiment)):
        places += [f"{section}.{f.name}" for f in dataclasses.fields(getattr(experiment, section))]
    places += [f"game_options.{name}" for name in option_names(experiment.game)]
    return {f"{place.split('.')[-1]}|{place}": place for place in places}


def _is_section(name: str) -> bool:
    return name in ("rollout", "evaluation", "saving", "game_options", *ALGORITHMS)


def as_tables(experiment: Experiment) -> dict[str, Any]:
    """The whole experiment as plain tables, defaults included, sections not in play left out."""
    tables = dataclasses.asdict(experiment)
    for name in ALGORITHMS:
        if name not in algorithms_in_play(experiment):
            del tables[name]
    return {key: value for key, value in tables.items() if value not in ((), {}, None)}


def as_toml(experiment: Experiment) -> str:
    """Fully resolved; None is written as "none", which reads back as None."""
    return to_toml(_without_none(as_tables(experiment)))


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_none(item) for item in value]
    return "none" if value is None else value


# --- building ------------------------------------------------------------------------------------


class Built(NamedTuple):
    """An experiment as objects."""

    experiment: Experiment
    env: Environment
    members: list[Member]
    stretches: list[Stretch]


def build(experiment: Experiment) -> Built:
    """Names into objects, with every impossible combination refused in a sentence."""
    try:
        return _build(experiment)
    except ValueError as error:
        raise BadInput(str(error)) from error


def _build(experiment: Experiment) -> Built:
    env = make_game(experiment.game, **experiment.game_options)
    phases = _phases(experiment, env)
    _check_rollout(experiment)
    if experiment.seats == "shuffled":
        env = shuffled(env)
    names = dict.fromkeys(name for phase in phases for name in phase.lineup)
    members = [_member(experiment, env, name, phases) for name in names]
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
        config = getattr(experiment, name)
        if rollout.num_envs % (config.minibatches * resolved_devices(experiment)):
            raise BadInput(
                f"num_envs={rollout.num_envs} must be a multiple of minibatches={config.minibatches} "
                f"times devices={resolved_devices(experiment)}"
            )
        if config.network in ("gru", "cnn_gru") and rollout.num_steps % rollout.sequence_length:
            raise BadInput(
                f"num_steps={rollout.num_steps} must be a multiple of sequence_length="
                f"{rollout.sequence_length} with network={config.network!r}"
            )


def resolved_devices(experiment: Experiment) -> int:
    """By a fixed rule, so that the same experiment on the same machine gives the same bits."""
    if experiment.devices:
        return experiment.devices
    cores = os.cpu_count() or 1
    widths = [max(getattr(experiment, name).hidden) for name in algorithms_in_play(experiment)]
    minibatches = [getattr(experiment, name).minibatches for name in algorithms_in_play(experiment)]
    fits = [
        count
        for count in range(1, cores + 1)
        if all(experiment.rollout.num_envs % (count * m) == 0 for m in minibatches)
    ]
    return max(fits, default=1) if widths and max(widths) <= 256 else 1


def algorithms_in_play(experiment: Experiment) -> list[str]:
    names = [name for phase in experiment.schedule for name in phase.lineup]
    if experiment.lineup or not (experiment.schedule and experiment.schedule[0].after == 0):
        names += experiment.lineup or (experiment.algorithm,)
    return [name for name in ALGORITHMS if name in names]


def _member(experiment: Experiment, env: Environment, name: str, phases: list[Phase]) -> Member:
    seats = tuple(seat for seat in range(env.num_agents) if any(p.lineup[seat] == name for p in phases))
    return Member(name, _player_builder(experiment, env, name), seats)


def _player_builder(experiment: Experiment, env: Environment, name: str):
    """A function from seats to the Algorithm that plays them."""
    if name in ALGORITHMS:
        rollout = experiment.rollout
        plan = Plan(rollout.num_updates, rollout.sequence_length, rollout.num_envs, rollout.num_steps)
        config = getattr(experiment, name)
        return functools.cache(lambda seats: ALGORITHMS[name](env, seats, config, plan))
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
        sequence_length=rollout.sequence_length if _has_memory(experiment) else rollout.num_steps,
        seed=experiment.seed,
        seeds=experiment.seeds,
        devices=resolved_devices(experiment),
        evaluate=functools.partial(_evaluation, built.env, evaluation) if evaluation.every else None,
        evaluate_every=evaluation.every,
        save_every=experiment.saving.every,
        keep=experiment.saving.keep,
        tensorboard=experiment.saving.tensorboard,
    )


def _has_memory(experiment: Experiment) -> bool:
    return any("gru" in getattr(experiment, name).network for name in algorithms_in_play(experiment))


def _evaluation(env: Environment, config: EvaluationConfig, algorithm: Algorithm):
    player = greedy(algorithm) if config.mode == "greedy" else algorithm

    def evaluate(params: Params, key: Key) -> Metrics:
        scores = play_episodes(env, player, params, key, config.episodes)
        return {
            "eval/return": jnp.mean(scores.episode_return, axis=0),
            "eval/length": jnp.mean(scores.length),
        }

    return evaluate


# --- runs as players -----------------------------------------------------------------------------


class RunReference(NamedTuple):
    """`runs/x`, `runs/x@best` or `runs/x@best:3`."""

    path: Path
    best: bool
    seed: int


def parse_run(name: str) -> RunReference:
    path, _, which = name.partition("@")
    which, _, seed = which.partition(":")
    if which not in ("", "last", "best") or (seed and not seed.isdigit()):
        raise BadInput(f"{name!r}: after the run folder comes @best or @last, and :SEED if wanted")
    return RunReference(Path(path), which == "best", int(seed or 0))


def is_run(name: str) -> bool:
    path = Path(name.partition("@")[0])
    return (path / "experiment.toml").is_file() or ("/" in name and ".py:" not in name)


def read_run(folder: RunFolder) -> Experiment:
    """The experiment a run folder holds."""
    try:
        tables = tomllib.loads(folder.experiment_toml)
    except ValueError as error:
        raise BadInput(f"{folder.path}/experiment.toml is damaged: {error}") from error
    return from_table(Experiment, tables, _in_folder(folder))


def _in_folder(folder: RunFolder) -> Where:
    return lambda key: f"{folder.path.name}/experiment.toml: "


class Loaded(NamedTuple):
    """Weights [seed, ...] of a checkpoint, the step they are from, and the line-up that they played in."""

    params: Any
    step: int
    stretch: Stretch


def load_params(built: Built, folder: RunFolder, best: bool) -> Loaded:
    """The last or the best checkpoint's weights."""
    one = built.stretches[-1].algorithm.init(jax.random.key(0))
    like = jax.tree.map(lambda x: jnp.stack([x] * built.experiment.seeds), one)
    found = checkpoint.best(folder.checkpoints) if best else None
    if best and found is None:
        raise BadInput(f"{folder.path} has no evaluated checkpoint, so @best means nothing; use @last")
    params, meta = checkpoint.load(folder.checkpoints, like, found[0] if found else None, part=".params")
    return Loaded(params, meta["step"], stretch_at(built.stretches, meta["updates"]))


def frozen_run(name: str, env: Environment):
    reference = parse_run(name)
    folder = RunFolder.open(reference.path)
    built = build(read_run(folder))
    if (built.env.name, built.env.observation_size) != (env.name, env.observation_size):
        raise BadInput(
            f"{name} was trained on {built.experiment.game} with rows of {built.env.observation_size} "
            f"numbers and cannot sit in {env.name} with {env.observation_size}"
        )
    loaded = load_params(built, folder, reference.best)
    if reference.seed >= built.experiment.seeds:
        raise BadInput(f"{name}: the run has seeds 0 to {built.experiment.seeds - 1}")
    own = jax.tree.map(lambda x: x[reference.seed], loaded.params)
    return lambda seats: frozen(_part_of(built.members, loaded.stretch.lineup, seats), own)


def _part_of(members: list[Member], lineup: tuple[str, ...], seats: tuple[int, ...]) -> Algorithm:
    """A line-up's players in some of its seats only."""
    kept = tuple(name if seat in seats else "" for seat, name in enumerate(lineup))
    return seated(members, kept)
