"""The prior over subgoals from recorded play: what a moment says of what its player may be after.

A row is one board with everyone on it; who is in the game and about to move counts. Whatever shapes the
numbers (`objective`), three figures are told apart, in nats: reconstruction of the boards, divergence from a
standard Gaussian, and surprise at actions. The two objectives have no common scale: compare what a linear
reading of the numbers knows of true goals (`probe/...`), not their losses.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from coplay.errors import BadInput, require
from coplay.offline.dataset import About, Episodes
from coplay.offline.figures import linear_reading, mean_over
from coplay.offline.part import Part
from coplay.offline.pictures import frames
from coplay.opponents import prior as priors
from coplay.opponents import subgoals
from coplay.opponents.prior import Objective, PriorModel
from coplay.types import Environment, EnvState, Key, PyTree, pytree

TERMS: dict[Objective, str] = {"reconstruction": "reconstruction", "action": "action_surprise"}  # by reader
SHOWN = 3  # boards in the picture


@dataclasses.dataclass(frozen=True)
class VaeConfig:
    hidden: tuple[int, ...] = (64, 64)  # widths of all three networks
    subgoal: int = 16  # numbers in a subgoal
    objective: Objective = "action"  # what shapes them: the boards a player sees, or what it does next
    divergence: float = 0.1  # weight of the divergence
    rewarded: bool = False  # learn only from players that were paid in that episode; it is judged on all

    def __post_init__(self):
        require(self.subgoal >= 1, f"subgoal={self.subgoal} must be at least 1")
        require(self.divergence >= 0, f"divergence={self.divergence} must not be negative")
        require(min(self.hidden, default=0) >= 1, f"hidden={self.hidden} must name widths of at least 1")


@pytree
class Moments:
    """Boards, [row, ...]."""

    state: EnvState
    action: Int[Array, "*row agent"]
    counts: Bool[Array, "*row agent"]
    goal: Int[Array, "*row agent"]
    episode: Int[Array, "*row"]


@pytree
class Seen:
    """What the model makes of rows, [row, agent, ...]."""

    row: Float[Array, "*row agent feature"]
    legal: Bool[Array, "*row agent action"]
    boards: Float[Array, "*row agent channel height width"]
    subgoal: subgoals.Subgoal


def part_of(about: About, config: VaeConfig) -> Part:
    env = about.env()
    if env.goals.look is None:
        raise BadInput(f"{env.name} as set up does not show how near things are; set observation='entities'")
    if not priors.board_parts(env, jnp.zeros(env.observation_size)):
        raise BadInput(f"{env.name} shows no board to rebuild; take play of a game on cells, like stag_hunt")
    model, init = priors.prior_model(env, config.subgoal, config.hidden, config.objective)
    return Part(
        members=1,
        batch=256,
        most=20_000,
        init=init,
        rows=moments_of,
        learned_rows=paid_moments_of if config.rewarded else None,
        loss=lambda *given: loss(model, config.divergence, tuple(TERMS), *given),
        score=lambda *given: loss(model, config.divergence, (config.objective,), *given),
        beside=tuple(network for what, network in priors.READERS.items() if what != config.objective),
        judge=lambda weights, rows, key: judged(model, jax.tree.map(lambda x: x[0], weights), rows),
        pictures=lambda weights, rows: drawn_pictures(model, jax.tree.map(lambda x: x[0], weights), rows),
        headlines=("reconstruction", "kl", "action_surprise", "probe/subgoal", "probe/row"),
    )


def moments_of(play: Episodes, episodes: Int[np.ndarray, " one"]):
    """All boards of some episodes on which somebody moves, and which episode each is from."""
    number, step = np.nonzero(play.is_move[episodes])
    at = episodes[number], step
    rows = Moments(
        state=jax.tree.map(lambda x: jnp.asarray(x[at]), play.state),
        action=jnp.asarray(np.maximum(play.action[at], 0)),
        counts=jnp.asarray(play.active[at]),
        goal=jnp.asarray(play.goal[at]),
        episode=jnp.asarray(number),
    )
    return rows, number


def paid_moments_of(play: Episodes, episodes: Int[np.ndarray, " one"]):
    """The same; of all players only those count that were paid in that episode."""
    rows, number = moments_of(play, episodes)
    earned = np.where(play.active & play.is_move[..., None], play.reward, 0.0)[episodes].sum(axis=1)
    if not (earned > 0).any():
        raise BadInput(
            f"rewarded=true, and nobody was paid in the {len(episodes):,} episodes to learn from; "
            "set rewarded=false, or record players who get something"
        )
    return dataclasses.replace(rows, counts=rows.counts & jnp.asarray(earned > 0)[number]), number


# --- loss ----------------------------------------------------------------------------------------


def loss(
    model: PriorModel, divergence: float, by: tuple[Objective, ...], weights: PyTree, rows: Moments, key: Key
) -> Float[Array, " row"]:
    """What each board costs, over everyone who counts, by one reader of the numbers or by both. The one that
    shapes nothing learns beside, and is no part of what epochs are compared by."""
    seen = _seen(model, weights, rows)
    terms = _terms(model, weights, rows, seen, subgoals.drawn(seen.subgoal, key))
    cost = sum(terms[TERMS[reader]] for reader in by) + divergence * terms["kl"]
    return jnp.sum(jnp.where(rows.counts, cost, 0.0), axis=-1)


def _seen(model: PriorModel, weights: PyTree, rows: Moments) -> Seen:
    row, legal = jax.vmap(lambda state: subgoals.sight(model.env, state))(rows.state)
    shown = jax.vmap(jax.vmap(lambda x: priors.boards(model.env, x)))
    observation = row[..., : model.env.observation_size]
    return Seen(row, legal, shown(observation), priors.embedded(model, weights, row))


def _terms(model: PriorModel, weights: PyTree, rows: Moments, seen: Seen, numbers) -> dict[str, Array]:
    """In nats, [row, agent]."""
    flat = seen.boards.reshape(*seen.boards.shape[:2], -1)
    cells = optax.sigmoid_binary_cross_entropy(priors.board_logits(model, weights, numbers), flat)
    told = priors.action_chances(model, weights, numbers, seen.legal)
    return {
        "reconstruction": jnp.sum(cells, axis=-1),
        "kl": subgoals.spread(seen.subgoal),
        "action_surprise": -jnp.take_along_axis(told, rows.action[..., None], axis=-1)[..., 0],
    }


# --- figures -------------------------------------------------------------------------------------


def judged(model: PriorModel, weights: PyTree, rows: Moments) -> dict[str, Any]:
    """The three figures where numbers most likely are, and how often a linear reading of the numbers, of the
    whole row, and of nothing tells the true goal."""
    seen = _seen(model, weights, rows)
    terms = _terms(model, weights, rows, seen, seen.subgoal.mean)
    num_goals = len(model.env.goals.names)
    is_learned = (rows.episode % 2 == 0)[:, None]
    reading = {"subgoal": seen.subgoal.mean, "row": seen.row, "commonest": seen.row[..., :0]}
    return {name: mean_over(rows.counts, term) for name, term in terms.items()} | {
        f"probe/{name}": linear_reading(x, rows.goal, rows.counts, is_learned, num_goals)
        for name, x in reading.items()
    }


def drawn_pictures(model: PriorModel, weights: PyTree, rows: Moments) -> dict[str, Any]:
    """Boards as the first player sees them, and as they are rebuilt from its numbers."""
    first = jax.tree.map(lambda x: x[:SHOWN], rows)
    seen = _seen(model, weights, first)
    told = jax.nn.sigmoid(priors.board_logits(model, weights, seen.subgoal.mean))
    told = np.asarray(told.reshape(seen.boards.shape))[:, 0]
    return {"boards": frames(np.asarray(seen.boards)[:, 0], told, _channels(model.env))}


def _channels(env: Environment) -> list[str]:
    """In the order of `priors.boards`."""
    names = []
    for name, x in priors.board_parts(env, jnp.zeros(env.observation_size)).items():
        names += [name] if x.ndim == 2 else [f"{name} {place + 1}" for place in range(x.shape[0])]
    return names
