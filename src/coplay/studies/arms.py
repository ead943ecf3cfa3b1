"""An arm on a task, as an experiment: the task's settings, then the arm's own, then its learning rate."""

import json
from typing import Any

from coplay import experiment as experiments
from coplay import plan as plans
from coplay.errors import BadInput
from coplay.experiment import Experiment
from coplay.studies.study import Arm, Budget, Study

WIDEST = 2048


def experiment_of(study: Study, task: str, arm: str, rate: float, budget: Budget) -> Experiment:
    """What is trained: everything but the arm's own settings is the same for all arms of a task."""
    given = experiments.read_experiment(study.tasks[task].experiment)
    return experiments.with_overrides(given, overrides_of(study, task, arm, rate, budget))


def overrides_of(study: Study, task: str, arm: str, rate: float, budget: Budget) -> dict[str, Any]:
    """The settings by which an arm differs from its task's experiment."""
    own, of_task = study.arms[arm], study.tasks[task]
    settings = study.settings | of_task.settings | settings_of(study, arm)
    table = {"steps": round(of_task.steps * budget.share)} | settings | _rates(settings, rate)
    if own.as_many_weights_as:
        table["hidden"] = _widened(study, task, own.as_many_weights_as, table, budget)
    return table | _scaled(study, task, table, own)


def settings_of(study: Study, arm: str) -> dict[str, Any]:
    own = study.arms[arm]
    return (study.arms[own.base].settings if own.base else {}) | own.settings


def command_of(study: Study, task: str, arm: str, rate: float, budget: Budget) -> str:
    """How one trains just this."""
    settings = overrides_of(study, task, arm, rate, budget)
    words = [f"--{name} {_as_text(value)}" for name, value in settings.items()]
    return f"coplay train {study.tasks[task].experiment} {' '.join(words)} --seeds {study.tasks[task].seeds}"


def _as_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"'{json.dumps(value, separators=(',', ':'))}'"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rates(settings: dict[str, Any], rate: float) -> dict[str, float]:
    """One rate for all that learns, so that a sweep is as long for every arm."""
    generated = settings.get("algorithm") == "hyper_mappo"
    return {"learning_rate": rate} | ({"generator_rate": rate} if generated else {})


def _scaled(study: Study, task: str, table: dict[str, Any], arm: Arm) -> dict[str, Any]:
    given = experiments.read_experiment(study.tasks[task].experiment)
    before = experiments.with_overrides(given, table)
    section = getattr(before, before.algorithm)
    changed = {}
    for name, factor in arm.scaled.items():
        value = getattr(section, name)
        changed[name] = max(1, int(value * factor)) if isinstance(value, int) else value * factor
    return changed


def _widened(study: Study, task: str, other: str, table: dict[str, Any], budget: Budget) -> tuple[int, ...]:
    """Hidden layers of one width, the narrowest that has as many weights as the other arm."""
    rate = table["learning_rate"]
    wanted = label_and_weights(experiment_of(study, task, other, rate, budget))[1]
    given = experiments.with_overrides(experiments.read_experiment(study.tasks[task].experiment), table)
    layers = len(getattr(given, given.algorithm).hidden)

    def is_enough(width: int) -> bool:
        widened = experiments.with_overrides(given, {"hidden": (width,) * layers})
        return label_and_weights(widened)[1] >= wanted

    high = 2
    while not is_enough(high):
        high *= 2
        if high > WIDEST:
            raise BadInput(f"{task}: no width up to {WIDEST} has {wanted:,} weights, as many as {other}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return (high,) * layers


def label_and_weights(experiment: Experiment) -> tuple[str, int]:
    return plans.label_and_weights(experiments.build(experiment))
