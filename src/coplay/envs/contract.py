"""What every game promises, checked: shapes, declared sizes, rewards, masks, departures and endings.

`check` walks through a game at random, illegal actions included, in one compiled program, and reads
the record in NumPy. A game that cannot be compiled is checked the same way under `jax.disable_jit()`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from coplay.envs import grid
from coplay.errors import BadInput
from coplay.types import Environment, EnvState, Key, Picture, TimeStep

KINDS = ("mixed-motive", "zero-sum", "cooperative")
TOLERANCE = 1e-5  # of a declared reward, and of what is computed twice
COMPILE_FAST = {"xla_backend_optimization_level": 0}  # a short walk takes less time than compiling it well


class ContractError(BadInput):
    """One sentence for each promise a game breaks."""


def check(env: Environment, steps: int = 1000, key: Key | None = None) -> None:
    """Raise a ContractError unless the game keeps its promises over `steps` random steps."""
    key = jax.random.key(0) if key is None else key
    check_shapes(env, key)
    walked = jax.jit(lambda key: walk(env, steps, key), compiler_options=COMPILE_FAST)(key)
    _raise(env, breaches(env, in_numpy(walked)))


def check_shapes(env: Environment, key: Key) -> None:
    """The part of it that needs no play: what the game declares, and the shapes and types it returns."""
    _raise(env, _wrong_declarations(env))
    _raise(env, _wrong_shapes(env, key))


def _raise(env: Environment, sentences: list[str]) -> None:
    if sentences:
        raise ContractError("\n".join(f"game {env.name!r}: {sentence}" for sentence in sentences))


# --- what it declares ----------------------------------------------------------------------------


def _wrong_declarations(env: Environment) -> list[str]:
    has_one_reward_rule = (env.reward_values is None) != (env.reward_range is None)
    board = int(np.prod(env.plane_shape)) if env.plane_shape else 0
    return _failed(
        (env.kind in KINDS, f"kind={env.kind!r} is not one of {', '.join(KINDS)}"),
        (env.num_agents >= 1, f"num_agents={env.num_agents} must be at least 1"),
        (env.horizon >= 1, f"horizon={env.horizon} must be at least 1"),
        (
            len(env.action_names) == env.num_actions,
            f"num_actions={env.num_actions}, but action_names has {len(env.action_names)} names",
        ),
        (
            0 <= env.neutral_action < env.num_actions,
            f"neutral_action={env.neutral_action} is not one of its {env.num_actions} actions",
        ),
        (len(env.goals.names) >= 1, "goals must name at least one goal"),
        (has_one_reward_rule, "either reward_values or reward_range must be declared, and not both"),
        (
            board <= env.observation_size,
            f"plane_shape={env.plane_shape} does not fit into observation_size={env.observation_size}",
        ),
    )


def _failed(*claims: tuple[bool | np.bool_, str]) -> list[str]:
    return [breach for holds, breach in claims if not holds]


# --- what it returns -----------------------------------------------------------------------------


def _wrong_shapes(env: Environment, key: Key) -> list[str]:
    """Shapes and types, found by tracing and without playing."""
    found: list[str] = []

    def look(key: Key) -> None:
        state, timestep = env.reset(key)
        next_state, next_timestep = env.step(state, jnp.zeros(env.num_agents, jnp.int32), key)
        found.extend(_wrong_timestep(env, "reset", timestep) + _wrong_timestep(env, "step", next_timestep))
        if _signature(state) != _signature(next_state):
            found.append("step returns a state of other shapes or types than reset does")
        if not found:
            found.extend(_wrong_helpers(env, state, timestep))

    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        look(key)
    else:
        jax.eval_shape(look, key)
    return found


def _wrong_timestep(env: Environment, source: str, timestep: TimeStep) -> list[str]:
    agents = env.num_agents
    promised = {
        "observation": ((agents, env.observation_size), jnp.float32),
        "legal": ((agents, env.num_actions), jnp.bool_),
        "reward": ((agents,), jnp.float32),
        "active": ((agents,), jnp.bool_),
        "terminated": ((agents,), jnp.bool_),
        "truncated": ((), jnp.bool_),
        "first": ((), jnp.bool_),
    }
    found = []
    for name, (shape, kind) in promised.items():
        value = getattr(timestep, name)
        if (value.shape, value.dtype) != (shape, kind):
            given, wanted = f"{value.dtype}{list(value.shape)}", f"{jnp.dtype(kind)}{list(shape)}"
            found.append(f"{source} gives {name} as {given}, not {wanted}")
    return found


def _signature(tree) -> tuple:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _wrong_helpers(env: Environment, state: EnvState, timestep: TimeStep) -> list[str]:
    """view, rename, split, draw and outcomes."""
    seen = (timestep.observation, timestep.legal)
    other_names = env.rename(state, jnp.arange(env.num_agents))
    parts = env.split(timestep.observation[0])
    counts = env.outcomes(state, state)
    return _failed(
        (
            _signature(tuple(env.view(state))) == _signature(seen),
            "view does not give observation and legal as reset does",
        ),
        (
            _signature(other_names) == _signature(state),
            "rename returns a state of other shapes or types than it was given",
        ),
        (isinstance(parts, dict) and bool(parts), "split must give the parts of a row by name"),
        (
            isinstance(counts, dict) and all(jnp.shape(count) == () for count in counts.values()),
            "outcomes must give numbers by name",
        ),
        *_picture_claims(env, env.draw(state)),
    )


def _picture_claims(env: Environment, picture: object) -> list[tuple[bool, str]]:
    if not isinstance(picture, Picture):
        return [(False, "draw must give a Picture")]
    players = (env.num_agents, 2)
    return [
        (picture.grid.shape == (2,), f"the picture's grid has shape {picture.grid.shape}, not (2,)"),
        (
            picture.players.shape == players,
            f"the picture's players have shape {picture.players.shape}, not {players}",
        ),
    ]


# --- what it does --------------------------------------------------------------------------------


class Record(NamedTuple):
    """One random walk, [time, ...]; `before` comes from a reset wherever a game had ended."""

    before: Any  # TimeStep; in NumPy once it is `Rows`
    after: Any
    obeys: Any  # an illegal action did what the neutral one does
    views: Any  # `view` shows what the step showed


class Rows(NamedTuple):
    """A TimeStep of NumPy arrays, [time, ...]."""

    observation: np.ndarray
    legal: np.ndarray
    reward: np.ndarray
    active: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    first: np.ndarray


def walk(env: Environment, steps: int, key: Key) -> Record:
    """Play at random; one action in four is drawn from all of them, legal or not."""

    def one_step(carry: tuple[EnvState, TimeStep], key: Key):
        state, before = carry
        action_key, step_key, reset_key = jax.random.split(key, 3)
        action = _random_actions(env, before.legal, action_key)
        next_state, after = env.step(state, action, step_key)
        carried_out = jnp.where(_chosen(before.legal, action), action, env.neutral_action)
        obeys = _equal((next_state, after), env.step(state, carried_out, step_key))
        views = _equal(env.view(next_state), (after.observation, after.legal))
        over = after.truncated | jnp.all(after.terminated)
        fresh = env.reset(reset_key)
        carry = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, (next_state, after))
        return carry, Record(before, after, obeys, views)

    start_key, walk_key = jax.random.split(key)
    return jax.lax.scan(one_step, env.reset(start_key), jax.random.split(walk_key, steps))[1]


def _random_actions(env: Environment, legal: Bool[Array, "agent action"], key: Key) -> Int[Array, " agent"]:
    words = grid.random_words(key, 3 * env.num_agents).reshape(3, env.num_agents)
    among_all = grid.draw_below(words[1], env.num_actions)
    return jnp.where(words[2] >> 30 == 0, among_all, random_legal(legal, words[0]))


def random_legal(legal: Bool[Array, "agent action"], words: jax.Array) -> Int[Array, " agent"]:
    """An action drawn uniformly from each row of legal ones, with one random word for each row."""
    number = grid.draw_below(words, jnp.sum(legal, axis=1))
    return jnp.argmax(jnp.cumsum(legal, axis=1) > number[:, None], axis=1).astype(jnp.int32)


def _chosen(legal: Bool[Array, "agent action"], action: Int[Array, " agent"]) -> Bool[Array, " agent"]:
    return jnp.any(legal & (action[:, None] == jnp.arange(legal.shape[1])[None, :]), axis=1)


def _equal(left, right) -> Bool[Array, ""]:
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return jnp.all(jnp.stack([jnp.all(_same(a, b)) for a, b in pairs]))


def _same(left: Array, right: Array) -> Bool[Array, "..."]:
    """Equal; fractions up to rounding, for a compiler may compute the same thing in two ways."""
    if jnp.issubdtype(left.dtype, jax.dtypes.prng_key):
        left, right = jax.random.key_data(left), jax.random.key_data(right)
    if jnp.issubdtype(left.dtype, jnp.floating):
        return jnp.isclose(left, right, rtol=TOLERANCE, atol=TOLERANCE)
    return left == right


def in_numpy(record: Record) -> Record:
    before, after = (
        Rows(*(np.asarray(getattr(rows, name)) for name in Rows._fields))
        for rows in (record.before, record.after)
    )
    return Record(before, after, np.asarray(record.obeys), np.asarray(record.views))


def breaches(env: Environment, record: Record) -> list[str]:
    """A sentence for each promise that the walk breaks."""
    return [
        *_wrong_values(env, record),
        *_wrong_starts(record),
        *_wrong_masks(env, record),
        *_wrong_departures(env, record),
        *_wrong_ends(env, record),
    ]


def _wrong_values(env: Environment, record: Record) -> list[str]:
    reward = record.after.reward
    return _failed(
        (
            np.isfinite(record.before.observation).all() and np.isfinite(record.after.observation).all(),
            "an observation is not finite",
        ),
        (np.isfinite(reward).all(), "a reward is not finite"),
        *_undeclared(env, reward[np.isfinite(reward)]),
        (record.views.all(), "view shows a state otherwise than step does"),
    )


def _undeclared(env: Environment, reward: np.ndarray) -> list[tuple[bool, str]]:
    if env.reward_values is not None:
        distance = np.abs(reward[:, None] - np.asarray(env.reward_values)[None, :]).min(axis=1)
        undeclared, rule = reward[distance > TOLERANCE], "is not in reward_values"
    else:
        low, high = env.reward_range or (-np.inf, np.inf)
        outside = (reward < low - TOLERANCE) | (reward > high + TOLERANCE)
        undeclared, rule = reward[outside], f"lies outside reward_range={env.reward_range}"
    return [(False, f"a reward of {undeclared[0]:g} {rule}")] if len(undeclared) else []


def _wrong_starts(record: Record) -> list[str]:
    start = Rows(*(column[record.before.first] for column in record.before))
    over = _over(record.after)
    return _failed(
        ((record.before.first == np.append(True, over[:-1])).all(), "reset does not set first"),
        (not record.after.first.any(), "step sets first, which is for reset"),
        ((start.reward == 0).all(), "reset gives a reward"),
        (start.active.all() and not start.terminated.any(), "reset starts with a player who has left"),
        (not start.truncated.any(), "reset sets truncated"),
    )


def _over(timestep: Rows) -> np.ndarray:
    return timestep.truncated | timestep.terminated.all(axis=-1)


def _wrong_masks(env: Environment, record: Record) -> list[str]:
    legal = np.concatenate([record.before.legal, record.after.legal])
    return _failed(
        (legal.any(axis=-1).all(), "a row of legal is all false"),
        (
            record.obeys.all(),
            f"an illegal action is not carried out as {env.action_names[env.neutral_action]!r}",
        ),
    )


def _wrong_departures(env: Environment, record: Record) -> list[str]:
    """The departed: inactive before a step of a game that goes on."""
    before, after = record.before, record.after
    departed = ~before.active
    only_neutral = np.arange(env.num_actions) == env.neutral_action
    return _failed(
        ((after.active != after.terminated)[~after.truncated].all(), "active and terminated disagree"),
        (not (after.active & after.terminated).any(), "a player is both active and terminated"),
        (not (departed & after.active).any(), "a player who left is active again"),
        ((after.reward[departed] == 0).all(), "a player who left is rewarded"),
        (
            (before.legal[departed] == only_neutral).all(),
            f"a player who left may do more than {env.action_names[env.neutral_action]!r}",
        ),
    )


def _wrong_ends(env: Environment, record: Record) -> list[str]:
    after, over = record.after, _over(record.after)
    leaves_nobody = (after.terminated | after.truncated[:, None])[over].all()
    starts = np.concatenate([[0], np.flatnonzero(over) + 1])
    lengths = np.diff(np.append(starts, len(over)))
    return _failed(
        (leaves_nobody, "a game ends without terminated or truncated for everyone"),
        (
            not (after.truncated & after.terminated.all(axis=-1)).any(),
            "a game that ended for everyone is also truncated",
        ),
        (env.can_truncate or not after.truncated.any(), "it is truncated although can_truncate is false"),
        (lengths.max() <= env.horizon, f"an episode is longer than horizon={env.horizon}"),
    )
