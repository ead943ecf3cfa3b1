"""The user's own games, players, algorithms and rewards, named as `file.py:function`."""

import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coplay.errors import BadInput, nearest


def load_function(name: str) -> Callable[..., Any]:
    """The function behind `file.py:function`; the file is imported once per path."""
    file, _, function = name.rpartition(":")
    path = Path(file).expanduser()
    if not path.is_file():
        raise BadInput(f"{name!r} names the file {file!r}, which is not there")
    module = _load_module(path.resolve(), name)
    if not callable(getattr(module, function, None)):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise BadInput(f"{file} has no function {function!r}; {nearest(function, known)}")
    return getattr(module, function)


def parameters_of(name: str) -> list[str]:
    """What the function behind `file.py:function` asks for, as its file says, which is read and not run; a
    function that the file gets from elsewhere is loaded. Nothing, where there is no such function."""
    file, _, function = name.rpartition(":")
    path = Path(file).expanduser()
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    for part in body:
        if isinstance(part, ast.FunctionDef) and part.name == function:
            asked = part.args
            return [one.arg for one in (*asked.posonlyargs, *asked.args, *asked.kwonlyargs)]
    if function not in {word for part in body for word in _names_made(part)}:
        return []
    return [one.name for one in inspect.signature(load_function(name)).parameters.values()]


def _names_made(part: ast.stmt) -> list[str]:
    """By an import or by giving something a name."""
    if isinstance(part, (ast.Import, ast.ImportFrom)):
        return [one.asname or one.name for one in part.names]
    return (
        [word.id for word in ast.walk(part) if isinstance(word, ast.Name)]
        if isinstance(part, ast.Assign)
        else []
    )


def _load_module(path: Path, name: str):
    module_name = f"coplay_user_{path.stem}_{abs(hash(str(path)))}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{name!r} does not name a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise BadInput(f"{path.name} could not be imported: {type(error).__name__}: {error}") from error
    return module
