"""Speed against the machine's limit and, where installed, against peers, always in one run.

ITEMS is the catalogue: each entry measures one thing and returns an Item.
"""

from collections.abc import Callable

from coplay.bench.drift import drift
from coplay.bench.games import coin_game, stepping
from coplay.bench.hyper import hyper_memory, hyper_speed
from coplay.bench.item import Item
from coplay.bench.search import searches
from coplay.bench.spread import simple_spread_ippo, simple_spread_mappo
from coplay.bench.training import training

ITEMS: dict[str, Callable[[], Item]] = {
    "stepping": stepping,
    "training": training,
    "coin_game": coin_game,
    "search": searches,
    "simple_spread_ippo": simple_spread_ippo,
    "simple_spread_mappo": simple_spread_mappo,
    "drift": drift,
    "hyper_speed": hyper_speed,
    "hyper_memory": hyper_memory,
}
