"""An algorithm of the user's own, `file.py:function`: a function of env, seats and plan that returns an
`Algorithm`.

What it asks for beside these are its settings (`algorithm_options`), and what it asks for at all tells it
from a scripted player, whose function takes the game alone.
"""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from coplay.errors import BadInput, nearest
from coplay.plugins import load_function, parameters_of
from coplay.settings import coerce
from coplay.types import Algorithm, Environment

CALLED_WITH = ("env", "seats", "plan")


def own_algorithm(
    name: str, env: Environment, seats: tuple[int, ...], plan: Any, options: Mapping[str, Any]
) -> Algorithm:
    """What the function makes for these seats, with those of the options that it asks for."""
    function, taken = load_function(name), _checked(name, options)
    try:
        made = function(env, seats, plan, **taken)
    except (BadInput, ValueError):
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise BadInput(f"{name} failed with {type(error).__name__}: {said}") from error
    if not isinstance(made, Algorithm):
        raise BadInput(f"{name} must return an Algorithm, not a {type(made).__name__}")
    return made


def is_own(name: str) -> bool:
    """Whether a name is that of an algorithm in a file: its function asks for seats or a plan. The file is
    read and not run, because settings are read before JAX starts."""
    return ".py:" in name and bool({"seats", "plan"} & set(parameters_of(name)))


def refuse_unknown(names: Iterable[str], options: Mapping[str, Any]) -> None:
    """An option that none of these algorithms asks for."""
    names = list(names)
    known = {option for name in names for option in option_names(name)}
    for option in options:
        if option not in known and not any(_takes_anything(name) for name in names):
            asked = f"; {nearest(option, known)}" if known else ", which has no settings"
            raise BadInput(f"algorithm_options.{option} is nothing that {' or '.join(names)} asks for{asked}")


def option_names(name: str) -> list[str]:
    """What can be set in an algorithm of the user's own."""
    return [parameter for parameter in parameters_of(name) if parameter not in CALLED_WITH]


def own_settings(name: str, options: Mapping[str, Any]) -> Any:
    """Its switches and numbers as a dataclass like that of a shipped algorithm, for who asks what they do."""
    asked = list(inspect.signature(load_function(name)).parameters.values())[len(CALLED_WITH) :]
    plain = [option for option in asked if isinstance(option.default, (int, float))]
    fields = [(option.name, type(option.default), option.default) for option in plain]
    given = {option.name: options[option.name] for option in plain if option.name in options}
    return dataclasses.make_dataclass("Options", fields, frozen=True)(**given)


def _checked(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options it asks for, each of the type of its default."""
    signature = inspect.signature(load_function(name))
    asked = list(signature.parameters.values())
    if tuple(parameter.name for parameter in asked[:3]) != CALLED_WITH:
        raise BadInput(
            f"{name} asks for {signature}: the function of an algorithm begins with (env, seats, plan), "
            "and its settings follow"
        )
    given = {
        key: value for key, value in options.items() if key in option_names(name) or _takes_anything(name)
    }
    for option in asked[3:]:
        place, is_plain = f"algorithm_options.{option.name}", isinstance(option.default, (int, float, str))
        is_needed = option.default is option.empty and option.kind is not option.VAR_KEYWORD
        if is_needed and option.name not in given:
            raise BadInput(f"{name} asks for {place}, which has no default and is not set")
        if is_plain and option.name in given:
            given[option.name] = coerce(type(option.default), given[option.name], place, lambda key: "")
    return given


def _takes_anything(name: str) -> bool:
    kinds = inspect.signature(load_function(name)).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in kinds)


class Untold(BadInput, AttributeError):
    """A setting that shipped algorithms have. An AttributeError, so that who asks may have a default."""


class OwnSettings:
    """In place of the settings of a shipped algorithm: what those would say, this one does not."""

    def __getattr__(self, name: str):
        raise Untold(f"an algorithm of your own does not say what {name!r} is")


OWN_SETTINGS = OwnSettings()
