"""Typed settings from TOML files and command lines, with errors that name the key and the nearest one.

Settings are frozen dataclasses; the comment behind a field is its documentation, here and in
docs/settings.md. Nothing in this file knows a particular setting.
"""

import dataclasses
import functools
import inspect
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from coplay.errors import BadInput, nearest

T = TypeVar("T")
Where = Callable[[str], str]  # a dotted key -> "file.toml, line 3: " or ""


def read_toml(path: Path) -> tuple[dict[str, Any], Where]:
    """The tables of a file, and a function that says where a key stands in it."""
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        raise BadInput(f"{path} could not be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not valid TOML: {error}") from error
    lines = _lines_of_keys(text)

    def where(key: str) -> str:
        return f"{path}, line {lines[key]}: " if key in lines else f"{path}: "

    return tables, where


def _lines_of_keys(text: str) -> dict[str, int]:
    table, lines = "", {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([\w.\-\"]+)\s*\]+", line):
            table = header[1].replace('"', "") + "."
            lines.setdefault(table[:-1], number)
        elif key := re.match(r"\s*([\w.\-]+)\s*=", line):
            lines.setdefault(table + key[1], number)
    return lines


def from_table(cls: type[T], table: Mapping[str, Any], where: Where, prefix: str = "") -> T:
    """An instance of a settings dataclass; every unknown key and wrong type is one sentence."""
    if not isinstance(table, Mapping):
        raise BadInput(f"{where(prefix[:-1])}{prefix[:-1]!r} is a table of settings, not {table!r}")
    known = field_types(cls)
    values = {}
    for key, value in table.items():
        if key not in known:
            raise BadInput(f"{where(prefix + key)}unknown key {prefix + key!r}; {nearest(key, known)}")
        values[key] = coerce(known[key], value, prefix + key, where)
    try:
        return cls(**values)
    except ValueError as error:
        raise BadInput(f"{where(prefix[:-1]) if prefix else where('')}{error}") from error


@functools.cache
def field_types(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def coerce(kind: Any, value: Any, key: str, where: Where) -> Any:
    """The value as `kind`, or one sentence on what was expected."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _coerce_union(arguments, value, key, where)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return from_table(kind, value, where, key + ".")
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(coerce(arguments[0], item, key, where) for item in value)
    if origin is dict and isinstance(value, Mapping):
        return dict(value)
    if origin is Literal and value in arguments:
        return value
    if origin is Literal and isinstance(value, str):
        choices = [str(argument) for argument in arguments]
        raise BadInput(
            f"{where(key)}{key}={value!r} is not one of {', '.join(choices)}; {nearest(value, choices)}"
        )
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise BadInput(f"{where(key)}{key}={value!r} should be {describe_type(kind)}")


def _coerce_union(kinds: Iterable[Any], value: Any, key: str, where: Where) -> Any:
    kinds = list(kinds)
    if value is None or (value == "none" and type(None) in kinds):
        return None
    rest = [kind for kind in kinds if kind is not type(None)]
    return coerce(rest[0], value, key, where)


def describe_type(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        rest = [describe_type(a) for a in arguments if a is not type(None)]
        return " or ".join([*rest, "none"] if type(None) in arguments else rest)
    if origin is Literal:
        return " | ".join(str(argument) for argument in arguments)
    if origin is tuple:
        return f"a list of {describe_type(arguments[0]).removeprefix('a ').removeprefix('an ')}s"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(kind, "a table")


def parse_text(text: str) -> Any:
    """A value typed on a command line: TOML where it is TOML, else the text itself."""
    lowered = {"True": "true", "False": "false", "None": '"none"'}.get(text, text)
    try:
        return tomllib.loads(f"value = {lowered}")["value"]
    except tomllib.TOMLDecodeError:
        pass
    try:
        return float(lowered)  # 1e6 and the like
    except ValueError:
        return text


@functools.cache
def field_docs(cls: type) -> dict[str, str]:
    """What the comment behind each field says, a base class's comments included."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if dataclasses.is_dataclass(base):
            for line in inspect.getsource(base).splitlines():
                if found := re.match(r"    (\w+): .*?  # (?!fmt|noqa)(.+)$", line):
                    docs[found[1]] = found[2].strip()
    return docs


def to_toml(value: Mapping[str, Any]) -> str:
    """Plain tables as TOML: scalars and lists first, then tables, then arrays of tables."""
    lines: list[str] = []
    _write_table(lines, value, "")
    return "\n".join(lines).strip() + "\n"


def _write_table(lines: list[str], table: Mapping[str, Any], prefix: str) -> None:
    nested = {k: v for k, v in table.items() if isinstance(v, Mapping)}
    arrays = {
        k: v for k, v in table.items() if isinstance(v, (list, tuple)) and v and isinstance(v[0], Mapping)
    }
    for key, value in table.items():
        if key not in nested and key not in arrays and value is not None:
            lines.append(f"{key} = {_write_value(value)}")
    for key, value in nested.items():
        lines.extend(["", f"[{prefix}{key}]"])
        _write_table(lines, value, f"{prefix}{key}.")
    for key, items in arrays.items():
        for item in items:
            lines.extend(["", f"[[{prefix}{key}]]"])
            _write_table(lines, item, f"{prefix}{key}.")


def _write_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_write_value(item) for item in value) + "]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
