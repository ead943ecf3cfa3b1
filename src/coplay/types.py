"""The types that flow through coplay: from a game's step, through a decision, to a learner's update.

Axes always come in the order time, env, agent, then the thing itself. A game and a scripted rule
are written for one game; the batch appears where the rollout maps them.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

PyTree = Any
EnvState = Any  # belongs to its game; nobody else looks inside
Params = Any
Memory = Any
Key = Any  # a typed key from jax.random.key
Metrics = dict[str, Array]  # a scalar, or one value per agent

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def pytree(cls: type[T]) -> type[T]:
    """A frozen dataclass that JAX can map, scan and jit over.

    JAX takes trees apart and fills them with other things (shapes, batches, placements) on the way, so a
    tree is put together again without the constructor, whose annotations speak of one whole value.
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    def flatten(tree):
        return [(jax.tree_util.GetAttrKey(name), getattr(tree, name)) for name in names], None

    def unflatten(_, leaves):
        tree = object.__new__(cls)
        for name, leaf in zip(names, leaves, strict=True):
            object.__setattr__(tree, name, leaf)
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return cls


@pytree
class TimeStep:
    """What every agent sees after one step of the game."""

    observation: Float[Array, "*batch agent feature"]
    legal: Bool[Array, "*batch agent action"]
    reward: Float[Array, "*batch agent"]
    active: Bool[Array, "*batch agent"]  # still in the game; the departed keep their row, masked
    terminated: Bool[Array, "*batch agent"]  # this agent's game ended: nothing follows for it
    truncated: Bool[Array, "*batch"]  # we stopped watching: the future still has value
    first: Bool[Array, "*batch"]  # memory of the episode starts afresh here


@pytree
class Thoughts:
    """What players had in mind, for scores and pictures; () where nobody tells. Co-players are listed in the
    order they sit after a player, and a player that tells nothing has -1 or NaN in its place."""

    goal: Int[Array, "*batch agent"] | tuple[()] = ()  # what it is after, a place in env.goals
    belief: (
        Float[Array, "*batch agent other goal"] | tuple[()]
    ) = ()  # what others want; the rest to 1: nothing
    prediction: Float[Array, "*batch agent other action"] | tuple[()] = ()  # what they will do now


@pytree
class Decision:
    """What the agents did, and how likely they were to do it."""

    action: Int[Array, "*batch agent"]
    log_prob: Float[Array, "*batch agent"]
    policy: Float[Array, "*batch agent action"]  # probabilities, 0 where illegal
    notes: PyTree = ()  # what it was based on (beliefs, orders), for its own learning
    thoughts: Thoughts = Thoughts()


@pytree
class Transition:
    before: TimeStep
    decision: Decision
    after: TimeStep  # as the game left it, before any reset
    state: EnvState = ()  # of the game before and after, for who learns how it moves; () where nobody does
    next_state: EnvState = ()


@pytree
class Trajectory:
    """What one round of play collected."""

    steps: Transition  # [time, env, agent, ...]
    memory: Memory  # at the start of every sequence only, [time / length, env, ...]
    next: TimeStep  # [env, agent, ...]: where play goes on; after a reset, if the last step ended a game
    next_memory: Memory  # [env, ...]


@dataclasses.dataclass(frozen=True)
class Goals:
    """What a player of a game can be after, and how it shows. The functions speak of one player."""

    names: tuple[str, ...]
    features: int  # numbers that describe one goal to a network
    look: (
        Callable | None
    )  # observation row -> possible [goal], description [goal, feature]; None: rows hide it
    shown: Callable | None  # row, action, reward, row after -> the goal this step gave away, -1 for none
    tried: Callable | None = None  # a legal action -> the goal it tries for, -1 for none; None: as shown
    aimless: tuple[int, ...] = ()  # goals that ask for nothing, and
    idle: tuple[int, ...] = ()  # the actions that serve them, if legal
    away: tuple[int, int] | None = None  # which number of a description is the way there, steps per unit


def plain_goals(names: tuple[str, ...], shown: Callable) -> Goals:
    """Goals that are always possible and differ only by name."""
    count = len(names)
    return Goals(names, count, lambda row: (jnp.ones(count, bool), jnp.eye(count)), shown)


@pytree
class Board:
    """A game as things on cells, numbered row by row."""

    players: Int[Array, "*batch agent"]  # cell of each
    here: Bool[Array, "*batch agent"]  # has not left
    things: Int[Array, "*batch thing"]  # cell of each
    there: Bool[Array, "*batch thing"]  # has not vanished


@dataclasses.dataclass(frozen=True)
class Entities:
    """How a game is read as a board and made from one, for models that learn how it moves. One game."""

    width: int
    num_cells: int
    steps: tuple[tuple[int, int], ...]  # rows and columns a move can take a player; to stay is the first
    kinds: tuple[str, ...]
    kind_of: tuple[int, ...]  # each thing's place in `kinds`
    read: Callable  # state -> Board
    write: Callable  # state, action, Board, reward -> state, TimeStep; clocks and the like go by rule
    possible: Callable  # state, Board -> could the game be there one move later, whatever everyone does?


@dataclasses.dataclass(frozen=True)
class Environment:
    """A game: how it starts and moves, and what it declares about itself."""

    name: str
    options: Any  # the frozen dataclass of settings it was made from
    kind: Literal["mixed-motive", "zero-sum", "cooperative"]
    num_agents: int
    num_actions: int
    observation_size: int
    action_names: tuple[str, ...]
    neutral_action: int  # what an illegal action is carried out as
    goals: Goals
    horizon: int  # no episode is longer
    reset: Callable[[Key], tuple[EnvState, TimeStep]]
    step: Callable[[EnvState, Any, Key], tuple[EnvState, TimeStep]]
    rename: Callable[[EnvState, Any], EnvState]  # new seat i is the old seat order[i]
    view: Callable[
        [EnvState], tuple[Any, Any]
    ]  # what everyone sees in a state (observation) and may do (legal)
    split: Callable[[Any], dict[str, Any]]  # an observation row's parts by name
    draw: Callable[[EnvState], "Picture"]  # for people
    outcomes: Callable[[EnvState, EnvState], dict[str, Any]]  # what one step brought: counts by name
    plane_shape: tuple[int, int, int] | None = None  # rows begin with such a board, for CNNs
    reward_values: tuple[float, ...] | None = None  # every reward is one of these, or
    reward_range: tuple[float, float] | None = None  # lies between these
    ceiling: float | None = None  # the highest mean return per player
    random_return: float | None = None  # mean return per player of uniform legal play
    can_truncate: bool = False
    symmetry: str = "every renaming of the players"
    alike: tuple[int, ...] = ()  # a number for each seat; seats of one number are alike; (): all are
    starts: int | None = None  # how many different starts there are, where they are few
    pays: tuple[tuple[str, float], ...] = ()  # an outcome and what it pays in all; (): nothing has a price
    by_touch: bool = (
        False  # what lies on the board goes only where somebody stands, before a step or after it
    )
    apart: tuple[str, ...] = ()  # kinds of things on the board of which no two share a cell
    mirrored: bool = False  # random play looks the same in a mirror: no side of the board is favoured
    package: str = ""  # whose game it is, by the package's name; "" for ours
    entities: Entities | None = None  # None for games that are no board of things


@pytree
class Picture:
    """A board to look at: things on cells, by the name of their kind."""

    grid: Int[Array, "*batch 2"]  # height, width
    cells: dict[str, Int[Array, "*batch thing 2"]]  # row, column of each; (-1, -1) where absent
    players: Int[Array, "*batch agent 2"]


class Stage(NamedTuple):
    """One part of learning, with state of its own."""

    init: Callable  # params -> learner
    update: Callable  # params, learner, trajectory, key -> params, learner, Metrics


# What a player must have at hand when it plays, beside its weights.
DECENTRALISED = "decentralised"  # its own observation, and who it is
WITH_MEMORY = "decentralised + memory"  # and what it has seen of this game
COMMUNICATES = "communicates"  # and what its fellows see
SEES_ALL = "sees the game"  # everyone's rows, or the game's own state
NEEDS = (DECENTRALISED, WITH_MEMORY, COMMUNICATES, SEES_ALL)  # from little to much

# Where weights may be felt.
ACT = "act"  # in what is done while learning
PLAY = "play"  # in what is done, or told, when it counts
LEARN = "learn"  # in what other weights learn


class Algorithm(NamedTuple):
    """How some seats of a game are played and what is learned from it."""

    init: Callable  # key -> params
    remember: Callable  # num_envs -> memory (recurrent state, beliefs)
    act: Callable  # params, memory, timestep, state, key -> memory, Decision of its seats
    watch: Callable  # params, memory, transition -> memory (what happened, before any reset)
    learn: Stage
    play: Callable | None = None  # acts when it counts, if otherwise than while learning
    told: Callable | None = None  # memory, goals [env, agent] -> memory: somebody says what all are after
    begin: Callable | None = (
        None  # params -> params, once before training: parts learned elsewhere are put in
    )
    reads_states: bool = False  # its learning asks for the game's own states with every step
    needs: str = DECENTRALISED  # at hand when it plays
    reaches: tuple[tuple[str, str], ...] = ()  # some of its weights, by name, and where they must be felt
    still: tuple[str, ...] = ()  # networks, or parts of them (generator/trunk), that are to stay as they are
    judged: tuple[
        str, ...
    ] = ()  # networks that learn nothing from the games they are judged on, the first fifth
    in_turns: bool = False  # seats learn one after another, each minding how those before it have moved


def as_played(algorithm: Algorithm) -> Algorithm:
    """The player as it is scored and as others meet it."""
    return algorithm._replace(act=algorithm.play) if algorithm.play else algorithm


def begun(algorithm: Algorithm, params: Params) -> Params:
    """Weights as training starts from them."""
    return algorithm.begin(params) if algorithm.begin else params


@pytree
class Seated:
    """Weights or learner state: `own` has one row per seat, `common` is shared by all of them."""

    own: PyTree
    common: PyTree


@pytree
class Actor:
    """Where play stands between rounds."""

    memory: Memory
    env_state: EnvState
    timestep: TimeStep
    episode_return: Float[Array, "*batch agent"]
    episode_length: Int[Array, "*batch"]


@pytree
class TrainState:
    """Everything a run needs to go on."""

    params: Params
    learner: PyTree
    actor: Actor
    key: Key
    updates: Int[Array, "*batch"]  # rounds of play learned from so far


@functools.partial(jax.jit, inline=True)
def stacked(trees: Sequence[PyTree]) -> PyTree:
    """Trees of the same shapes as one, [tree, ...]; by one program, not one for every shape of a leaf."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def stream(key: Key, name: str) -> Key:
    """The random stream called `name`: leaving one module out changes no other module's draws."""
    return jax.random.fold_in(key, zlib.crc32(name.encode()))
