"""A player that becomes another: for so many episodes with its company it is the first, then the second."""

import jax.numpy as jnp

from coplay.errors import require
from coplay.players.scripted import ScriptedPlayer, certain


def becoming(first: ScriptedPlayer, second: ScriptedPlayer, after: int) -> ScriptedPlayer:
    """`first` for `after` episodes, `second` from then on."""
    require(after >= 1, f"after={after} must be at least 1")
    # Latents: (episode, latent of the first) for the episodes before the change, then those of the second.
    before = after * first.num_latents
    total = before + second.num_latents

    def apart(latent):
        """Whether it has changed, and its latent as either of the two."""
        own = jnp.where(latent < before, latent % first.num_latents, 0)
        return latent >= before, own, jnp.maximum(latent - before, 0)

    def placed(episode, chances):
        """Chances of the first's latents in that episode as chances of all latents."""
        blocks = certain(episode, after)[:, None] * chances[None, :]
        return jnp.concatenate([blocks.ravel(), jnp.zeros(second.num_latents)])

    def changed(chances):
        return jnp.concatenate([jnp.zeros(before), chances])

    def renew(latent):
        has_changed, own, other = apart(latent)
        episode = latent // first.num_latents + 1
        going_on = jnp.where(episode < after, placed(episode, first.renew(own)), changed(second.start()))
        return jnp.where(has_changed, changed(second.renew(other)), going_on)

    def advance(latent, row, row_after):
        has_changed, own, other = apart(latent)
        as_first = placed(latent // first.num_latents, first.advance(own, row, row_after))
        return jnp.where(has_changed, changed(second.advance(other, row, row_after)), as_first)

    def either(of_first, of_second):
        def choose(latent, *seen):
            has_changed, own, other = apart(latent)
            return jnp.where(has_changed, of_second(other, *seen), of_first(own, *seen))

        return choose

    return ScriptedPlayer(
        name="changing",
        num_latents=total,
        start=lambda: placed(0, first.start()),
        renew=renew,
        policy=either(first.policy, second.policy),
        advance=advance,
        goal=either(first.goal, second.goal),
    )
