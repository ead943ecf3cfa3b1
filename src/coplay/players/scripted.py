"""Players whose behaviour is known exactly: small hidden-state machines, and the best guess at them.

A `ScriptedPlayer` is written for one player in one game and only ever states probabilities.
`scripted` draws from them to fill seats of a game; `bayes_filter` inverts them, so that its
predictions are the best that any model of such a player can make.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.errors import BadInput
from coplay.training.stages import no_learning
from coplay.types import Algorithm, Decision, Environment, Key, Seated, Thoughts, TimeStep, Transition, pytree


class ScriptedPlayer(NamedTuple):
    """A hidden-state machine. Latent states are whole numbers; `one_latent` and `machine` make them."""

    name: str
    num_latents: int
    start: Callable  # () -> [latent] probabilities with new company
    renew: Callable  # latent -> [latent] probabilities at each later episode with the same company
    policy: Callable  # latent, observation row, legal row -> [action] probabilities, 0 where illegal
    advance: Callable  # latent, row before, row after -> [latent] probabilities of the next latent
    goal: Callable  # latent, observation row -> place in env.goals, -1 for none


def machine(
    name: str,
    start: Sequence[float],
    policy: Callable,
    advance: Callable,
    goal: Callable,
    renew: Callable | None = None,
) -> ScriptedPlayer:
    """A player with a latent state for each of the `start` probabilities; it renews as it starts."""
    beginning = np.asarray(start, np.float32)
    return ScriptedPlayer(
        name=name,
        num_latents=len(beginning),
        start=lambda: jnp.asarray(beginning),
        renew=renew or (lambda latent: jnp.asarray(beginning)),
        policy=policy,
        advance=advance,
        goal=goal,
    )


def one_latent(name: str, policy: Callable, goal: Callable) -> ScriptedPlayer:
    """A player whose next action depends on what it sees alone."""
    return machine(name, [1.0], policy, advance=lambda latent, before, after: jnp.ones(1), goal=goal)


def certain(choice: int | Int[Array, ""], num_choices: int) -> Float[Array, " choice"]:
    """All probability on one choice."""
    return (jnp.arange(num_choices) == choice).astype(jnp.float32)


def uniform(allowed: Bool[Array, " choice"]) -> Float[Array, " choice"]:
    """Equal probability on what is allowed."""
    return allowed / jnp.maximum(jnp.sum(allowed), 1)


def no_goal(latent: Int[Array, ""], row: Float[Array, " feature"]) -> Int[Array, ""]:
    return jnp.int32(-1)


def random_player(env: Environment) -> ScriptedPlayer:
    """Uniform over legal actions."""
    return one_latent("random", lambda latent, row, legal: uniform(legal), no_goal)


# --- a scripted player in a game -----------------------------------------------------------------


@pytree
class ScriptedMemory:
    latent: Int[Array, "env seat"]  # at the last act
    upcoming: Float[Array, "env seat latent"]  # probabilities of the latent at the next act
    met: Bool[Array, "env seat"]  # false until something happened with this company


def scripted(player: ScriptedPlayer, env: Environment, seats: tuple[int, ...]) -> Algorithm:
    """`player` in each of `seats`, every seat with draws of its own."""
    if not all(0 <= seat < env.num_agents for seat in seats):
        raise BadInput(f"seats {seats} must lie between 0 and {env.num_agents - 1} in {env.name}")
    rows = np.array(seats)

    def init(key: Key) -> Seated:
        return Seated(own={"identity": jnp.asarray(rows, jnp.int32)}, common={})

    def remember(num_envs: int) -> ScriptedMemory:
        shape = (num_envs, len(rows))
        upcoming = jnp.broadcast_to(player.start()[None, None], (*shape, player.num_latents))
        return ScriptedMemory(jnp.zeros(shape, jnp.int32), upcoming, jnp.zeros(shape, bool))

    def act(params: Seated, memory: ScriptedMemory, timestep: TimeStep, state, key: Key):
        units = _units(key, params.own["identity"], timestep.first.shape[0])
        latent, action, policy = _each(lambda *one: _decide(player, *one))(
            memory.upcoming,
            jnp.broadcast_to(timestep.first[:, None], memory.met.shape) & memory.met,
            timestep.observation[:, rows],
            timestep.legal[:, rows],
            units,
        )
        log_prob = jnp.log(jnp.take_along_axis(policy, action[..., None], axis=-1)[..., 0])
        goal = _each(player.goal)(latent, timestep.observation[:, rows])
        thoughts = Thoughts(goal=goal.astype(jnp.int32))
        decision = Decision(action, log_prob, policy, thoughts=thoughts)
        return ScriptedMemory(latent, memory.upcoming, memory.met), decision

    def watch(params: Seated, memory: ScriptedMemory, transition: Transition) -> ScriptedMemory:
        # `after` is the row before any reset, so that what ends an episode is seen as well.
        before, after = transition.before.observation, transition.after.observation
        upcoming = _each(player.advance)(memory.latent, before[:, rows], after[:, rows])
        return ScriptedMemory(memory.latent, upcoming, jnp.ones_like(memory.met))

    return Algorithm(init, remember, act, watch, no_learning)


def _each(one: Callable) -> Callable:
    """From one player in one game to [env, seat]."""
    return jax.vmap(jax.vmap(one))


def _units(key: Key, identity: Int[Array, " seat"], num_envs: int) -> Float[Array, "env seat 3"]:
    """Numbers in [0, 1). They follow a seat's identity, which is data: renaming moves them along."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, identity)
    return jax.vmap(lambda own: jax.random.uniform(own, (num_envs, 3)), out_axes=1)(keys)


def _decide(
    player: ScriptedPlayer,
    upcoming: Float[Array, " latent"],
    is_renewed: Bool[Array, ""],
    row: Float[Array, " feature"],
    legal: Bool[Array, " action"],
    unit: Float[Array, " 3"],
) -> tuple[Int[Array, ""], Int[Array, ""], Float[Array, " action"]]:
    """One player in one game: its latent state, its action, and where that was drawn from."""
    latent = _draw(unit[0], upcoming)
    latent = jnp.where(is_renewed, _draw(unit[1], player.renew(latent)), latent)
    policy = player.policy(latent, row, legal)
    return latent, _draw(unit[2], policy), policy


def _draw(unit: Float[Array, ""], probabilities: Float[Array, " choice"]) -> Int[Array, ""]:
    """The choice whose stretch of [0, 1) holds `unit`; never one of probability 0.

    Each partial sum adds the same numbers in the same order, some of them replaced by 0: so partial sums
    never fall, and an impossible choice has a stretch of length 0 exactly. A running sum promises neither.
    """
    choice = np.arange(probabilities.shape[0])
    up_to = jnp.sum(jnp.where(choice[None, :] <= choice[:, None], probabilities[None, :], 0.0), axis=1)
    return jnp.sum(up_to <= unit * up_to[-1], dtype=jnp.int32)


# --- the best predictor --------------------------------------------------------------------------


@pytree
class PlayerRows:
    """What was seen of one player, over all its episodes with the same company."""

    observation: Float[Array, "*time feature"]
    legal: Bool[Array, "*time action"]
    action: Int[Array, "*time"]
    after: Float[Array, "*time feature"]  # as the game left it, before any reset
    active: Bool[Array, "*time"]  # where not, the action says nothing
    first: Bool[Array, "*time"]


@pytree
class Filtered:
    """Hypotheses are (player, latent): the latents of the first player, then of the second, ..."""

    prediction: Float[Array, "*time action"]  # before the action was seen
    belief: Float[Array, "*time hypothesis"]  # before the action was seen
    posterior: Float[Array, "*time hypothesis"]  # with the action


def bayes_filter(
    players: Sequence[ScriptedPlayer], prior: Float[Array, " player"], rows: PlayerRows
) -> Filtered:
    """Who is this, in which latent state, and what will it do next? Exact, by Bayes' rule."""

    def one_step(belief: Float[Array, " hypothesis"], now: PlayerRows):
        belief = jnp.where(now.first, _push(players, _renew, belief, now), belief)
        policy = _by_hypothesis(players, _policy, now)
        likelihood = policy @ certain(now.action, policy.shape[1])
        posterior = jnp.where(now.active, _bayes(belief, likelihood), belief)
        return _push(players, _advance, posterior, now), Filtered(belief @ policy, belief, posterior)

    weights = prior / jnp.sum(prior)
    start = jnp.concatenate([weights[i] * player.start() for i, player in enumerate(players)])
    rows = dataclasses.replace(rows, first=rows.first.at[0].set(False))  # it starts; nothing to renew
    return jax.lax.scan(one_step, start, rows)[1]


def by_player(
    players: Sequence[ScriptedPlayer], belief: Float[Array, "*time hypothesis"]
) -> Float[Array, "*time player"]:
    """How likely each player is, whatever its latent state."""
    owner = np.repeat(np.arange(len(players)), [player.num_latents for player in players])
    return belief @ jax.nn.one_hot(owner, len(players))


def _bayes(belief: Float[Array, " z"], likelihood: Float[Array, " z"]) -> Float[Array, " z"]:
    joint = belief * likelihood
    total = jnp.sum(joint)
    # An action that no hypothesis allows says that none is right: keep what we thought.
    return jnp.where(total > 0, joint / jnp.maximum(total, jnp.finfo(joint.dtype).tiny), belief)


def _push(players, move: Callable, belief: Float[Array, " z"], now: PlayerRows) -> Float[Array, " z"]:
    """Belief carried through a step of every player's own chain."""
    blocks = [jax.vmap(lambda z, p=p: move(p, z, now))(jnp.arange(p.num_latents)) for p in players]
    return belief @ jax.scipy.linalg.block_diag(*blocks)


def _by_hypothesis(players, of: Callable, now: PlayerRows) -> Float[Array, "z choice"]:
    return jnp.concatenate(
        [jax.vmap(lambda z, p=p: of(p, z, now))(jnp.arange(p.num_latents)) for p in players]
    )


def _policy(player: ScriptedPlayer, latent, now: PlayerRows):
    return player.policy(latent, now.observation, now.legal)


def _renew(player: ScriptedPlayer, latent, now: PlayerRows):
    return player.renew(latent)


def _advance(player: ScriptedPlayer, latent, now: PlayerRows):
    return player.advance(latent, now.observation, now.after)
