"""A game and a player of one's own, each named as file.py:function, without changing coplay.

The game is the stag hunt on a 3x3 board; the player flips a coin between staying and its first legal move.
"""

import tempfile
from pathlib import Path

import jax.numpy as jnp

import coplay
from coplay.envs import stag_hunt
from coplay.players.scripted import no_goal, one_latent


def tiny_hunt(**options):
    return stag_hunt.make(**{"size": 3, "players": 2, "hares": 2, "horizon": 10, **options})


def lazy(env):
    def policy(latent, observation, legal):
        first = jnp.argmax(legal)
        return 0.5 * (jnp.arange(env.num_actions) == first) + 0.5 * (
            jnp.arange(env.num_actions) == env.neutral_action
        )

    return one_latent("lazy", policy, no_goal)


EXPERIMENT = """
game = "{here}:tiny_hunt"
lineup = ["ppo", "{here}:lazy"]

[rollout]
total_steps = 8_000
num_envs = 32
num_steps = 20
"""

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        toml = Path(folder) / "mine.toml"
        toml.write_text(EXPERIMENT.format(here=__file__))
        run = coplay.train(str(toml), out=Path(folder) / "run")
        print(f"mean return {run.evaluate(episodes=256).mean_return:.2f}")
