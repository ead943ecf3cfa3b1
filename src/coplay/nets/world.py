"""A model of how a game moves: small networks, one shared by all players and one by all things.

Each is told what the game's rules could depend on, relative to itself: what it does, what stands on its
cell, and how many players there do what. So a player at one end of the board teaches about the other end,
and what a network need not find out is which cells are the same. For every player it foretells a step (or
that it leaves) and one of the rewards the game can pay; for every thing, whether it stays. Several networks
trained apart show by their disagreement where they do not know.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from coplay.nets.mlp import MLP
from coplay.types import Board, Entities, Environment, EnvState, Key, PyTree, pytree, stream

GAIN = 0.1  # of output layers: everything is about as likely at first


@pytree
class Rows:
    """What the two networks read, [..., player or thing, feature]."""

    player: Float[Array, "*batch agent of_player"]
    thing: Float[Array, "*batch thing of_thing"]


@pytree
class Foreseen:
    """Log probabilities."""

    step: Float[Array, "*batch agent choice"]  # of every step, then of leaving
    reward: Float[Array, "*batch agent value"]  # of every reward the game can pay
    there: Float[Array, "*batch thing 2"]  # of vanishing, of staying


@pytree
class Drawn:
    """One next board, with what was paid, as indices."""

    step: Int[Array, "*batch agent"]  # place in the steps; one past the last: it leaves
    reward: Int[Array, "*batch agent"]  # place in the rewards
    there: Bool[Array, "*batch thing"]


class World(NamedTuple):
    """The networks without weights, and what they speak of."""

    entities: Entities
    num_agents: int
    num_actions: int
    reward_values: tuple[float, ...]
    networks: PyTree  # without arrays

    @property
    def leaving(self) -> int:
        return len(self.entities.steps)

    @property
    def shift(self) -> Int[np.ndarray, " step"]:
        """By how much each step changes the number of a cell."""
        steps = np.array(self.entities.steps, np.int32)
        return steps[:, 0] * self.entities.width + steps[:, 1]


class Networks(eqx.Module):
    player: MLP
    thing: MLP


def world_model(
    entities: Entities,
    num_agents: int,
    num_actions: int,
    reward_values: tuple[float, ...],
    hidden: tuple[int, ...] = (64, 64),
):
    """The model, and a function from a key to the weights of one member."""
    counts = num_actions * (num_agents + 1)
    inputs = {
        "player": num_actions + 2 + len(entities.kinds) + counts,
        "thing": len(entities.kinds) + 1 + counts,
    }
    outputs = {"player": len(entities.steps) + 1 + len(reward_values), "thing": 2}

    def build(key: Key) -> Networks:
        keys = jax.random.split(key)
        each = zip(inputs, keys, strict=True)
        return Networks(**{n: MLP(k, inputs[n], hidden, outputs[n], GAIN, "relu") for n, k in each})

    static = eqx.partition(build(jax.random.key(0)), eqx.is_array)[1]
    world = World(entities, num_agents, num_actions, tuple(reward_values), static)
    return world, lambda key: eqx.filter(build(key), eqx.is_array)


# --- what the networks read ----------------------------------------------------------------------


def rows_of(
    world: World,
    board: Board,
    action: Int[Array, "*batch agent"],
    is_legal: Bool[Array, "*batch agent"],
) -> Rows:
    """Boards and what everyone does there, as the networks read them."""
    does = _one_hot(action, world.num_actions) & board.here[..., None]
    kinds = _one_hot(jnp.asarray(world.entities.kind_of, jnp.int32), len(world.entities.kinds))
    with_players = _same_cell(board.players, board.players) & board.here[..., None, :]
    with_things = _same_cell(board.players, board.things) & board.there[..., None, :]
    on_my_cell = jnp.any(with_things[..., None] & _over(kinds, with_things.ndim + 1), axis=-2)
    player = [does, is_legal[..., None], board.here[..., None], on_my_cell, _counted(with_players, does)]
    at_thing = jnp.swapaxes(with_things, -1, -2) & board.here[..., None, :]
    of_kind = jnp.broadcast_to(_over(kinds, board.there.ndim + 1), (*board.there.shape, kinds.shape[-1]))
    thing = [of_kind, board.there[..., None], _counted(at_thing, does)]
    return Rows(_joined(player), _joined(thing))


def _one_hot(index: Array, count: int) -> Array:
    return jax.nn.one_hot(index, count, dtype=bool)


def _over(x: Array, ndim: int) -> Array:
    return x.reshape((1,) * (ndim - x.ndim) + x.shape)


def _same_cell(a: Int[Array, "*batch one"], b: Int[Array, "*batch other"]) -> Bool[Array, "*batch one other"]:
    return a[..., :, None] == b[..., None, :]


def _counted(
    is_near: Bool[Array, "*batch one agent"], does: Bool[Array, "*batch agent action"]
) -> Bool[Array, "*batch one feature"]:
    """How many of the players near each do each action, as one-hot counts."""
    num_agents = does.shape[-2]
    counts = jnp.sum(is_near[..., None] & does[..., None, :, :], axis=-2)
    return _one_hot(counts, num_agents + 1).reshape(*counts.shape[:-1], -1)


def _joined(parts: list[Array]) -> Float[Array, "*rows feature"]:
    return jnp.concatenate([part.astype(jnp.float32) for part in parts], axis=-1)


# --- what they say -------------------------------------------------------------------------------


def foreseen(world: World, weights: PyTree, rows: Rows) -> Foreseen:
    """By one member's weights."""
    networks = eqx.combine(world.networks, weights)
    of_player, of_thing = networks.player(rows.player), networks.thing(rows.thing)
    choices = len(world.entities.steps) + 1
    return Foreseen(
        step=jax.nn.log_softmax(of_player[..., :choices], axis=-1),
        reward=jax.nn.log_softmax(of_player[..., choices:], axis=-1),
        there=jax.nn.log_softmax(of_thing, axis=-1),
    )


def draw(said: Foreseen, key: Key, first: int | Int[Array, ""] = 0) -> Drawn:
    """One next board from what was foretold, every player and thing by itself.

    Chance falls to players by where they sit after the `first`, so that who imagines may call itself first.
    """

    def drawn(key: Key, log_chance: Float[Array, "*batch one choice"], turn) -> Int[Array, "*batch one"]:
        noise = jnp.roll(jax.random.gumbel(key, log_chance.shape), turn, axis=-2)
        return jnp.argmax(log_chance + noise, axis=-1).astype(jnp.int32)

    keys = jax.random.split(key, 3)
    return Drawn(
        step=drawn(keys[0], said.step, first),
        reward=drawn(keys[1], said.reward, first),
        there=drawn(keys[2], said.there, 0) == 1,
    )


def disagreement(each: Foreseen, board: Board) -> Float[Array, "*batch"]:
    """How far members [member, ...] are apart, in nats: entropy of their mean less their mean entropy, added
    up over who and what is on the board."""

    def of_head(log_chance: Float[Array, "member *batch one choice"], counts: Bool[Array, "*batch one"]):
        mean = jnp.mean(jnp.exp(log_chance), axis=0)
        of_mean = -jnp.sum(mean * jnp.log(jnp.maximum(mean, 1e-12)), axis=-1)
        of_each = -jnp.mean(jnp.sum(jnp.exp(log_chance) * log_chance, axis=-1), axis=0)
        return jnp.sum(jnp.where(counts, of_mean - of_each, 0.0), axis=-1)

    here, there = board.here, board.there
    return of_head(each.step, here) + of_head(each.reward, here) + of_head(each.there, there)


def likeliest(said: Foreseen) -> Drawn:
    best = [jnp.argmax(x, axis=-1).astype(jnp.int32) for x in (said.step, said.reward, said.there)]
    return Drawn(best[0], best[1], best[2] == 1)


def next_board(world: World, board: Board, drawn: Drawn) -> Board:
    """Where everyone is then, and what is left; who had left stays gone, and so does what had vanished."""
    moved = board.players + jnp.asarray([*world.shift, 0])[drawn.step]
    return Board(
        players=jnp.where(board.here, moved, board.players),
        here=board.here & (drawn.step != world.leaving),
        things=board.things,
        there=board.there & drawn.there,
    )


def true_drawn(world: World, before: Board, after: Board, reward: Float[Array, "*batch agent"]) -> Drawn:
    """What did happen, in the same terms: the labels."""
    apart = after.players - before.players
    is_step = apart[..., None] == _over(jnp.asarray(world.shift), apart.ndim + 1)
    step = jnp.argmax(is_step, axis=-1).astype(jnp.int32)
    left = before.here & ~after.here
    values = jnp.asarray(world.reward_values, jnp.float32)
    nearest = jnp.argmin(jnp.abs(reward[..., None] - _over(values, reward.ndim + 1)), axis=-1)
    return Drawn(
        step=jnp.where(left, world.leaving, step),
        reward=nearest.astype(jnp.int32),
        there=after.there,
    )


# --- a learned game ------------------------------------------------------------------------------


def imagined_step(env: Environment, world: World, weights: PyTree, state: EnvState, action, key: Key):
    """As `env.step`, in one game, but by what a member foretells."""
    rows = rows_of(world, world.entities.read(state), action, _is_legal(env, state, action))
    return moved(world, state, action, draw(foreseen(world, weights, rows), key))


def imagined_by_some(
    env: Environment, world: World, weights: PyTree, state: EnvState, action, key: Key, first: Int[Array, ""]
):
    """The same by one of several members [member, ...], drawn by chance, and how far all of them disagree.

    Chance falls to players by where they sit after the `first`."""
    rows = rows_of(world, world.entities.read(state), action, _is_legal(env, state, action))
    each = jax.vmap(lambda one: foreseen(world, one, rows))(weights)
    member = jax.random.randint(stream(key, "member"), (), 0, each.step.shape[0])
    said = jax.tree.map(lambda x: x[member], each)
    drawn = draw(said, stream(key, "draw"), first)
    return *moved(world, state, action, drawn), disagreement(each, world.entities.read(state))


def _is_legal(env: Environment, state: EnvState, action: Int[Array, " agent"]) -> Bool[Array, " agent"]:
    return jnp.take_along_axis(env.view(state)[1], action[:, None], axis=1)[:, 0]


def moved(world: World, state: EnvState, action: Int[Array, " agent"], drawn: Drawn):
    """The game after what was drawn, state and TimeStep; a step onto no cell is not taken."""
    entities = world.entities
    board = entities.read(state)
    later = next_board(world, board, drawn)
    is_cell = (later.players >= 0) & (later.players < entities.num_cells)
    later = dataclasses.replace(later, players=jnp.where(is_cell, later.players, board.players))
    reward = jnp.where(board.here, jnp.asarray(world.reward_values, jnp.float32)[drawn.reward], 0.0)
    return entities.write(state, action, later, reward)
