"""Every scripted player by game and name, and how a name becomes one."""

import ast
import inspect
from collections.abc import Callable

from coplay.algorithms.own import is_own
from coplay.errors import BadInput, nearest
from coplay.players import coin_game, matrix, mpe, snowdrift, specialisation, stag_hunt
from coplay.players.changing import becoming
from coplay.players.mixture import any_of
from coplay.players.scripted import ScriptedPlayer, random_player
from coplay.plugins import load_function
from coplay.types import Algorithm, Environment

Maker = Callable[..., ScriptedPlayer]  # takes the game, then the player's own options

PLAYERS: dict[str, dict[str, Maker]] = {
    "stag_hunt": {
        "nearest_stag": stag_hunt.nearest_stag,
        "nearest_hare": stag_hunt.nearest_hare,
        "fickle": stag_hunt.fickle,
        "waiter": stag_hunt.waiter,
        "reciprocator": stag_hunt.reciprocator,
    },
    "snowdrift": {
        "cleaner": snowdrift.cleaner,
        "exploiter": snowdrift.exploiter,
        "tired_cleaner": snowdrift.tired_cleaner,
        "fickle": snowdrift.fickle,
    },
    "coin_game": {
        "own_coin": coin_game.own_coin,
        "any_coin": coin_game.any_coin,
        "tit_for_tat": coin_game.tit_for_tat,
    },
    "matrix": {
        "always_cooperate": matrix.always_cooperate,
        "always_defect": matrix.always_defect,
        "tit_for_tat": matrix.tit_for_tat,
        "generous": matrix.generous,
        "grim": matrix.grim,
        "win_stay_lose_shift": matrix.win_stay_lose_shift,
        "biased": matrix.biased,
    },
    "specialisation": {
        "fixed": specialisation.fixed,
        "sidestep": specialisation.sidestep,
    },
    "mpe:simple_spread": {"nearest_landmark": mpe.nearest_landmark},
    "mpe:simple_tag": {"chaser": mpe.chaser, "fleer": mpe.fleer},
}


def changing(env: Environment, first: str, then: str, after: int = 30) -> ScriptedPlayer:
    """One player for so many episodes with the same company, another one from then on."""
    return becoming(make_player(first, env), make_player(then, env), after)


def one_of(env: Environment, *names: str) -> ScriptedPlayer:
    """One of several players, drawn anew for every episode; nobody remembers earlier ones."""
    return any_of([make_player(name, env) for name in names])


EVERYWHERE: dict[str, Maker] = {"random": random_player, "changing": changing, "one_of": one_of}

# Central players of all seats: no co-players, but what the best play comes to.
YARDSTICKS: dict[str, dict[str, Callable[[Environment], Algorithm]]] = {
    "stag_hunt": {"optimum": stag_hunt.optimum},
}


def make_player(name: str, env: Environment) -> ScriptedPlayer:
    """The player called `name`, `name(options)` or `file.py:function` for this game."""
    if ".py:" in name:
        return _from_file(name, env)
    word, arguments, options = _parse(name)
    known = players_of(env)
    if word not in known:
        raise BadInput(f"{word!r} is no scripted player of {env.name}; {nearest(word, known)}")
    try:
        inspect.signature(known[word]).bind(env, *arguments, **options)
        return known[word](env, *arguments, **options)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"{name!r} cannot be made for {env.name}: {error}; it takes {_usage(known[word])}"
        ) from error


def players_of(env: Environment) -> dict[str, Maker]:
    return PLAYERS.get(env.name, {}) | EVERYWHERE


def player_names(env: Environment) -> list[str]:
    return list(players_of(env))


def plain_players(env: Environment) -> list[str]:
    """Those that can be named without settings."""

    def is_plain(maker: Maker) -> bool:
        options = list(inspect.signature(maker).parameters.values())[1:]
        return all(o.default is not o.empty and o.kind is not o.VAR_POSITIONAL for o in options)

    return [name for name, maker in players_of(env).items() if is_plain(maker)]


def describe(maker: Callable[..., object]) -> str:
    """What such a player does, in a line: the first of its docstring."""
    return (inspect.getdoc(maker) or "").splitlines()[0]


def split_names(text: str) -> list[str]:
    """Names between commas; commas inside brackets belong to a name, as in `waiter(k=3),random`."""
    names, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            names.append("")
        else:
            names[-1] += sign
    return [name.strip() for name in names]


def settled(name: str) -> tuple[str, int]:
    """What a player becomes in the end, and after how many episodes: `changing(...)` does, others are as
    they are from the start."""
    if not name.startswith("changing("):
        return name, 0
    _, arguments, options = _parse(name)
    given = dict(zip(("first", "then", "after"), arguments, strict=False)) | options
    return given["then"], given.get("after", 30)


def _from_file(name: str, env: Environment) -> ScriptedPlayer:
    maker = load_function(name)
    if is_own(name):
        raise BadInput(
            f"{name} is an algorithm, which has to be trained first: name the run of it that plays"
        )
    try:
        inspect.signature(maker).bind(env)
    except TypeError as error:
        raise BadInput(
            f"{name} asks for {inspect.signature(maker)}: the function of a player takes (env), that of an "
            "algorithm (env, seats, plan) and its settings"
        ) from error
    player = maker(env)
    if not isinstance(player, ScriptedPlayer):
        raise BadInput(f"{name!r} must return a ScriptedPlayer, not a {type(player).__name__}")
    return player


def _parse(name: str) -> tuple[str, list, dict]:
    """`waiter(k=3)` as its word, arguments and options; these are plain values."""
    try:
        call = ast.parse(name.strip(), mode="eval").body
        if not isinstance(call, ast.Call):
            return name.strip(), [], {}
        options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        return ast.unparse(call.func), [ast.literal_eval(part) for part in call.args], options
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"{name!r} is no player: write a name such as waiter, or waiter(k=3)") from error


def _usage(maker: Maker) -> str:
    """Its options as one would write them."""
    options = list(inspect.signature(maker).parameters.values())[1:]
    words = [f"{o.name}={o.default!r}" if o.default is not o.empty else o.name for o in options]
    return ", ".join(words) or "no options"
