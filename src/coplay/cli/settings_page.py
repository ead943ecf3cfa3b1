"""docs/settings.md, made from the settings themselves: `make docs`."""

from collections.abc import Collection

from coplay.algorithms import ALGORITHMS, DESCRIPTIONS
from coplay.diagnostics.metrics import METRICS
from coplay.envs import ENVIRONMENTS, GAMES, options_of
from coplay.experiment import (
    EvaluationConfig,
    Experiment,
    RolloutConfig,
    SavingConfig,
    experiment_names,
    read_experiment,
)
from coplay.offline.pretrain import PARTS
from coplay.offline.training import Training
from coplay.settings import describe_type, field_docs, field_types


def page() -> str:
    """The whole page."""
    top = Experiment()
    parts = [
        "# Settings",
        "Made from the code by `make docs`; do not edit. A TOML names only what differs from these defaults; "
        "on the command line any of them is `--name value` (or `--section.name value`).",
        "## The experiment",
        _table(Experiment, top, skip={"rollout", "evaluation", "saving", *ALGORITHMS}),
        "A line-up that takes over later is written as `[[schedule]]` with `after` (steps) and `lineup`.",
    ]
    for section, config in (
        ("rollout", RolloutConfig),
        ("evaluation", EvaluationConfig),
        ("saving", SavingConfig),
    ):
        parts += [f"## `[{section}]`", _table(config, getattr(top, section))]
    for name in ALGORITHMS:
        parts += [f"## `[{name}]`", DESCRIPTIONS[name], _table(type(getattr(top, name)), getattr(top, name))]
    for name in ENVIRONMENTS:
        options = options_of(name)
        parts += [f"## `[game_options]` of `{name}`", GAMES[name], _table(options, options())]
    parts += ["## `coplay pretrain`", "For every part:", _table(Training, Training())]
    for name, kind in PARTS.items():
        parts += [f"`coplay pretrain {name}`: {kind.description}.", _table(kind.config, kind.config())]
    parts += ["## Shipped experiments", _experiments()]
    parts += ["## Metrics", "The same names in Parquet, TensorBoard and the report.", _metrics()]
    return "\n\n".join(parts) + "\n"


def _table(cls: type, values, skip: Collection[str] = ()) -> str:
    docs = field_docs(cls)
    rows = ["| Setting | Default | Type | Meaning |", "| --- | --- | --- | --- |"]
    for name, kind in field_types(cls).items():
        if name not in skip:
            default, meaning = _show(getattr(values, name)), docs.get(name, "")
            rows.append(f"| `{name}` | {default} | {_cell(describe_type(kind))} | {meaning} |")
    return "\n".join(rows)


def _show(value) -> str:
    if value in ("", (), {}, None):
        return "none"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _experiments() -> str:
    rows = ["| Experiment | Question |", "| --- | --- |"]
    rows += [f"| `{name}` | {read_experiment(name).description} |" for name in experiment_names()]
    return "\n".join(rows)


def _metrics() -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in METRICS.items()]
    return "\n".join(["| Metric | Meaning |", "| --- | --- |", *rows])


if __name__ == "__main__":
    print(page(), end="")
