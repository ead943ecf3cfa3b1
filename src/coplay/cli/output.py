"""How results are printed: JSON on standard output for programs, tables and sentences for people."""

import dataclasses
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coplay.errors import BadInput, nearest

WIDE = 1000  # characters

people = Console(stderr=True, highlight=False, soft_wrap=True)  # progress and notes
result = Console(highlight=False, soft_wrap=True)  # what was asked for


def print_json(value: Any) -> None:
    print(json.dumps(plain(value), indent=2))


def plain(value: Any) -> Any:
    """Only what JSON knows; NaN becomes null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*[escape(str(cell)) for cell in row])  # lists in commands are no markup
    if result.is_terminal:
        result.print(table)
    else:  # a file or a pipe has no width to keep to
        Console(highlight=False, width=WIDE).print(table)


def refuse_rest(rest: list[str], known: Iterable[str]) -> None:
    """For verbs that take no settings: an unknown option is one sentence with the nearest known one."""
    if rest:
        given = rest[0].partition("=")[0].lstrip("-")
        hint = nearest(given, known)
        raise BadInput(f"unknown option {rest[0]!r}; {hint.replace(chr(39), chr(39) + '--', 1)}")
