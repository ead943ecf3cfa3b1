"""What a study fixes before it is run: its question, arms, tasks, seeds, and which comparisons count."""

import dataclasses
from pathlib import Path
from typing import Any, Literal, NamedTuple

from coplay.errors import BadInput, nearest
from coplay.settings import from_table, read_toml

STUDIES = Path(__file__).parent

Role = Literal[
    "baseline",  # what a candidate has to beat,
    "rival",  # and these beside it: controls that learn less, or have as many weights
    "candidate",  # what may be claimed to be better
    "control",  # of another arm (`base`): its context is another game's, or nothing
    "shown",  # in the table, in no claim
]


@dataclasses.dataclass(frozen=True)
class Arm:
    says: str  # what it is, in a few words
    role: Role = "shown"
    base: str = ""  # the arm that it is like: its settings and its learning rate, but for what follows
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    scaled: dict[str, float] = dataclasses.field(default_factory=dict)  # settings of the base times so much
    as_many_weights_as: str = ""  # hidden layers are widened until there are as many as in that arm


@dataclasses.dataclass(frozen=True)
class Task:
    experiment: str  # a shipped one: game and rounds
    steps: int
    level: float  # a return that a good player reaches: drift is compared there
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # of every arm alike
    seeds: int = 5
    rates: tuple[float, ...] = (5e-4,)  # learning rates that every arm with no base is tried at
    tuning_seeds: int = 2  # that a rate is chosen on; their numbers are no final seed's
    rates_from: str = ""  # the task whose choice of rates is taken over
    arms: tuple[str, ...] = ()  # that are run; none named: all


class Budget(NamedTuple):
    """How much of a study is run."""

    share: float  # of every task's steps
    most_seeds: int
    most_rates: int


BUDGETS = {"full": Budget(1.0, 1000, 1000), "quick": Budget(0.1, 2, 1)}


@dataclasses.dataclass(frozen=True)
class Study:
    name: str
    question: str
    settings: dict[str, Any]  # of every arm on every task
    arms: dict[str, Arm]
    tasks: dict[str, Task]

    @property
    def baseline(self) -> str:
        return self.in_role("baseline")[0]

    def in_role(self, *roles: Role) -> list[str]:
        return [name for name, arm in self.arms.items() if arm.role in roles]

    def arms_of(self, task: str) -> list[str]:
        return list(self.tasks[task].arms or self.arms)


def study_names() -> list[str]:
    return sorted(path.stem for path in STUDIES.glob("*.toml"))


def read_study(name: str) -> Study:
    """A shipped study by its name, or a TOML file."""
    path = Path(name) if name.endswith(".toml") else STUDIES / f"{name}.toml"
    if not path.is_file():
        raise BadInput(f"{name!r} is neither a TOML file nor a shipped study; {nearest(name, study_names())}")
    tables, where = read_toml(path)
    known = ("question", "settings", "arms", "tasks")
    for key in tables:
        if key not in known:
            raise BadInput(f"{where(key)}unknown key {key!r}; {nearest(key, known)}")
    study = Study(
        name=path.stem,
        question=str(tables.get("question", "")),
        settings=dict(tables.get("settings", {})),
        arms={n: from_table(Arm, t, where, f"arms.{n}.") for n, t in tables.get("arms", {}).items()},
        tasks={n: from_table(Task, t, where, f"tasks.{n}.") for n, t in tables.get("tasks", {}).items()},
    )
    _check(study)
    return study


def _check(study: Study) -> None:
    if len(study.in_role("baseline")) != 1:
        raise BadInput(f"study {study.name}: exactly one arm has the role of the baseline")
    for name, arm in study.arms.items():
        for other in filter(None, (arm.base, arm.as_many_weights_as)):
            if other not in study.arms or study.arms[other].base:
                raise BadInput(f"study {study.name}, {name}: {other!r} must be an arm without a base itself")
        if arm.role == "control" and not arm.base:
            raise BadInput(f"study {study.name}, {name}: a control names the arm it belongs to as its base")
    for name, task in study.tasks.items():
        _check_task(study, name, task)


def _check_task(study: Study, name: str, task: Task) -> None:
    own = study.arms_of(name)
    for arm in own:
        if arm not in study.arms:
            raise BadInput(f"study {study.name}, {name}: no arm {arm!r}; {nearest(arm, study.arms)}")
        base = study.arms[arm].base
        if base and base not in own and not task.rates_from:
            raise BadInput(f"study {study.name}, {name}: {arm} takes its rate from {base}, which is not run")
    if study.baseline not in own:
        raise BadInput(f"study {study.name}, {name}: the baseline {study.baseline} is not among its arms")
    if task.rates_from and task.rates_from not in study.tasks:
        raise BadInput(f"study {study.name}, {name}: rates_from={task.rates_from!r} is no task of it")
