"""What lies in the middle of an update, for whoever audits it: `tap` names it, `heard` listens.

A tap is read when a program is traced. In a normal run nobody listens, nothing is made and the program is as
if no tap were there. Under `heard`, what every tap makes is given back beside the function's own results.
Taps stand where no loop and no map is open, for what is traced inside one cannot leave it; plain numbers can.
"""

from collections.abc import Callable
from typing import NamedTuple

from coplay.types import PyTree

TERMS = "terms/"  # how names begin of taps that tell what a loss is made of; slopes take a while to compile


class _Listener(NamedTuple):
    heard: dict[str, PyTree]
    asks: Callable[[str], bool]


_listening: list[_Listener] = []


def tap(name: str, make: Callable[[], PyTree]) -> None:
    """`make()` is called only if somebody listens; of two taps of one name the later is heard."""
    if _listening and _listening[-1].asks(name):
        _listening[-1].heard[name] = make()


def heard(
    function: Callable[..., PyTree], asks: Callable[[str], bool] = lambda name: not name.startswith(TERMS)
) -> Callable[..., tuple[PyTree, dict[str, PyTree]]]:
    """The function, giving its result and what was tapped on the way, of the names that are asked for."""

    def run(*arguments: PyTree) -> tuple[PyTree, dict[str, PyTree]]:
        _listening.append(_Listener({}, asks))
        try:
            return function(*arguments), _listening[-1].heard
        finally:
            _listening.pop()

    return run
