"""The world model from recorded play: its rows, its loss, and how good it is."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from coplay.errors import BadInput, require
from coplay.nets import world as worlds
from coplay.nets.world import Foreseen, World
from coplay.nets.world_fit import (
    Moves,
    loss,
    moves,
    of_some_member,
    said,
    same_board,
    surprises,
)
from coplay.offline.dataset import About, Episodes
from coplay.offline.figures import confusion_table, mean_over
from coplay.offline.part import Part
from coplay.offline.pictures import confusion, frames, shares
from coplay.offline.planes import channel_names, plane_errors, planes, true_planes
from coplay.opponents.balance import rarity_weights
from coplay.types import Environment, Key, PyTree, pytree, stream

RAREST = 30.0  # the most that a row with a rare reward counts
AHEAD, STARTS = (1, 3, 5, 10), 4096  # steps foretold at a stretch, and from how many boards


@dataclasses.dataclass(frozen=True)
class WorldConfig:
    hidden: tuple[int, ...] = (64, 64)  # widths of both networks
    members: int = 5  # networks that are trained apart

    def __post_init__(self):
        require(self.members >= 1, f"members={self.members} must be at least 1")
        require(min(self.hidden, default=0) >= 1, f"hidden={self.hidden} must name widths of at least 1")


@pytree
class Recorded:
    """Joint moves, and where they are from, [row, ...]."""

    episode: Int[Array, "*row"]  # rows of an episode follow each other
    moves: Moves
    weight: Float[Array, "*row agent"]  # what is rarely paid counts more; 0 for who has left


def part_of(about: About, config: WorldConfig) -> Part:
    env = about.env()
    if env.entities is None or env.reward_values is None:
        raise BadInput(f"{env.name} as set up is no board of things with known rewards: no world model")
    world, init = worlds.world_model(
        env.entities, env.num_agents, env.num_actions, env.reward_values, config.hidden
    )
    return Part(
        members=config.members,
        batch=256,
        most=40_000,
        init=init,
        rows=lambda play, episodes: moves_of(env, world, play, episodes),
        loss=lambda weights, rows, key: loss(world, weights, rows.moves, rows.weight),
        judge=lambda weights, rows, key: judged(env, world, weights, rows, key),
        pictures=lambda weights, rows: drawn_pictures(world, weights, rows.moves),
        headlines=("exact/drawn", "legal/drawn", "reward/right", "reward/recall"),
    )


def moves_of(env: Environment, world: World, play: Episodes, episodes: Int[np.ndarray, " one"]):
    """All joint moves of some episodes, and which episode each is from."""
    is_move = play.is_move[episodes]
    number, step = np.nonzero(is_move)
    before, after = (
        jax.tree.map(lambda x, t=t: jnp.asarray(x[episodes[number], t]), play.state) for t in (step, step + 1)
    )
    action, reward = (jnp.asarray(x[episodes[number], step]) for x in (play.action, play.reward))
    made = jax.jit(jax.vmap(lambda *one: moves(env, world, *one)))(before, after, action, reward)
    weight = jnp.where(made.before.here, _rarity(world, play)[made.happened.reward], 0.0)
    return Recorded(jnp.asarray(number), made, weight), number


def _rarity(world: World, play: Episodes) -> Float[Array, " value"]:
    """How much a row counts by what it paid. Rareness is that of the whole file, so that rows learned from
    and held out are weighed alike."""
    values = np.array(world.reward_values, np.float32)
    paid = play.reward[play.active & play.is_move[..., None]]
    place = np.abs(paid[:, None] - values[None]).argmin(axis=1)
    share = np.bincount(place, minlength=len(values)) / len(place)
    return rarity_weights(jnp.asarray(share), RAREST)


# --- figures -------------------------------------------------------------------------------------


def judged(env: Environment, world: World, weights: PyTree, recorded: Recorded, key: Key) -> dict[str, Any]:
    """How good the members are; drawn boards come from a member drawn for each row."""
    rows = recorded.moves
    each = jax.lax.map(lambda one: said(world, one, rows), weights)
    count = (rows.action.shape[0],)
    mixed = of_some_member(each, jax.random.randint(stream(key, "member"), count, 0, each.step.shape[0]))
    costs = surprises(mixed, rows)
    guesses = {"likeliest": worlds.likeliest(mixed), "drawn": worlds.draw(mixed, stream(key, "draw"))}
    boards = {name: worlds.next_board(world, rows.before, guess) for name, guess in guesses.items()}
    here, there = rows.before.here, rows.before.there
    return {
        "surprise/step": mean_over(here, costs.step),
        "surprise/reward": mean_over(here, costs.reward),
        "surprise/there": mean_over(there, costs.there),
        "disagreement": jnp.mean(worlds.disagreement(each, rows.before)),
        **{f"exact/{name}": jnp.mean(same_board(board, rows.after)) for name, board in boards.items()},
        "legal/drawn": jnp.mean(jax.vmap(world.entities.possible)(rows.state, boards["drawn"])),
        **_later(env, world, weights, recorded, stream(key, "later")),
        **_reward_figures(world, mixed, rows),
        **plane_errors(world, mixed, rows),
    }


def _later(env: Environment, world: World, weights: PyTree, recorded: Recorded, key: Key) -> dict[str, Array]:
    """How often a game that goes on by what is foretold, all moves being as they were, is still exact after
    so many steps."""
    rows, episode = recorded.moves, recorded.episode
    starts = jnp.arange(min(STARTS, rows.action.shape[0]))
    members = jax.tree.leaves(weights)[0].shape[0]
    member = jax.random.randint(stream(key, "member"), starts.shape, 0, members)
    own = jax.tree.map(lambda x: x[member], weights)
    step = jax.vmap(lambda *one: worlds.imagined_step(env, world, *one)[0])

    def one_step(carry, ahead):
        state, exact = carry
        at = jnp.minimum(starts + ahead, rows.action.shape[0] - 1)
        keys = jax.random.split(jax.random.fold_in(key, ahead), len(starts))
        state = step(own, state, rows.action[at], keys)
        true = jax.tree.map(lambda x: x[at], rows.after)
        exact = exact & same_board(jax.vmap(world.entities.read)(state), true)
        goes_on = (starts + ahead < rows.action.shape[0]) & (episode[at] == episode[starts])
        return (state, exact), mean_over(goes_on, exact)

    start = jax.tree.map(lambda x: x[: len(starts)], rows.state), jnp.ones(len(starts), bool)
    _, exact = jax.lax.scan(one_step, start, jnp.arange(max(AHEAD)))
    return {f"exact/after {steps}": exact[steps - 1] for steps in AHEAD}


def _reward_figures(world: World, told: Foreseen, rows: Moves) -> dict[str, Array]:
    """How often the likeliest reward is right, by what was paid; and the error of the mean foretold."""
    here, best = rows.before.here, worlds.likeliest(told).reward
    counts = confusion_table(len(world.reward_values), best, rows.happened.reward, here)
    values = jnp.asarray(world.reward_values, jnp.float32)
    error = jnp.exp(told.reward) @ values - values[rows.happened.reward]
    is_paid = values != 0
    right, total = jnp.diag(counts), jnp.sum(counts, axis=1)
    recall = {f"reward/recall {v:.3g}": right[i] / total[i] for i, v in enumerate(world.reward_values)}
    return {
        "reward/right": jnp.sum(right) / jnp.sum(total),
        "reward/recall": jnp.sum(jnp.where(is_paid, right, 0)) / jnp.sum(jnp.where(is_paid, total, 0)),
        **recall,
        "reward/mse": mean_over(here, error**2),
        "reward/confusion": counts,
    }


# --- pictures ------------------------------------------------------------------------------------

EXAMPLES = 4  # moves shown as frames


def drawn_pictures(world: World, weights: PyTree, rows: Moves) -> dict[str, Any]:
    """Rewards as they are and as they are foretold, and the moves that surprised it most."""
    each = jax.lax.map(lambda one: said(world, one, rows), weights)
    told = jax.tree.map(lambda x: jax.nn.log_softmax(jax.nn.logsumexp(x, axis=0), axis=-1), each)
    best = worlds.likeliest(told).reward
    counts = confusion_table(len(world.reward_values), best, rows.happened.reward, rows.before.here)
    names = [f"{value:.3g}" for value in world.reward_values]
    costs = surprises(told, rows)
    surprise = sum(jnp.sum(cost, axis=-1) for cost in (costs.step, costs.reward, costs.there))
    some = jax.tree.map(lambda x: x[jnp.argsort(-surprise)[:EXAMPLES]], (rows.before, rows.after, told))
    height = world.entities.num_cells // world.entities.width
    boards = [
        np.asarray(x).reshape(*x.shape[:2], height, world.entities.width)
        for x in (true_planes(world, some[1]), planes(world, some[2], some[0]))
    ]
    return {
        "rewards": shares(np.asarray(counts).sum(axis=1), names, "rewards, held-out moves"),
        "reward_confusion": confusion(np.asarray(counts), names, "reward, held-out moves"),
        "frames": frames(boards[0], boards[1], channel_names(world)),
    }
