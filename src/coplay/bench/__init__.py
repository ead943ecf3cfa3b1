"""Speed against the machine's limit and, where installed, against peers, always in one run.

ITEMS is the catalogue: each entry measures one thing and returns an Item.
"""

from collections.abc import Callable

from coplay.bench.games import coin_game, stepping
from coplay.bench.item import Item
from coplay.bench.search import searches
from coplay.bench.training import training

ITEMS: dict[str, Callable[[], Item]] = {
    "stepping": stepping,
    "training": training,
    "coin_game": coin_game,
    "search": searches,
}
