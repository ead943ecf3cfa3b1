"""What lies in the middle of an update, for whoever audits it: `tap` names it, `heard` listens.

A tap is read when a program is traced. In a normal run nobody listens, nothing is made and the program is as
if no tap were there. Under `heard`, what every tap makes is given back beside the function's own results.
Taps stand where no loop and no map is open, for what is traced inside one cannot leave it.
"""

from collections.abc import Callable

from coplay.types import PyTree

_listening: list[dict[str, PyTree]] = []


def tap(name: str, make: Callable[[], PyTree]) -> None:
    """`make()` is called only if somebody listens; of two taps of one name the later is heard."""
    if _listening:
        _listening[-1][name] = make()


def heard(function: Callable[..., PyTree]) -> Callable[..., tuple[PyTree, dict[str, PyTree]]]:
    """The function, giving its result and what was tapped on the way."""

    def run(*arguments: PyTree) -> tuple[PyTree, dict[str, PyTree]]:
        _listening.append({})
        try:
            return function(*arguments), _listening[-1]
        finally:
            _listening.pop()

    return run
