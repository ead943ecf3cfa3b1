"""How HOP+ imagines: its parts put together as an `Imagination`, a round's imagined rows as the policy learns
from them, and whether the models are good enough to be asked."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from coplay.algorithms.company import is_free
from coplay.algorithms.hop_plus_parts import Parts
from coplay.algorithms.imagination import Imagination, Imagined, Use, imagine, imagined_rows
from coplay.algorithms.ppo import Beside, Plan
from coplay.algorithms.readers import Read, Reading, foretold, read_on, read_rounds, sights_of, supposed
from coplay.algorithms.targets import in_the_game, standardiser
from coplay.diagnostics import gates
from coplay.nets import world as worlds
from coplay.taps import tap
from coplay.training.devices import masked_mean, total
from coplay.types import Key, Metrics, PyTree, TimeStep, Trajectory

ENOUGH = 20  # remembered moves that paid a reward, before anything is asked or believed about it


def imagination_of(parts: Parts, in_game: bool = False) -> Imagination:
    config, env, reader, world = parts.config, parts.env, parts.reader, parts.world

    def learned(params: PyTree, state, action, key: Key, first: Int[Array, ""]):
        assert world is not None, "only then is this asked"
        return worlds.imagined_by_some(
            env, world, params["world"].common["members"], state, action, key, first
        )

    def true(params: PyTree, state, action, key: Key, first: Int[Array, ""]):
        return *env.step(state, action, key), jnp.float32(0.0)

    def guess(notes: PyTree, own, keys: Key):
        return jax.vmap(supposed)(jax.tree.map(own, notes["reading"]), keys) if reader is not None else ()

    def as_modelled(params: PyTree, guess: Float[Array, "seat moment other number"], timestep: TimeStep, own):
        """What everyone else does in the games of every seat, as that seat thinks."""
        assert reader is not None, "the settings have been refused otherwise"
        rows = own(sights_of(reader, timestep)), own(timestep.legal[:, reader.others]), guess
        rows = [jnp.swapaxes(x, 0, 1) for x in rows]  # [moment, seat, ...]
        return jnp.swapaxes(foretold(reader, params["policy"], *rows), 0, 1)

    def noticed(params: PyTree, hidden, notes: PyTree, after: TimeStep):
        if reader is None or config.imagined_steps == 1:
            return hidden, notes  # not looked at
        hidden, reading = read_on(reader, params["policy"], hidden, notes["reading"].kept, after)
        return hidden, notes | {"reading": reading}

    return Imagination(
        model=parts.policy,
        steps=config.imagined_steps,
        branches=config.imagined_branches,
        discount=config.discount,
        trace=config.trace,
        bootstraps=config.imagined_returns == "bootstrapped",
        guess=guess,
        others=as_modelled if config.others == "models" else None,
        move=learned if world is not None and not in_game else true,
        notice=noticed,
    )


def beside_play(
    parts: Parts, run: Plan, params: PyTree, trajectory: Trajectory, rung: Int[Array, ""], key: Key
) -> tuple[Beside | None, Metrics]:
    """What is imagined from this round, as rows to learn from, with figures; nothing where that is off."""
    config = parts.config
    if not config.imagines:
        return None, {}
    hidden = hidden_of(parts, params, trajectory, run.sequence_length)
    most = jnp.where(rung >= gates.SEVERAL, config.imagined_steps, 1)
    imagined = imagine(imagination_of(parts), params, trajectory, hidden, most, key)
    tap("imagined", lambda: imagined)
    played = in_the_game(trajectory.steps, parts.seats)
    if parts.company is not None:  # who follows orders does not imagine what it would do if it were free
        played = is_free(trajectory.steps, parts.seats)
        imagined = dataclasses.replace(imagined, counts=imagined.counts & played[..., None])
    share = jnp.where(rung >= gates.ONE, 1.0 - config.real_share, 0.0)
    use = Use(share, config.doubt, config.critic_data == "both", standardiser(config))
    length = trajectory.steps.before.first.shape[0]
    rows = imagined_rows(parts.policy, params["policy"], imagined, use, length)
    reward = trajectory.steps.after.reward[..., parts.policy.index]
    return Beside(rows, share), _figures(imagined, reward, played) | {
        "imagination/rung": rung.astype(jnp.float32),
        "imagination/share": share,
        "imagination/steps": most.astype(jnp.float32),
    }


def hidden_of(parts: Parts, params: PyTree, trajectory: Trajectory, length: int) -> PyTree:
    """What had been read of everyone at every real moment; nobody asks where one step is imagined."""
    if parts.reader is None or parts.config.imagined_steps == 1:
        return ()
    memory: Read = trajectory.memory.read
    reading: Reading = trajectory.steps.decision.notes["reading"]
    return read_rounds(parts.reader, params["policy"], trajectory, memory, reading, length)


def _figures(
    imagined: Imagined, reward: Float[Array, "time env seat"], played: Bool[Array, "time env seat"]
) -> Metrics:
    """Of every seat, over the rows that it imagined, with what it was really paid at the moments from which
    it did."""
    returns, rows = imagined.value + imagined.advantage, (imagined.counts, (0, 1, 3))
    return {
        "real/reward": masked_mean(reward, played, (0, 1)),
        "real/reward_std": _deviation(reward, played, (0, 1)),
        "imagined/reward": masked_mean(imagined.reward, *rows),
        "imagined/reward_std": _deviation(imagined.reward, *rows),
        "imagined/doubt": masked_mean(imagined.doubt, *rows),
        "imagined/return": masked_mean(returns, *rows),
        "imagined/return_std": _deviation(returns, *rows),
        "imagined/advantage_std": _deviation(imagined.advantage, *rows),
        "imagined/bias": masked_mean(-imagined.advantage, *rows),
        "count/samples/imagined": total(jnp.sum(imagined.counts, (0, 1, 3), dtype=jnp.float32)),
    }


def _deviation(x: Array, counts: Bool[Array, "*rows"], axes: tuple[int, ...]) -> Float[Array, " seat"]:
    apart = x - jnp.expand_dims(masked_mean(x, counts, axes), axes)
    return jnp.sqrt(masked_mean(apart**2, counts, axes))


# --- whether models may be asked -----------------------------------------------------------------


def is_sound(parts: Parts, critic: gates.Judged) -> Bool[Array, ""]:
    """Whether every seat's critic is."""
    most = max(map(abs, parts.env.reward_values)) if parts.env.reward_values else 1.0
    return gates.is_sound(critic, barely=0.05 * most)


def are_good(parts: Parts, figures: Metrics) -> Bool[Array, " rung"]:
    """Whether the models are good enough for one imagined step, and for several, by this round's figures."""
    good, better = jnp.asarray(True), jnp.asarray(True)
    if parts.world is not None:
        values = [f"{value:.3g}" for value in parts.world.reward_values]
        for value in values:
            is_known = figures[f"world/seen/{value}"] >= ENOUGH
            good &= ~is_known | (figures[f"world/recall/{value}"] >= 0.9)
        if not parts.config.world_from:  # a world that was learned before play knows what is rare
            largest = f"{max(parts.world.reward_values):.3g}"
            good &= figures[f"world/seen/{largest}"] >= ENOUGH
        good &= figures["world/possible"] > 0.99
        better &= figures["world/possible"] > 0.999
    if parts.reader is not None and parts.config.others == "models":
        model, true, even = (figures[f"opponents/{n}surprise"] for n in ("", "true_", "even_"))
        gap, share = model - true, (even - model) / jnp.maximum(even - true, 1e-6)
        good &= jnp.all((gap <= 0.1) & ((share >= 0.8) | (gap <= 0.02)))  # hardly anything to foresee, too
    return jnp.stack([good, better])
