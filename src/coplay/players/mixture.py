"""A player that is one of several, drawn anew for every episode; so nobody remembers earlier ones."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np

from coplay.errors import require
from coplay.players.scripted import ScriptedPlayer


def any_of(players: Sequence[ScriptedPlayer]) -> ScriptedPlayer:
    """Each of `players` as likely as the others. Latents: those of the first, then of the second, ..."""
    require(len(players) >= 2, "name at least two players to draw from")
    counts = [player.num_latents for player in players]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])

    def beginning(*_):
        return jnp.concatenate([player.start() for player in players]) / len(players)

    def by_owner(of_each: Sequence[Callable]):
        """The answer of whoever the latent belongs to; the others are asked about their first."""

        def choose(latent, *seen):
            owner = jnp.sum(latent >= starts) - 1
            answers = [
                of(jnp.where(owner == number, latent - starts[number], 0), *seen)
                for number, of in enumerate(of_each)
            ]
            return jnp.stack(answers)[owner]

        return choose

    def placed(number: int):
        """Where the player's latents go among all."""
        before, after = starts[number], sum(counts) - starts[number] - counts[number]
        advance = players[number].advance
        return lambda *seen: jnp.pad(advance(*seen), (int(before), int(after)))

    return ScriptedPlayer(
        name="one_of",
        num_latents=sum(counts),
        start=beginning,
        renew=beginning,
        policy=by_owner([player.policy for player in players]),
        advance=by_owner([placed(number) for number in range(len(players))]),
        goal=by_owner([player.goal for player in players]),
    )
