"""The user's own games, players and rewards, named as `file.py:function`."""

import importlib.util
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
