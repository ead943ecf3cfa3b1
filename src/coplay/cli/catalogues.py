"""`games`, `algorithms` and `players`: what there is, one line each."""

import argparse
import dataclasses
from typing import Any

from coplay.algorithms import ALGORITHMS, DESCRIPTIONS
from coplay.cli.output import print_json, print_table, refuse_rest, result
from coplay.envs import GAMES, make_game
from coplay.errors import BadInput, nearest
from coplay.experiment import Experiment, experiment_names, parse_run, read_run, zoo_names
from coplay.players.catalogue import EVERYWHERE, PLAYERS, YARDSTICKS, describe
from coplay.settings import describe_type, field_docs, field_types
from coplay.training.run_folder import RunFolder, package_version


def games_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="a game or preset to show in full, or file.py:function")


def games(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json"])
    if arguments.name:
        return _one_game(arguments)
    if arguments.json:
        print_json([{"name": name, "description": text} for name, text in GAMES.items()])
    else:
        print_table(["game", ""], GAMES.items())
    return 0


def _one_game(arguments: argparse.Namespace) -> int:
    env = make_game(arguments.name)
    facts = {
        "name": arguments.name,
        "game": env.name,
        "kind": env.kind,
        "players": env.num_agents,
        "actions": list(env.action_names),
        "observation_size": env.observation_size,
        "goals": list(env.goals.names),
        "horizon": env.horizon,
        "ceiling": env.ceiling,
        "symmetry": env.symmetry,
        "package": f"{env.package} {package_version(env.package)}" if env.package else "coplay",
        "options": _options(type(env.options), env.options) if dataclasses.is_dataclass(env.options) else [],
    }
    if arguments.json:
        print_json(facts)
        return 0
    for name, fact in facts.items():
        if name != "options":
            result.print(f"{name:>17}  {fact}")
    _print_options(facts["options"])
    return 0


def algorithms_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="an algorithm to show with all its settings")


def algorithms(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json"])
    if arguments.name and arguments.name not in ALGORITHMS:
        raise BadInput(f"there is no algorithm {arguments.name!r}; {nearest(arguments.name, ALGORITHMS)}")
    if arguments.name:
        config = getattr(Experiment(), arguments.name)
        options = _options(type(config), config)
        if arguments.json:
            print_json(
                {"name": arguments.name, "description": DESCRIPTIONS[arguments.name], "options": options}
            )
        else:
            result.print(DESCRIPTIONS[arguments.name])
            _print_options(options)
        return 0
    if arguments.json:
        print_json([{"name": name, "description": DESCRIPTIONS[name]} for name in ALGORITHMS])
    else:
        print_table(["algorithm", ""], [(name, DESCRIPTIONS[name]) for name in ALGORITHMS])
        result.print(f"\nshipped experiments: {', '.join(experiment_names())}")
    return 0


def players_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("game", nargs="?", help="only this game's players")


def players(arguments: argparse.Namespace, rest: list[str]) -> int:
    refuse_rest(rest, ["json"])
    games = [make_game(arguments.game).name] if arguments.game else list(PLAYERS)
    rows = [
        (game, name, describe(maker))
        for game in games
        for name, maker in (PLAYERS.get(game, {}) | EVERYWHERE).items()
    ]
    rows += [
        (game, name, f"Yardstick for all seats, no co-player. {describe(maker)}")
        for game in games
        for name, maker in YARDSTICKS.get(game, {}).items()
    ]
    rows += [row for row in _animals() if row[0] in games]
    if arguments.json:
        print_json([{"game": game, "name": name, "description": text} for game, name, text in rows])
    else:
        print_table(["game", "player", ""], rows)
    return 0


def _animals() -> list[tuple[str, str, str]]:
    """Trained players that come with the package: game, name, the command that made them."""
    rows = []
    for name in zoo_names():
        folder = RunFolder.open(parse_run(f"zoo:{name}").path)
        game = make_game(read_run(folder).game).name
        rows.append((game, f"zoo:{name}", f"Trained by `{folder.versions['made_by']}`."))
    return rows


def _options(cls: type, values: Any) -> list[dict[str, Any]]:
    docs = field_docs(cls)
    return [
        {
            "name": name,
            "type": describe_type(kind),
            "value": getattr(values, name),
            "description": docs.get(name, ""),
        }
        for name, kind in field_types(cls).items()
    ]


def _print_options(options: list[dict[str, Any]]) -> None:
    if options:
        result.print()
        rows = [(f"--{o['name']}", o["value"], o["description"] or o["type"]) for o in options]
        print_table(["option", "value", ""], rows)
