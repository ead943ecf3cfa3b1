"""Small changes to a line of the product's code, as a slip of the hand would make them, drawn at random.

A change is made while the module is imported, so that not a file is touched; nothing of the product may have
been imported before. Which lines a program goes through is traced, since a change elsewhere changes nothing.
"""

import ast
import copy
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from random import Random
from typing import NamedTuple

PRODUCT = Path(__file__).parents[2] / "src" / "coplay"
ROOMS = ("algorithms", "envs", "nets", "opponents", "planning", "players", "training")

OTHER_OPERATOR = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
OTHER_FUNCTION = {
    "sum": "mean",
    "mean": "sum",
    "max": "min",
    "min": "max",
    "maximum": "minimum",
    "minimum": "maximum",
    "any": "all",
    "all": "any",
    "argmax": "argmin",
    "zeros": "ones",
    "ones": "zeros",
    "zeros_like": "ones_like",
}
LEFT_OUT = {
    "stop_gradient",
    "exp",
    "log",
    "abs",
    "sqrt",
    "square",
    "clip",
    "roll",
    "flip",
    "log_softmax",
    "tanh",
}


class Change(NamedTuple):
    file: str  # below the product's folder
    line: int
    kind: str
    place: int  # of the node among all of the file

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]


# --- what may be changed, by kind ----------------------------------------------------------------


def _operator(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHER_OPERATOR:
        node.op = OTHER_OPERATOR[type(node.op)]()
        return node
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER_OPERATOR:
        node.ops[0] = OTHER_OPERATOR[type(node.ops[0])]()
        return node
    return None


def _number(node: ast.AST) -> ast.AST | None:
    """One more; twice as much; not so."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, bool | int | float):
        return None
    value = node.value
    node.value = (
        not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else 2 * value or 1.0
    )
    return node


def _sign(node: ast.AST) -> ast.AST | None:
    """Neither a minus nor a not."""
    return node.operand if isinstance(node, ast.UnaryOp) else None


def _function(node: ast.AST) -> ast.AST | None:
    """Another function of arrays."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in OTHER_FUNCTION
    ):
        node.func.attr = OTHER_FUNCTION[node.func.attr]
        return node
    return None


def _left_out(node: ast.AST) -> ast.AST | None:
    """A function of an array that is not called."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEFT_OUT:
        return node.args[0] if node.args else None
    return None


def _exchanged(node: ast.AST) -> ast.AST | None:
    """Two arguments, or what follows a condition and what follows its opposite."""
    if isinstance(node, ast.IfExp):
        node.body, node.orelse = node.orelse, node.body
        return node
    if (
        isinstance(node, ast.Call)
        and len(node.args) >= 2
        and not any(isinstance(x, ast.Starred) for x in node.args)
    ):
        node.args[-2], node.args[-1] = node.args[-1], node.args[-2]
        return node
    return None


def _forgotten(node: ast.AST) -> ast.AST | None:
    """A line that makes something new of what it had."""
    if isinstance(node, ast.AugAssign):
        return ast.Pass()
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        if any(isinstance(x, ast.Name) and x.id == name for x in ast.walk(node.value)):
            return ast.Pass()
    return None


KINDS: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    "operator": _operator,
    "number": _number,
    "sign": _sign,
    "function": _function,
    "left out": _left_out,
    "exchanged": _exchanged,
    "forgotten": _forgotten,
}

# --- where ---------------------------------------------------------------------------------------


def nodes_of(tree: ast.Module) -> list[ast.AST]:
    """All in the bodies of functions, but for annotations and words."""
    found: list[ast.AST] = []

    def walk(node: ast.AST, is_inside: bool) -> None:
        if is_inside:
            found.append(node)
        within = is_inside or isinstance(node, ast.FunctionDef | ast.Lambda)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    walk(child, within)

    walk(tree, False)
    return found


def changes_on(lines: dict[str, list[int]]) -> dict[str, list[Change]]:
    """All that could be made on these lines of these files, by kind."""
    found = defaultdict(list)
    for file in sorted(lines):
        through = set(lines[file])
        for place, node in enumerate(nodes_of(ast.parse((PRODUCT / file).read_text()))):
            line = getattr(node, "lineno", 0)
            for kind, make in KINDS.items():
                if line in through and make(copy.deepcopy(node)) is not None:
                    found[kind].append(Change(file, line, kind, place))
    return dict(found)


def drawn(lines: dict[str, list[int]], chance: Random) -> Change:
    """A kind, then one of all that are of it."""
    found = changes_on(lines)
    return chance.choice(found[chance.choice(sorted(found))])


# --- made ----------------------------------------------------------------------------------------


class Made(NamedTuple):
    tree: ast.Module
    before: str
    after: str


def made(change: Change) -> Made:
    """The file with the change, and the statement around it as it was and as it is."""
    tree = ast.parse((PRODUCT / change.file).read_text())
    node = nodes_of(tree)[change.place]
    around = _statement_around(tree, node)
    before = ast.unparse(around)
    new = KINDS[change.kind](node)
    assert new is not None
    ast.copy_location(new, node)
    if new is not node:
        around = new if around is node else around
        _put_in_place(tree, node, new)
    ast.fix_missing_locations(tree)
    return Made(tree, before, ast.unparse(around))


def _put_in_place(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if child is old else child for child in value]


def _statement_around(tree: ast.AST, node: ast.AST) -> ast.AST:
    """The smallest that is not itself made of statements; of an `if`, its condition."""
    best = tree
    for one in ast.walk(tree):
        if isinstance(one, ast.stmt | ast.If) and any(x is node for x in ast.walk(one)):
            best = one  # walked from the outside in
    return best.test if isinstance(best, ast.If | ast.While) else best


def plant(change: Change) -> None:
    """Whoever imports the module from now on gets it with the change."""
    target = str(PRODUCT / change.file)
    get_code = SourceFileLoader.get_code

    def changed_code(loader: SourceFileLoader, name: str):
        if loader.path != target:
            return get_code(loader, name)
        return compile(made(change).tree, target, "exec")

    SourceFileLoader.get_code = changed_code  # type: ignore[method-assign]


# --- lines that are gone through -----------------------------------------------------------------


@contextmanager
def lines_traced(into: dict[str, set[int]]) -> Iterator[None]:
    """Which lines of the rooms are run meanwhile, by file."""

    def enter(frame, event, argument):
        file = Path(frame.f_code.co_filename)
        if not file.is_relative_to(PRODUCT):
            return None
        name = file.relative_to(PRODUCT).as_posix()
        if name.partition("/")[0] not in ROOMS:
            return None
        lines = into.setdefault(name, set())

        def step(frame, event, argument):
            lines.add(frame.f_lineno)
            return step

        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


def as_lists(lines: dict[str, set[int]]) -> dict[str, list[int]]:
    return {file: sorted(found) for file, found in sorted(lines.items())}
