"""`ablate`: a learner's parts added one by one, and the rung at which each symptom appears first."""

import argparse
import json
from pathlib import Path
from typing import Any

from coplay import experiment as experiments
from coplay import runs
from coplay.audit.climbing import climb
from coplay.audit.ladder import as_numbers
from coplay.audit.rungs import Rung, rungs
from coplay.audit.symptoms import SYMPTOMS
from coplay.cli.output import people, plain, print_json, print_table, result
from coplay.cli.train import LiveLine, parse_overrides
from coplay.errors import BadInput, nearest
from coplay.files import replace_file
from coplay.training.devices import prepare

EPILOG = """a ladder goes on where it was stopped: rungs that are trained already are read from its folder.
any setting of the experiment is an option, as for `coplay train`.
  coplay ablate hop_plus_4h1s_4x4                    PPO, models, subgoals, world, full; weights shared too
  coplay ablate hop_plus_4h1s_4x4 --rungs ppo,full   its two ends alone
  coplay ablate ppo_4h1s_4x4 --steps 200000          does an order of seats stay under shared weights?"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", help="a TOML file, or the name of a shipped experiment")
    parser.add_argument("--seeds", default="8", help="how many, the same ones on every rung (8)")
    parser.add_argument("--steps", help="joint steps of every rung (default: as the experiment says)")
    parser.add_argument("--rungs", help="only these, between commas")
    parser.add_argument("--out", help="folder of runs and figures (default: ablations/EXPERIMENT)")


def ablate(arguments: argparse.Namespace, rest: list[str]) -> int:
    overrides = parse_overrides(rest) | {"seeds": arguments.seeds}
    overrides |= {} if arguments.steps is None else {"steps": arguments.steps}
    experiment = runs.resolve(experiments.read_experiment(arguments.experiment, overrides))
    prepare(experiment.devices)
    ladder = _chosen(rungs(experiment), arguments.rungs)
    out = Path(arguments.out or Path("ablations") / Path(arguments.experiment).stem)
    watcher = RungLine()
    with watcher:
        climbed = climb(ladder, experiment.seeds, None, out, watcher, _tell)
    if len(climbed) < sum(rung.experiment is not None for rung in ladder):
        people.print(f"stopped with {len(climbed)} rungs finished; the same command goes on from here")
        return 143 if watcher.signal == 15 else 130
    told = {"experiment": arguments.experiment, "seeds": experiment.seeds}
    told |= {"steps": experiment.rollout.total_steps} | as_numbers(ladder, climbed)
    replace_file(out / "ablation.json", (json.dumps(plain(told), indent=2) + "\n").encode())
    if arguments.json:
        print_json(told)
    else:
        _print(told, out / "ablation.json")
    return 0


def _tell(says: str) -> None:
    people.print(says, markup=False)


class RungLine(LiveLine):
    """The progress line of one rung after another, without each one's plan."""

    def planned(self, planned) -> None:
        self.speed = 0.0


def _chosen(ladder: list[Rung], wanted: str | None) -> list[Rung]:
    """All, or those between commas, in the ladder's order."""
    names = [rung.name for rung in ladder]
    asked = names if wanted is None else [name.strip() for name in wanted.split(",")]
    for name in asked:
        if name not in names:
            raise BadInput(f"--rungs {name}: this ladder has no such rung; {nearest(name, names)}")
    chosen = [rung for rung in ladder if rung.name in asked]
    if all(rung.experiment is None for rung in chosen):
        raise BadInput(f"--rungs {wanted}: none of them can be trained: {chosen[0].refused}")
    return chosen


def _print(told: dict[str, Any], path: Path) -> None:
    columns = ["rung", "adds", *(name.replace("_", " ") for name in SYMPTOMS)]
    climbed = [rung for rung in told["rungs"] if not rung["not_run"]]
    print_table(columns, [_row(rung) for rung in climbed])
    for rung in told["rungs"]:
        if rung["not_run"]:
            result.print(f"not run: {rung['name']}: {rung['not_run']}", markup=False)
    for found in told["first"]:
        result.print(f"{SYMPTOMS[found['symptom']].says}: {found['says']}", markup=False)
    for found in told["sharing"]:
        result.print(f"shared against own weights, {found['rung']}: {found['says']}", markup=False)
    result.print(f"figures: {path}", markup=False)


def _row(rung: dict[str, Any]) -> tuple[str, ...]:
    return rung["name"], rung["adds"], *(_cell(rung["symptoms"].get(name)) for name in SYMPTOMS)


def _cell(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return "-"
    if figure["low"] is None:
        return f"{figure['value']:.3g}"
    return f"{figure['value']:.3g} ({figure['low']:.3g} to {figure['high']:.3g})"
