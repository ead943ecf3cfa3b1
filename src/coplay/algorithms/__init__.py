"""The algorithms. ALGORITHMS is the catalogue: each takes env, seats, config and plan."""

from collections.abc import Callable

from coplay.algorithms.hop import hop
from coplay.algorithms.hop_plus import hop_plus
from coplay.algorithms.ppo import mappo, ppo
from coplay.types import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "ppo": ppo,
    "mappo": mappo,
    "hop": hop,
    "hop_plus": hop_plus,
}

DESCRIPTIONS = {
    "ppo": "Proximal policy optimisation; own weights per agent, shared, or shared with the agent's id.",
    "mappo": "PPO with a critic that sees everyone's rows, the departed as zeros; shared with id by default.",
    "hop": "Beliefs about what the others want, models of what they do for it, a search with both.",
    "hop_plus": "PPO with learned subgoals of the others, a learned model of the game, and imagined play.",
}
