"""A contract is worth what it catches: a good walk passes, and each way to break a promise is named."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coplay.envs import contract, matrix
from coplay.envs.contract import ContractError, Record, breaches, check, in_numpy
from coplay.types import Picture, plain_goals
from tests.envs.walks import variant

CHICKEN = matrix.make(game="chicken", rounds=5)


@pytest.fixture(scope="module")
def hunt() -> Record:
    """200 steps of a stag hunt in NumPy, where players leave at different times."""
    env = variant("4x4, entities, early")
    return in_numpy(jax.jit(lambda key: contract.walk(env, 200, key))(jax.random.key(0)))


def changed(record: Record, which: str, field: str, change) -> Record:
    """The record with one column changed; `change` gets a copy and the record."""
    rows = getattr(record, which)
    column = getattr(rows, field).copy()
    change(column, record)
    return record._replace(**{which: rows._replace(**{field: column})})


def departed(record: Record) -> tuple:
    """Time and seat of somebody who left and whose game went on for another step."""
    return tuple(np.argwhere(~record.before.active)[0])


def over(record: Record) -> int:
    return int(np.argwhere(record.after.terminated.all(axis=-1))[0, 0])


def put(value, where):
    """A change: this value at that place of the column."""

    def change(column, record):
        column[where(record) if callable(where) else where] = value

    return change


def test_a_good_walk_breaks_nothing(hunt):
    assert breaches(variant("4x4, entities, early"), hunt) == []
    assert (~hunt.before.active).any()  # so that the tests below have somebody to tamper with


@pytest.mark.parametrize(
    ("which", "field", "change", "sentence"),
    [
        ("after", "observation", put(np.nan, (3, 1, 0)), "an observation is not finite"),
        ("after", "reward", put(np.inf, (3, 1)), "a reward is not finite"),
        ("after", "reward", put(0.77, (3, 1)), "a reward of 0.77 is not in reward_values"),
        ("before", "first", put(False, 0), "reset does not set first"),
        ("after", "first", put(True, 3), "step sets first, which is for reset"),
        ("before", "reward", put(1.0, (0, 2)), "reset gives a reward"),
        ("before", "active", put(False, (0, 2)), "reset starts with a player who has left"),
        ("before", "truncated", put(True, 0), "reset sets truncated"),
        ("after", "legal", put(False, (3, 1)), "a row of legal is all false"),
        ("after", "active", put(True, departed), "a player who left is active again"),
        ("after", "reward", put(1.0, departed), "a player who left is rewarded"),
        ("before", "legal", put(True, departed), "a player who left may do more than 'stay'"),
        ("after", "terminated", put(True, (0, 0)), "active and terminated disagree"),
        ("after", "truncated", put(True, over), "a game that ended for everyone is also truncated"),
        ("after", "truncated", put(True, over), "it is truncated although can_truncate is false"),
        ("after", "terminated", put(False, ...), "an episode is longer than horizon=35"),
    ],
)
def test_a_broken_promise_is_named(hunt, which, field, change, sentence):
    assert sentence in breaches(variant("4x4, entities, early"), changed(hunt, which, field, change))


def test_an_illegal_action_that_does_something_is_named(hunt):
    obeys = hunt.obeys.copy()
    obeys[5] = False
    found = breaches(variant("4x4, entities, early"), hunt._replace(obeys=obeys))
    assert found == ["an illegal action is not carried out as 'stay'"]


def test_a_reward_beyond_the_range_is_named(hunt):
    env = dataclasses.replace(variant("4x4, entities, early"), reward_values=None, reward_range=(0.0, 0.9))
    assert breaches(env, hunt) == ["a reward of 1 lies outside reward_range=(0.0, 0.9)"]


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"num_actions": 3}, "num_actions=3, but action_names has 2 names"),
        ({"neutral_action": 2}, "neutral_action=2 is not one of its 2 actions"),
        ({"goals": plain_goals((), shown=lambda *seen: 0)}, "goals must name at least one goal"),
        ({"reward_range": (0.0, 1.0)}, "either reward_values or reward_range must be declared, and not both"),
        ({"reward_values": None}, "either reward_values or reward_range must be declared, and not both"),
        ({"plane_shape": (3, 3, 1)}, "plane_shape=(3, 3, 1) does not fit into observation_size=7"),
        ({"horizon": 0}, "horizon=0 must be at least 1"),
    ],
)
def test_a_declaration_that_cannot_be_is_named(declared, sentence):
    with pytest.raises(ContractError) as error:
        check(dataclasses.replace(CHICKEN, **declared))
    assert str(error.value) == f"game 'matrix': {sentence}"


def wide(state, action, key):
    state, after = CHICKEN.step(state, action, key)
    return state, dataclasses.replace(after, observation=jnp.concatenate([after.observation] * 2, axis=1))


def growing(state, action, key):
    state, after = CHICKEN.step(state, action, key)
    return dataclasses.replace(state, time=jnp.int16(1)), after


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"observation_size": 8}, "reset gives observation as float32[2, 7], not float32[2, 8]"),
        ({"step": wide}, "step gives observation as float32[2, 14], not float32[2, 7]"),
        ({"step": growing}, "step returns a state of other shapes or types than reset does"),
        (
            {"view": lambda state: (state.last[:, None] * 1.0, state.matcher)},
            "view does not give observation and legal as reset does",
        ),
        (
            {"rename": lambda state, order: state.last[order]},
            "rename returns a state of other shapes or types than it was given",
        ),
        ({"split": lambda row: {}}, "split must give the parts of a row by name"),
        ({"outcomes": lambda before, after: {"last": after.last}}, "outcomes must give numbers by name"),
        ({"draw": lambda state: SimpleNamespace()}, "draw must give a Picture"),
        (
            {"draw": lambda state: Picture(jnp.array([2, 2]), {}, jnp.zeros((3, 2), jnp.int32))},
            "the picture's players have shape (3, 2), not (2, 2)",
        ),
    ],
)
def test_a_wrong_shape_is_named_before_anything_is_played(parts, sentence):
    with pytest.raises(ContractError) as error:
        check(dataclasses.replace(CHICKEN, **parts))
    assert f"game 'matrix': {sentence}" in str(error.value).splitlines()


def test_a_view_that_shows_something_else_is_named():
    def flattering(state):
        observation, legal = CHICKEN.view(state)
        return observation + 1, legal

    with pytest.raises(ContractError, match="view shows a state otherwise than step does"):
        check(dataclasses.replace(CHICKEN, view=flattering), steps=20)


def test_an_illegal_action_that_is_carried_out_is_caught_in_play():
    def masked(timestep):
        return dataclasses.replace(timestep, legal=timestep.legal.at[:, 1].set(False))

    env = dataclasses.replace(
        CHICKEN,
        reset=lambda key: (lambda state, first: (state, masked(first)))(*CHICKEN.reset(key)),
        step=lambda s, a, k: (lambda state, after: (state, masked(after)))(*CHICKEN.step(s, a, k)),
        view=lambda state: (CHICKEN.view(state)[0], CHICKEN.view(state)[1].at[:, 1].set(False)),
    )
    with pytest.raises(ContractError, match="an illegal action is not carried out as 'swerve'"):
        check(env, steps=50)


def test_a_game_outside_jit_is_checked_all_the_same():
    def step(state, action, key):
        np.asarray(action)  # fails while tracing
        return CHICKEN.step(state, action, key)

    env = dataclasses.replace(CHICKEN, step=step, horizon=3)
    with jax.disable_jit(), pytest.raises(ContractError) as error:
        check(env, steps=5)
    assert str(error.value) == "game 'matrix': an episode is longer than horizon=3"
