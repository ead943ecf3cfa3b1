"""What random play and a converged best response earn in some company: 0 and 1 of a normalised score.

For teams of shipped players a table comes with the package (`coplay anchors GAME` makes it); what had to be
measured for other teams is kept in the user's cache folder.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from coplay.files import cache_folder, replace_file
from coplay.types import Environment

SHIPPED = Path(__file__).parent / "anchors.json"
CLOSE = 0.05  # anchors nearer than this share of the ceiling normalise nothing

# The companies that come with anchors, by the game's name.
TEAMS = {
    "stag_hunt": [
        "nearest_stag,nearest_stag,nearest_stag",
        "nearest_hare,nearest_hare,nearest_hare",
        "nearest_stag,nearest_stag,nearest_hare",
        "nearest_stag,nearest_hare,nearest_hare",
        "fickle,fickle,fickle",
        "waiter,waiter,waiter",
        "reciprocator,reciprocator,reciprocator",
        "random,random,random",
        "nearest_stag,random,nearest_hare",
    ],
    "snowdrift": [
        "cleaner,cleaner,cleaner",
        "exploiter,exploiter,exploiter",
        "cleaner,exploiter,exploiter",
        "tired_cleaner,tired_cleaner,tired_cleaner",
        "fickle,fickle,fickle",
    ],
}


@dataclasses.dataclass(frozen=True)
class Anchors:
    random: float
    best: float
    best_from: str  # how the best response was found


def situation(env: Environment, company: list[str], focal: int) -> dict[str, Any]:
    """What the anchors depend on: the rules, the others in the order they sit, how many are focal."""
    rules = dict(vars(env.options))
    rules.pop("observation", None)  # changes what is seen, not what can be earned
    return {"game": env.name, "rules": rules, "company": company, "focal": focal}


def find(wanted: dict[str, Any]) -> Anchors | None:
    """From the package's table, or from earlier measurements on this machine."""
    for entry in _entries(SHIPPED) + _entries(_kept()):
        if entry["situation"] == json.loads(json.dumps(wanted)):
            return Anchors(**entry["anchors"])
    return None


def keep(wanted: dict[str, Any], anchors: Anchors, path: Path | None = None) -> Path:
    """Remember what was measured, in the cache or in another table; a newer measurement replaces an older."""
    path = path or _kept()
    plain = json.loads(json.dumps(wanted))
    rest = [entry for entry in _entries(path) if entry["situation"] != plain]
    entries = [*rest, {"situation": plain, "anchors": dataclasses.asdict(anchors)}]
    replace_file(path, (json.dumps(entries, indent=1) + "\n").encode())
    return path


def _kept() -> Path:
    return cache_folder() / "anchors.json"


def _entries(path: Path) -> list[dict[str, Any]]:
    """A table that cannot be read is no table: what was in it is measured again."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []


def are_close(anchors: Anchors, ceiling: float | None) -> bool:
    return anchors.best - anchors.random < CLOSE * (ceiling or 0.0)


def normalised(value: float, anchors: Anchors) -> float:
    """0 for random play, 1 for the best response; nothing is cut off."""
    return (value - anchors.random) / (anchors.best - anchors.random)
