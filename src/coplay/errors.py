"""The one exception for what a user can get wrong: a sentence, exit code 2, nothing written."""

import difflib
from collections.abc import Collection, Iterable


class BadInput(Exception):
    """Says what was given, what was expected and what to try."""


class UnknownSetting(BadInput):
    """A name that is no setting; the command line knows more names than the settings do."""

    def __init__(self, given: str, known: Collection[str]):
        close = nearest(given, known).replace("mean '", "mean '--")
        super().__init__(f"unknown setting --{given}; {close}")
        self.given, self.known = given, set(known)


def nearest(given: str, known: Iterable[str]) -> str:
    """A closing sentence that names the nearest valid word, or all of them when none is near."""
    known = sorted(known)
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return "known: " + ", ".join(known)


def require(holds: bool, message: str) -> None:
    """For settings that check themselves; whoever reads them turns it into a BadInput."""
    if not holds:
        raise ValueError(message)
