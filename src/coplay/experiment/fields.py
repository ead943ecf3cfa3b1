"""The typed settings of a run: what an experiment's TOML file may say, and how it is read and changed.

A file names only what differs from the defaults. Reading one checks every key, type and value before
anything is compiled.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from coplay.algorithms import ALGORITHMS
from coplay.algorithms.happo import HAPPOConfig
from coplay.algorithms.hop_config import HOPConfig
from coplay.algorithms.hop_plus_config import HOPPlusConfig
from coplay.algorithms.hyper_config import HyperMAPPOConfig
from coplay.algorithms.own import OWN_SETTINGS, is_own
from coplay.algorithms.own import option_names as own_options
from coplay.algorithms.ppo_config import MAPPOConfig, PPOConfig
from coplay.envs import option_names
from coplay.errors import BadInput, UnknownSetting, nearest
from coplay.settings import from_table, parse_text, read_toml, to_toml

EXPERIMENTS = Path(__file__).parent.parent / "experiments"


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
    algorithm: str = "ppo"  # in every seat, where no line-up is given; or file.py:function
    lineup: tuple[str, ...] = ()  # who sits where: algorithm, scripted player, run folder or file.py:function
    schedule: tuple[Phase, ...] = ()  # line-ups that take over after so many steps
    seats: Literal["fixed", "shuffled"] = "fixed"  # shuffled: others every episode; scores follow the learner
    seed: int = 0  # of the first seed; the others count on from it
    seeds: int = 1  # trained side by side in one program
    devices: int = 0  # parts the environments are split into; 0: one per core where networks are narrow
    game_options: dict[str, Any] = dataclasses.field(default_factory=dict)  # see `coplay games NAME`
    algorithm_options: dict[str, Any] = dataclasses.field(default_factory=dict)  # of your own algorithm
    rollout: RolloutConfig = RolloutConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    saving: SavingConfig = SavingConfig()
    ppo: PPOConfig = PPOConfig()
    mappo: MAPPOConfig = MAPPOConfig()
    happo: HAPPOConfig = HAPPOConfig()
    hyper_mappo: HyperMAPPOConfig = HyperMAPPOConfig()
    hop: HOPConfig = HOPConfig()
    hop_plus: HOPPlusConfig = HOPPlusConfig()

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


def played_otherwise(trained: Experiment, overrides: Mapping[str, Any]) -> Experiment:
    """Another way to play what was trained; what only training reads is refused, for it changes nothing."""
    changed = with_overrides(trained, overrides)
    for name in ("rollout", "evaluation", "saving", "seeds", "seed", "schedule", "devices"):
        if getattr(changed, name) != getattr(trained, name):
            raise BadInput(f"settings of {name} change nothing in how a trained run plays")
    return changed


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
    if key in places.values() or key.startswith(_free_tables(experiment)):
        return key
    found = sorted({place for short, place in places.items() if short.split("|")[0] == key})
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"--{key} could mean {' or '.join('--' + place for place in found)}; say which")
    known = {short.split("|")[0] for short in places} | set(ALIASES)
    raise UnknownSetting(key, known)


def _free_tables(experiment: Experiment) -> tuple[str, ...]:
    """Whose settings are known to whom they are given, and are checked there."""
    own = ("algorithm_options.",) if any(map(is_own, algorithms_in_play(experiment))) else ()
    return ("game_options.", *own)


def override_places(experiment: Experiment) -> dict[str, str]:
    """`short|place` -> place, for the top level, the game's options and the sections in play."""
    places = [f.name for f in dataclasses.fields(Experiment) if not _is_section(f.name)]
    playing = algorithms_in_play(experiment)
    for section in ("rollout", "evaluation", "saving", *(name for name in playing if name in ALGORITHMS)):
        places += [f"{section}.{f.name}" for f in dataclasses.fields(getattr(experiment, section))]
    places += [f"game_options.{name}" for name in option_names(experiment.game)]
    places += [f"algorithm_options.{name}" for own in filter(is_own, playing) for name in own_options(own)]
    return {f"{place.split('.')[-1]}|{place}": place for place in places}


def _is_section(name: str) -> bool:
    return name in ("rollout", "evaluation", "saving", "game_options", "algorithm_options", *ALGORITHMS)


def as_tables(experiment: Experiment) -> dict[str, Any]:
    """The whole experiment as plain tables, defaults included, sections not in play left out."""
    tables = dataclasses.asdict(experiment)
    for name in ALGORITHMS:
        if name not in algorithms_in_play(experiment):
            del tables[name]
    if not any(map(is_own, algorithms_in_play(experiment))):
        del tables["algorithm_options"]
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


def algorithms_in_play(experiment: Experiment) -> list[str]:
    """Who learns, by name: shipped ones in the catalogue's order, then the user's own."""
    names = [name for phase in experiment.schedule for name in phase.lineup]
    if experiment.lineup or not (experiment.schedule and experiment.schedule[0].after == 0):
        names += experiment.lineup or (experiment.algorithm,)
    return [name for name in ALGORITHMS if name in names] + list(dict.fromkeys(filter(is_own, names)))


def settings_of(experiment: Experiment, name: str) -> Any:
    """An algorithm's section; of one of the user's own, nothing is known by the names that sections have."""
    return getattr(experiment, name) if name in ALGORITHMS else OWN_SETTINGS
