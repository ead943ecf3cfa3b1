"""The world model from recorded play: its rows, its loss, and how good it is on episodes it never saw."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.errors import BadInput
from coplay.nets import world as worlds
from coplay.nets.world import Drawn, Foreseen, World
from coplay.offline.dataset import Episodes
from coplay.offline.part import Part
from coplay.offline.pictures import confusion, frames, shares
from coplay.types import Board, Environment, EnvState, Key, PyTree, pytree, stream

RAREST = 30.0  # the most that a row with a rare reward counts


@dataclasses.dataclass(frozen=True)
class WorldConfig:
    hidden: tuple[int, ...] = (64, 64)
    members: int = 5  # networks that are trained apart


@pytree
class Moves:
    """One row for every joint move, [row, ...]."""

    state: EnvState  # before the move
    before: Board
    after: Board
    action: Int[Array, "*row agent"]
    is_legal: Bool[Array, "*row agent"]
    happened: Drawn  # the labels
    weight: Float[Array, "*row agent"]  # rows with rare rewards count more; 0 for who has left


def part_of(env: Environment, config: WorldConfig) -> Part:
    if env.entities is None or env.reward_values is None:
        raise BadInput(f"{env.name} is no board of things with known rewards, so it has no world model")
    world, init = worlds.world_model(
        env.entities, env.num_agents, env.num_actions, env.reward_values, config.hidden
    )
    return Part(
        members=config.members,
        init=init,
        rows=lambda play, episodes: moves_of(env, world, play, episodes),
        loss=lambda weights, rows, key: loss(world, weights, rows, key),
        judge=lambda weights, rows, key: judged(world, weights, rows, key),
        pictures=lambda weights, rows: drawn_pictures(world, weights, rows),
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
    return jax.jit(lambda *x: _labelled(env, world, *x))(before, after, action, reward), number


def _labelled(env: Environment, world: World, before, after, action, reward) -> Moves:
    assert env.entities is not None, "part_of has refused such games"
    read = jax.vmap(env.entities.read)
    boards = read(before), read(after)
    legal = jax.vmap(env.view)(before)[1]
    is_legal = jnp.take_along_axis(legal, action[..., None], axis=-1)[..., 0]
    happened = worlds.true_drawn(world, *boards, reward)
    return Moves(before, *boards, action, is_legal, happened, _rarity(world, happened.reward, boards[0].here))


def _rarity(world: World, reward: Int[Array, "row agent"], here: Bool[Array, "row agent"]):
    """Weights that make every reward that was paid count alike, up to a limit; mean 1 over those here."""
    is_value = jax.nn.one_hot(reward, len(world.reward_values)) * here[..., None]
    share = jnp.mean(is_value, axis=(0, 1))
    common = jnp.max(share)
    times = jnp.where(share > 0, jnp.minimum(RAREST, jnp.sqrt(common / jnp.maximum(share, 1e-9))), 0.0)
    weight = jnp.sum(is_value * times[None, None], axis=-1)
    return weight * jnp.sum(here) / jnp.maximum(jnp.sum(weight), 1e-9)


# --- loss ----------------------------------------------------------------------------------------


def loss(world: World, weights: PyTree, rows: Moves, key: Key) -> Float[Array, " row"]:
    """What each joint move costs: the surprises of all heads, added up over who and what was there."""
    costs = surprises(world, said(world, weights, rows), rows)
    of_players = (costs.step + costs.reward) * rows.weight
    return jnp.sum(of_players, axis=-1) + jnp.sum(costs.there, axis=-1)


def said(world: World, weights: PyTree, rows: Moves) -> Foreseen:
    return worlds.foreseen(world, weights, worlds.rows_of(world, rows.before, rows.action, rows.is_legal))


@pytree
class Surprises:
    """In nats; 0 for who had left and what had vanished."""

    step: Float[Array, "*row agent"]
    reward: Float[Array, "*row agent"]
    there: Float[Array, "*row thing"]


def surprises(world: World, said: Foreseen, rows: Moves) -> Surprises:
    happened = rows.happened
    return Surprises(
        step=jnp.where(rows.before.here, _of(said.step, happened.step), 0.0),
        reward=jnp.where(rows.before.here, _of(said.reward, happened.reward), 0.0),
        there=jnp.where(rows.before.there, _of(said.there, happened.there.astype(jnp.int32)), 0.0),
    )


def _of(log_chance: Float[Array, "*row choice"], choice: Int[Array, "*row"]) -> Float[Array, "*row"]:
    return -jnp.take_along_axis(log_chance, choice[..., None], axis=-1)[..., 0]


# --- figures -------------------------------------------------------------------------------------


def judged(world: World, weights: PyTree, rows: Moves, key: Key) -> dict[str, Any]:
    """How good the members are on rows they never saw; drawn boards come from a member drawn for each row."""
    members = len(jax.tree.leaves(weights)[0])
    each = jax.vmap(lambda one: said(world, one, rows))(weights)
    row = jnp.arange(rows.action.shape[0])
    member = jax.random.randint(stream(key, "member"), row.shape, 0, members)
    mixed = jax.tree.map(lambda x: x[member, row], each)
    costs = surprises(world, mixed, rows)
    best, drawn = worlds.likeliest(mixed), worlds.draw(mixed, stream(key, "draw"))
    boards = {
        name: worlds.next_board(world, rows.before, one)
        for name, one in (("likeliest", best), ("drawn", drawn))
    }
    here, there = rows.before.here, rows.before.there
    zero = int(np.argmin(np.abs(world.reward_values)))
    return {
        "loss/step": _mean(costs.step, here),
        "loss/reward": _mean(costs.reward, here),
        "loss/there": _mean(costs.there, there),
        "disagreement": jnp.mean(disagreement(each, rows)),
        **{f"exact/{name}": jnp.mean(_same_board(board, rows.after)) for name, board in boards.items()},
        "legal/drawn": jnp.mean(jax.vmap(world.entities.possible)(rows.state, boards["drawn"])),
        "reward/right": _mean(best.reward == rows.happened.reward, here),
        "reward/recall": _mean(best.reward == rows.happened.reward, here & (rows.happened.reward != zero)),
        "reward/confusion": _confusion(world, best.reward, rows.happened.reward, here),
        **_plane_errors(world, mixed, rows),
    }


def disagreement(each: Foreseen, rows: Moves) -> Float[Array, " row"]:
    """How far members are apart, in nats: entropy of their mean less their mean entropy, added up over who
    and what is there."""

    def of_head(log_chance: Float[Array, "member row one choice"], counts: Bool[Array, "row one"]):
        mean = jnp.mean(jnp.exp(log_chance), axis=0)
        of_mean = -jnp.sum(mean * jnp.log(jnp.maximum(mean, 1e-12)), axis=-1)
        of_each = -jnp.mean(jnp.sum(jnp.exp(log_chance) * log_chance, axis=-1), axis=0)
        return jnp.sum(jnp.where(counts, of_mean - of_each, 0.0), axis=-1)

    here, there = rows.before.here, rows.before.there
    return of_head(each.step, here) + of_head(each.reward, here) + of_head(each.there, there)


def _mean(x: Array, counts: Bool[Array, "*rows"]) -> Float[Array, ""]:
    return jnp.sum(jnp.where(counts, x, 0.0)) / jnp.maximum(jnp.sum(counts), 1)


def _same_board(one: Board, other: Board) -> Bool[Array, " row"]:
    """Who has left is nowhere, whatever cell is kept for it."""
    players = (one.here == other.here) & ((one.players == other.players) | ~other.here)
    return jnp.all(players, axis=-1) & jnp.all(one.there == other.there, axis=-1)


def _confusion(world: World, told: Int[Array, "row agent"], true: Int[Array, "row agent"], here) -> Array:
    """[true, told]: how often, among players in the game."""
    count = len(world.reward_values)
    pairs = jnp.where(here, true * count + told, count * count).ravel()
    return jnp.bincount(pairs, length=count * count + 1)[:-1].reshape(count, count)


def planes(world: World, said: Foreseen, board: Board) -> Float[Array, "row channel cell"]:
    """Where everybody and everything is foretold to be, as chances of every cell, unrounded."""
    cells = world.entities.num_cells
    shift = np.array([r * world.entities.width + c for r, c in world.entities.steps])
    target = board.players[..., None] + jnp.asarray(shift, jnp.int32)[None, None]
    chance = jnp.where(board.here[..., None], jnp.exp(said.step[..., :-1]), 0.0)
    players = jnp.sum(jax.nn.one_hot(target, cells) * chance[..., None], axis=-2)
    stays = jnp.where(board.there, jnp.exp(said.there[..., 1]), 0.0)
    return _channels(world, players, jax.nn.one_hot(board.things, cells) * stays[..., None])


def true_planes(world: World, board: Board) -> Float[Array, "row channel cell"]:
    cells = world.entities.num_cells
    players = jax.nn.one_hot(board.players, cells) * board.here[..., None]
    return _channels(world, players, jax.nn.one_hot(board.things, cells) * board.there[..., None])


def _channels(world: World, players: Float[Array, "row agent cell"], things: Float[Array, "row thing cell"]):
    """One plane for each player, one for each kind of thing."""
    kind_of = np.array(world.entities.kind_of)
    kinds = [jnp.sum(things[:, kind_of == kind], axis=1) for kind in range(len(world.entities.kinds))]
    return jnp.concatenate([players, jnp.stack(kinds, axis=1)], axis=1)


def _channel_names(world: World) -> list[str]:
    return [f"player {seat}" for seat in range(world.num_agents)] + list(world.entities.kinds)


def _plane_errors(world: World, said: Foreseen, rows: Moves) -> dict[str, Array]:
    """Squared error of the chances of every cell, by channel and over all, beside "nothing changes"."""
    true = true_planes(world, rows.after)
    error, nothing = (
        jnp.mean((told - true) ** 2, axis=(0, 2))
        for told in (planes(world, said, rows.before), true_planes(world, rows.before))
    )
    mean = jnp.mean(error)
    return {
        **{f"mse/{name}": error[place] for place, name in enumerate(_channel_names(world))},
        "mse": mean,
        "psnr": -10 * jnp.log10(jnp.maximum(mean, 1e-12)),
        "skill": 1 - mean / jnp.mean(nothing),
    }


# --- pictures ------------------------------------------------------------------------------------

EXAMPLES = 4  # moves shown as frames


def drawn_pictures(world: World, weights: PyTree, rows: Moves) -> dict[str, Any]:
    """Rewards as they are and as they are foretold, and the moves that surprised it most."""
    told = said(world, jax.tree.map(lambda x: x[0], weights), rows)
    counts = _confusion(world, worlds.likeliest(told).reward, rows.happened.reward, rows.before.here)
    names = [f"{value:.3g}" for value in world.reward_values]
    costs = surprises(world, told, rows)
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
        "frames": frames(boards[0], boards[1], _channel_names(world)),
    }
