"""The games: one file each, a catalogue of them all, and `make_game`, where a name becomes a game."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from coplay.envs import coin_game, contract, matrix, snowdrift, specialisation, stag_hunt
from coplay.envs.imported import mpe, smax
from coplay.errors import BadInput, nearest
from coplay.plugins import load_function
from coplay.settings import field_types, from_table
from coplay.types import Environment

ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    "stag_hunt": stag_hunt.make,
    "snowdrift": snowdrift.make,
    "coin_game": coin_game.make,
    "matrix": matrix.make,
    "specialisation": specialisation.make,
    "mpe:simple_spread": mpe.simple_spread,
    "mpe:simple_tag": mpe.simple_tag,
    "smax": smax.make,
}

# Games of others, whose packages are extras. What can be set is known before the package is imported, which
# starts JAX: settings are read earlier, and decide with how many devices it starts.
IMPORTED: dict[str, type] = {
    "mpe:simple_spread": mpe.SpreadConfig,
    "mpe:simple_tag": mpe.TagConfig,
    "smax": smax.SMAXConfig,
}

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("stag_hunt", options) for name, options in stag_hunt.PRESETS.items()},
    **{name: ("matrix", options) for name, options in matrix.PRESETS.items()},
    **{name: ("smax", options) for name, options in smax.PRESETS.items()},
}

GAMES: dict[str, str] = {
    "stag_hunt": "A hare feeds one hunter, a stag needs company; who eats leaves.",
    "4h1s_4x4": "stag_hunt: four hares and a stag on 4x4.",
    "4h1s_8x8": "stag_hunt: four hares and a stag on 8x8.",
    "4h1s_8x8_walls": "stag_hunt: four hares and a stag on 8x8, with five pieces of wall.",
    "4h2s_8x8": "stag_hunt: four hares and two stags on 8x8.",
    "snowdrift": "A removed drift serves everybody; those who remove it pay.",
    "coin_game": "Two players, one coin at a time: taking the other's coin costs the other more.",
    "matrix": "Two players, two actions, known payoffs, over and over.",
    "prisoners_dilemma": "matrix: defecting pays, whatever the other does, and costs both.",
    "matrix_stag_hunt": "matrix: the stag pays best together, the hare is safer.",
    "chicken": "matrix: going straight pays unless both do.",
    "matching_pennies": "matrix: one wins on equal sides, the other on different ones.",
    "pure_coordination": "matrix: both win on equal sides.",
    "specialisation": "As many tasks as players: it pays to do what nobody else does.",
    "mpe:simple_spread": "JaxMARL: cover all landmarks together, without bumping into each other.",
    "mpe:simple_tag": "JaxMARL: slow predators chase quick prey round obstacles.",
    "smax": "JaxMARL: battles in the manner of StarCraft, against a fixed rule.",
    **{f"smax:{name}": f"smax: {who}" for name, who in smax.MAPS.items()},
}

QUICK_CHECK = 50  # random steps of a user's own game before it is played


def make_game(name: str, **options) -> Environment:
    """A game by its catalogue name, a preset's, or `file.py:function`, with some options set otherwise."""
    if ".py:" in name:
        return _own_game(name, options)
    if name not in ENVIRONMENTS and name not in PRESETS:
        raise BadInput(f"{name!r} is neither a game nor a file.py:function; {nearest(name, GAMES)}")
    game, preset = PRESETS.get(name, (name, {}))
    return ENVIRONMENTS[game](**_checked(name, game, {**preset, **options}))


def _checked(name: str, game: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of the game's dataclass, with types and combinations checked."""
    kind = options_of(game)
    config = from_table(kind, options, where=lambda key: f"game {name!r}: ")
    return {field: getattr(config, field) for field in field_types(kind)}


def option_names(name: str) -> list[str]:
    """The options of a game in the catalogue; a user's own game does not say before it is made."""
    game = PRESETS.get(name, (name, {}))[0]
    return list(field_types(options_of(game))) if game in ENVIRONMENTS else []


@functools.cache
def options_of(game: str) -> type:
    """The dataclass of what can be set in a game of the catalogue."""
    return IMPORTED.get(game) or type(ENVIRONMENTS[game]().options)


_OWN_GAMES: dict[str, Environment] = {}  # those that have passed the check, by name and options


def _own_game(name: str, options: dict[str, Any]) -> Environment:
    label = f"{name} {sorted(options.items())}"
    if label not in _OWN_GAMES:
        function = load_function(name)
        try:
            env = function(**options)
        except Exception as error:
            raise BadInput(f"{name} failed with {type(error).__name__}: {error}") from error
        if not isinstance(env, Environment):
            raise BadInput(f"{name} must return an Environment, not {type(env).__name__}")
        contract.check(env, steps=QUICK_CHECK)
        _OWN_GAMES[label] = env
    return _OWN_GAMES[label]
