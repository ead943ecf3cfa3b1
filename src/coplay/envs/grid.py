"""What the grid games share: moves, chance without names, views in cyclic order.

Cells are numbered row by row. Nothing here looks at a player's index except to count on from it in
a circle, so every observer sees itself first and the others in the order they sit.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

UP, DOWN, LEFT, RIGHT, STAY = range(5)
MOVE_NAMES = ("up", "down", "left", "right", "stay")
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])  # row, column


def draw_below(bits: jax.Array, count: int | Int[Array, ""] | Int[Array, " n"]) -> Int[Array, " n"]:
    """Whole numbers below `count`, one per random word; the bias is under count / 2**24."""
    unit = (bits >> 8).astype(jnp.float32) * (1.0 / (1 << 24))
    return jnp.floor(unit * count).astype(jnp.int32)


def draw_distinct(bits: jax.Array, count: Int[Array, ""]) -> Int[Array, " n"]:
    """Distinct whole numbers below `count`, uniform over arrangements, without sorting the board.

    The k-th number is drawn among those left and stepped past each smaller one already taken; the
    taken ones are kept in order by an insertion, which for a handful of prey beats any shuffle.
    """
    taken: list[Array] = []  # ascending
    drawn: list[Array] = []
    for k in range(bits.shape[0]):
        number = draw_below(bits[k][None], count - k)[0]
        for smaller in taken:
            number = number + (number >= smaller)
        drawn.append(number)
        taken = _insert(taken, number)
    return jnp.stack(drawn)


def _insert(ascending: list[Array], number: Array) -> list[Array]:
    out = []
    for other in ascending:
        out.append(jnp.minimum(other, number))
        number = jnp.maximum(other, number)
    return [*out, number]


@functools.cache
def cyclic_order(num_agents: int) -> np.ndarray:
    """Row i: the seats in the order player i sees them, itself first."""
    seats = np.arange(num_agents)
    return (seats[:, None] + seats[None, :]) % num_agents


def in_circle(of_players: Shaped[Array, "agent *thing"]) -> Shaped[Array, "agent agent *thing"]:
    """Row i: everybody's entries in the order player i sees them, itself first.

    Built from slices, because a gather costs more on a CPU than all the rest of a step.
    """
    twice = jnp.concatenate([of_players, of_players])
    num_agents = of_players.shape[0]
    return jnp.stack([twice[start : start + num_agents] for start in range(num_agents)])


def rows_and_columns(cell: Int[Array, "*shape"], size: int) -> Int[Array, "*shape 2"]:
    return jnp.stack([cell // size, cell % size], axis=-1)


def open_moves(cell: Int[Array, " agent"], size: int) -> Bool[Array, "agent 4"]:
    """Which of the four moves stay on an empty board."""
    row, column = cell // size, cell % size
    return jnp.stack([row > 0, row < size - 1, column > 0, column < size - 1], axis=-1)


def moved(cell: Int[Array, " agent"], action: Int[Array, " agent"], size: int) -> Int[Array, " agent"]:
    """Where each player stands after its (legal) action; anything but a move stays put."""
    step = jnp.where(action == UP, -size, 0) + jnp.where(action == DOWN, size, 0)
    step = step + jnp.where(action == LEFT, -1, 0) + jnp.where(action == RIGHT, 1, 0)
    return cell + step


def planes(
    cell: Int[Array, " thing"], present: Bool[Array, " thing"], num_cells: int
) -> Bool[Array, "thing cell"]:
    """One board per thing, true where it stands."""
    return (cell[:, None] == jnp.arange(num_cells)[None, :]) & present[:, None]


def previous_actions(action: Int[Array, " agent"], num_actions: int) -> Float[Array, "agent feature"]:
    """Everyone's last action as one-hot rows, own first."""
    seen = in_circle(action)
    one_hot = seen[..., None] == jnp.arange(num_actions)[None, None, :]
    return one_hot.reshape(seen.shape[0], -1).astype(jnp.float32)


def cells_or_nowhere(
    cell: Int[Array, " thing"], present: Bool[Array, " thing"], size: int
) -> Int[Array, "thing 2"]:
    """Row and column of each thing, (-1, -1) for those that are gone: for pictures."""
    return jnp.where(present[:, None], rows_and_columns(cell, size), -1)


def random_words(key: jax.Array, count: int) -> jax.Array:
    """Uniform words from a key that is spent here: a counter, mixed with each word of the key.

    The mixer is the finaliser of MurmurHash3. Games draw a handful of words a step from a key that
    threefry has already made; hashing it again with threefry would cost more than the game.
    """
    words = jnp.arange(1, count + 1, dtype=jnp.uint32) * jnp.uint32(0x9E3779B9)
    for part in jax.random.key_data(key)[::-1]:
        words = words ^ part
        words = (words ^ (words >> 16)) * jnp.uint32(0x85EBCA6B)
        words = (words ^ (words >> 13)) * jnp.uint32(0xC2B2AE35)
        words = words ^ (words >> 16)
    return words


def hot(features: Int[Array, "agent hot"], size: int) -> Bool[Array, "agent size"]:
    """Rows that are true at the given features; a negative one is nowhere.

    One comparison per hot feature keeps the row a single loop for the compiler. Joining planes and
    one-hot blocks would cost a branch for every number.
    """
    rows = jnp.zeros((features.shape[0], size), bool)
    for column in range(features.shape[1]):
        rows = rows | (features[:, column, None] == jnp.arange(size)[None, :])
    return rows


def entities(
    player: Int[Array, " agent"],
    is_here: Bool[Array, " agent"],
    thing: Int[Array, " thing"],
    is_there: Bool[Array, " thing"],
    size: int,
) -> Float[Array, "agent feature"]:
    """Own row and column; then, for the other players in cyclic order and for the things, all row offsets,
    all column offsets and all presences. Everything is scaled by the board's size; the absent are zeros."""
    row, column = player // size, player % size
    present = _others_and(is_here, is_there)
    rows = _others_and(row, thing // size) - row[:, None]
    columns = _others_and(column, thing % size) - column[:, None]
    parts = [
        jnp.stack([row, column], axis=1) * (1.0 / size),
        jnp.where(present, rows, 0) * (1.0 / size),
        jnp.where(present, columns, 0) * (1.0 / size),
        present,
    ]
    return jnp.concatenate([part.astype(jnp.float32) for part in parts], axis=1)


def _others_and(of_players: Shaped[Array, " agent"], of_things: Shaped[Array, " thing"]):
    num_agents = of_players.shape[0]
    things = jnp.broadcast_to(of_things[None], (num_agents, *of_things.shape))
    return jnp.concatenate([in_circle(of_players)[:, 1:], things], axis=1)


def entities_size(num_agents: int, num_things: int) -> int:
    return 2 + 3 * (num_agents - 1 + num_things)


def split_entities(part: Float[Array, " feature"], size: int) -> Bool[Array, "thing cell"]:
    """One observer's `entities` as boards: itself, the others, then the things."""
    return planes(*entity_cells(part, size), size**2)


def entity_cells(
    part: Float[Array, " feature"], size: int
) -> tuple[Int[Array, " thing"], Bool[Array, " thing"]]:
    """Where the observer, the others and the things of one observer's `entities` are, and which are there."""
    own = jnp.round(part[:2] * size).astype(jnp.int32)
    rows, columns, present = part[2:].reshape(3, -1)
    place = own[0] + jnp.round(rows * size).astype(jnp.int32)
    place = place * size + own[1] + jnp.round(columns * size).astype(jnp.int32)
    cell = jnp.concatenate([(own[0] * size + own[1])[None], place])
    return cell, jnp.concatenate([jnp.ones(1, bool), present > 0.5])
