"""A prior over subgoals: what a player could be after, by what it sees at one moment, as a few numbers.

One network reads a player's row and says where the numbers may be (a Gaussian); two read them back, as the
boards that the player sees and as what it does next. One of the two shapes the numbers (`objective`), the
other only reads them, so that the two can be compared.
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from coplay.nets.mlp import MLP
from coplay.opponents.goal_policy import NEVER
from coplay.opponents.subgoals import GAIN, Subgoal
from coplay.types import Environment, Key, PyTree

Objective = Literal["reconstruction", "action"]
READERS: dict[Objective, str] = {"reconstruction": "board", "action": "act"}  # who reads them back
NO_BOARDS = ("previous", "time")  # parts of a row whose shape may be that of a board by chance


class PriorModel(NamedTuple):
    """The shape of the networks; weights come separately."""

    env: Environment
    size: int  # numbers
    objective: Objective
    networks: Any  # "embed", "board" and "act", without arrays


def prior_model(env: Environment, size: int, hidden: tuple[int, ...], objective: Objective):
    """The model, and a function from a key to its weights."""
    inputs = env.observation_size + env.num_actions + len(env.goals.names) * env.goals.features
    row = jax.ShapeDtypeStruct((env.observation_size,), jnp.float32)
    cells = jax.eval_shape(lambda x: boards(env, x), row).size

    def build(key: Key) -> dict[str, Any]:
        embed_key, board_key, act_key = jax.random.split(key, 3)
        return {
            "embed": MLP(embed_key, inputs, hidden, 2 * size, GAIN),
            "board": MLP(board_key, size, hidden, cells, GAIN),
            "act": MLP(act_key, size, hidden, env.num_actions, GAIN),
        }

    static = eqx.partition(build(jax.random.key(0)), eqx.is_array)[1]
    return PriorModel(env, size, objective, static), lambda key: eqx.filter(build(key), eqx.is_array)


def boards(env: Environment, row: Float[Array, " feature"]) -> Float[Array, "channel row column"]:
    """What a player's row shows of the board, one part after the other."""
    parts = board_parts(env, row)
    square = parts["self"].shape
    return jnp.concatenate([x.reshape(-1, *square) for x in parts.values()]).astype(jnp.float32)


def board_parts(env: Environment, row: Float[Array, " feature"]) -> dict[str, Array]:
    """Parts of a player's row that show the board, by name: where it stands itself (`self`), and all that
    has as many cells. Previous actions and the clock are not of it; a game without cells has none."""
    seen = env.split(row)
    if "self" not in seen or seen["self"].ndim != 2:
        return {}
    square = seen["self"].shape
    return {name: x for name, x in seen.items() if name not in NO_BOARDS and x.shape[-2:] == square}


def embedded(model: PriorModel, weights: PyTree, seen: Float[Array, "*batch feature"]) -> Subgoal:
    """Where the numbers may be of a player that sees this."""
    mean, log_std = jnp.split(eqx.combine(model.networks["embed"], weights["embed"])(seen), 2, axis=-1)
    return Subgoal(mean, jnp.clip(log_std, -5.0, 2.0))


def board_logits(model: PriorModel, weights: PyTree, numbers: Float[Array, "*batch number"]):
    """Of every cell of every board: that something is there."""
    return eqx.combine(model.networks["board"], weights["board"])(_read(model, "reconstruction", numbers))


def action_chances(
    model: PriorModel,
    weights: PyTree,
    numbers: Float[Array, "*batch number"],
    legal: Bool[Array, "*batch action"],
) -> Float[Array, "*batch action"]:
    """Log probabilities of what the player does next, by these numbers alone."""
    logits = eqx.combine(model.networks["act"], weights["act"])(_read(model, "action", numbers))
    return jax.nn.log_softmax(jnp.where(legal, logits, NEVER), axis=-1)


def _read(model: PriorModel, what: Objective, numbers: Array) -> Array:
    """Who does not shape the numbers takes them as they are."""
    return numbers if model.objective == what else jax.lax.stop_gradient(numbers)
