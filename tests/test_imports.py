"""Imports point one way, so that any room can be read after the rooms it stands on."""

import ast
import builtins
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "coplay"

# Leaves: known to everyone. `training` is the loop and its parts; it imports no particular game or algorithm.
LEAVES = {"types", "errors", "plugins", "settings", "files", "taps"}
MAY_IMPORT = {
    "types": set(),
    "errors": set(),
    "plugins": {"errors"},
    "settings": {"errors"},
    "files": {"errors"},
    "taps": {"types"},
    "envs": LEAVES,
    "nets": {"types"},
    "planning": {"types"},  # no game and no network: it is given functions
    "opponents": {"types", "nets"},
    "diagnostics": LEAVES,
    "training": LEAVES | {"diagnostics"},
    "algorithms": LEAVES | {"diagnostics", "nets", "opponents", "planning", "training"},
    "players": LEAVES | {"envs", "algorithms", "training"},
    "evaluation": LEAVES | {"envs", "training", "players"},
    "experiment": LEAVES | {"envs", "algorithms", "players", "training", "evaluation"},
    "plan": LEAVES | {"algorithms", "experiment", "training"},
    "reports": LEAVES | {"training"},  # run folders on disk: no experiment, no algorithm
    "runs": LEAVES | {"experiment", "plan", "training", "evaluation", "players", "reports"},
    "meetings": LEAVES | {"experiment", "training", "evaluation", "players", "runs"},
    "studies": LEAVES | {"evaluation", "experiment", "plan", "runs", "training"},
    "audit": LEAVES
    | {"algorithms", "diagnostics", "envs", "evaluation", "experiment", "nets", "offline", "opponents"}
    | {"planning", "players", "runs", "training"},
    "offline": LEAVES | {"envs", "evaluation", "experiment", "nets", "opponents", "players", "training"},
    "bench": LEAVES | {"envs", "algorithms", "experiment", "planning", "players", "training"},
}


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("coplay"):
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            rooms |= {a.name.split(".")[1] for a in node.names if a.name.startswith("coplay.")}
    return rooms


def files_of(room: str) -> list[Path]:
    return sorted((SOURCE / room).rglob("*.py")) or [SOURCE / f"{room}.py"]


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_the_rooms_it_stands_on(room):
    for path in files_of(room):
        strangers = imported_rooms(path) - MAY_IMPORT[room] - {room}
        assert not strangers, f"{path.relative_to(SOURCE)} imports {sorted(strangers)}"


def test_every_room_has_a_rule():
    rooms = {p.stem for p in SOURCE.glob("*.py")} | {
        p.name for p in SOURCE.iterdir() if (p / "__init__.py").exists()
    }
    assert rooms - {"__init__", "cli"} == set(MAY_IMPORT), "a new room needs a line in MAY_IMPORT"


def test_the_loop_knows_no_particular_game_or_algorithm():
    for name in ("loop", "job", "programs", "records", "rollout"):
        words = (SOURCE / "training" / f"{name}.py").read_text().lower()
        assert not [word for word in ("stag", "ppo", "snowdrift") if word in words]


def bound_names(tree: ast.AST) -> set[str]:
    """Every name that a file gives a meaning to, anywhere in it."""
    names = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs)) and node.name:
            names.add(node.name)
    return names | {"__file__", "__name__"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_name_is_used_that_nothing_defines(path):
    """Linters take axis names in annotations for undefined names, so that they cannot look for real ones."""
    tree = ast.parse(path.read_text())
    known = bound_names(tree)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not used - known
