"""The algorithms. ALGORITHMS is the catalogue: each takes env, seats, config and plan."""

from collections.abc import Callable

from coplay.algorithms.happo import happo
from coplay.algorithms.hop import hop
from coplay.algorithms.hop_plus import hop_plus
from coplay.algorithms.hyper_mappo import hyper_mappo
from coplay.algorithms.ppo import mappo, ppo
from coplay.types import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "ppo": ppo,
    "mappo": mappo,
    "happo": happo,
    "hyper_mappo": hyper_mappo,
    "hop": hop,
    "hop_plus": hop_plus,
}

DESCRIPTIONS = {
    "ppo": "Proximal policy optimisation; own weights per agent, shared, or shared with the agent's id.",
    "mappo": "PPO with a critic that sees everyone's rows, the departed as zeros; shared with id by default.",
    "happo": "MAPPO with separate actors, updated in turns, each minding how those before it have moved.",
    "hyper_mappo": "MAPPO whose actor's weights a generator moves, by who a player is or what is seen.",
    "hop": "Beliefs about what the others want, models of what they do for it, a search with both.",
    "hop_plus": "PPO with learned subgoals of the others, a learned model of the game, and imagined play.",
}
