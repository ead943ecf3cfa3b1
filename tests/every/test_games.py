"""What every catalogued game must pass, whoever wrote it."""

import dataclasses
import functools
import hashlib
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coplay.envs import ENVIRONMENTS, GAMES, IMPORTED, PRESETS, contract, grid, make_game
from coplay.envs.contract import COMPILE_FAST, random_legal
from coplay.envs.seats import shuffled
from tests.envs.walks import VARIANTS, equal, variant, walk

EVERY_GAME = [*ENVIRONMENTS, *PRESETS]
OF_OTHERS = [name for name in EVERY_GAME if PRESETS.get(name, (name, {}))[0] in IMPORTED]
PLAYED_OF_OTHERS = [
    "mpe:simple_spread",
    "mpe:simple_tag",
    "smax:3m",
    "smax:3s5z",
]  # the rest compile for long
PLAYED = [name for name in EVERY_GAME if name not in OF_OTHERS] + PLAYED_OF_OTHERS
ONE_OF_EACH = ["walls, early", "snowdrift", "coin game", "pennies, hidden time", "specialisation"]
REPEATED = [*ONE_OF_EACH, "mpe:simple_tag"]
WITH_OPTIONS = [
    "4x4, entities, early",
    "walls, entities",
    "five of different strength",
    "snowdrift, entities",
    "coin game, share",
    "pennies, hidden time",
    "specialisation, eight, shared",
]
REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("name", PLAYED)
def test_a_catalogued_game_keeps_the_contract_for_a_thousand_random_steps(name):
    contract.check(made(name))


@pytest.mark.parametrize("name", [name for name in OF_OTHERS if name not in PLAYED_OF_OTHERS])
def test_a_game_that_is_not_played_here_has_the_shapes_it_declares(name):
    contract.check_shapes(make_game(name), jax.random.key(0))


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_a_game_with_other_options_keeps_the_contract(name):
    contract.check(variant(name))


@pytest.mark.parametrize("name", ["4x4, entities, early", "coin game"])
def test_a_game_with_shuffled_seats_keeps_the_contract(name):
    contract.check(shuffled(variant(name)))


@pytest.mark.parametrize("name", EVERY_GAME)
def test_a_catalogued_game_says_what_it_is(name):
    assert GAMES[name].endswith(".")
    env = make_game(name)
    assert dataclasses.is_dataclass(env.options)
    assert env.ceiling is not None or env.package


@functools.cache
def made(name: str):
    """A variant of the walks, or a game of the catalogue."""
    return variant(name) if name in VARIANTS else make_game(name)


def short_walk(env, key):
    """Twelve random steps of one game: states and TimeSteps, [time, ...]."""

    def one_step(carry, key):
        state, before = carry
        action_key, step_key = jax.random.split(key)
        action = random_legal(before.legal, grid.random_words(action_key, env.num_agents))
        after = env.step(state, action, step_key)
        return after, after

    start_key, walk_key = jax.random.split(key)
    return jax.lax.scan(one_step, env.reset(start_key), jax.random.split(walk_key, 12))[1]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_mapped_games_equal_single_games_bit_for_bit(name):
    env = variant(name)
    keys = jax.random.split(jax.random.key(3), 64)

    def compare(keys):
        mapped = jax.vmap(lambda key: short_walk(env, key))(keys)
        single = jax.lax.map(lambda key: short_walk(env, key), keys)
        return equal(mapped, single)

    assert jax.jit(compare, compiler_options=COMPILE_FAST)(keys)


@pytest.mark.parametrize("name", ["mpe:simple_tag", "smax:3m"])
def test_mapped_games_of_others_equal_single_games_within_rounding(name):
    env = made(name)
    keys = jax.random.split(jax.random.key(3), 16)

    def both(keys):
        mapped = jax.vmap(lambda key: short_walk(env, key))(keys)
        return mapped, jax.lax.map(lambda key: short_walk(env, key), keys)

    assert_close(*jax.jit(both, compiler_options=COMPILE_FAST)(keys))


@pytest.mark.parametrize("name", [*REPEATED, "smax:3m"])
def test_a_compiled_game_equals_the_same_game_run_step_by_step(name):
    env = made(name)
    traces = []

    def counted(state, action, key):
        traces.append(1)
        return env.step(state, action, key)

    compiled = jax.jit(counted)
    pick = jax.jit(lambda legal, key: random_legal(legal, grid.random_words(key, env.num_agents)))
    state, timestep = jax.jit(env.reset)(jax.random.key(4))
    plain, plain_timestep = env.reset(jax.random.key(4))
    for step in range(6):
        if env.package:
            assert_close((state, timestep), (plain, plain_timestep))
        else:
            assert_same(state, timestep, plain, plain_timestep)
        key = jax.random.key(step)
        action = pick(timestep.legal, key)
        state, timestep = compiled(state, action, key)
        plain, plain_timestep = env.step(plain, action, key)
    assert len(traces) <= 2, "the game is compiled anew from step to step"


def assert_close(left, right):
    """Games of others: everything to the bit but fractions, which agree within 1e-5."""
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right), strict=True):
        tolerance = 1e-5 if np.asarray(a).dtype.kind == "f" else 0
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=jax.tree_util.keystr(path))


def assert_same(state, timestep, plain, plain_timestep):
    """States, masks and flags to the bit; rewards and observations within 1e-6."""
    for left, right in zip(jax.tree.leaves(state), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(left, right)
    for field in dataclasses.fields(timestep):
        left, right = getattr(timestep, field.name), getattr(plain_timestep, field.name)
        tolerance = 1e-6 if field.name in ("reward", "observation") else 0
        np.testing.assert_allclose(left, right, rtol=0, atol=tolerance, err_msg=field.name)


def digest(name: str) -> str:
    """Short walks of 16 games, boiled down to one text."""
    env = made(name)
    keys = jax.random.split(jax.random.key(5), 16)
    run = jax.jit(jax.vmap(lambda key: short_walk(env, key)), compiler_options=COMPILE_FAST)
    first, again = run(keys), run(keys)
    assert equal(first, again), f"{name} plays differently from the same key"
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(first))).hexdigest()


def test_the_same_key_and_actions_give_the_same_bits_twice_and_in_a_new_process():
    script = "import tests.conftest, tests.every.test_games as t; print(*map(t.digest, t.REPEATED))"
    child = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.split() == [digest(name) for name in REPEATED]


@pytest.mark.parametrize("name", VARIANTS)
def test_there_is_always_a_legal_action(name):
    legal = walk(name).rows["legal"]
    assert legal.any(axis=-1).all()
    assert legal[..., variant(name).neutral_action].all()


@pytest.mark.parametrize("name", VARIANTS)
def test_every_player_has_one_last_step(name):
    """Each player's last step is terminated or the game truncated, never both, and it happens once."""
    _, rows, _, played, _ = walk(name)
    terminated, truncated = rows["terminated"], rows["truncated"]
    leaves = (np.diff(terminated.astype(int), axis=1) == 1) & played[..., None]
    steps = played.sum(axis=1)
    ended = np.take_along_axis(terminated, steps[:, None, None], axis=1)[:, 0]
    cut = np.take_along_axis(truncated, steps[:, None], axis=1)
    assert (leaves.sum(axis=1) <= 1).all()
    assert (ended ^ cut).all()
    assert (steps <= variant(name).horizon).all()


def test_an_illegal_action_is_carried_out_and_recorded_as_stay():
    """Beside the contract's check: in a stag hunt, move by move, with the previous actions shown."""
    env = variant("4x4")
    step = jax.jit(jax.vmap(env.step, (None, 0, None)))
    state, timestep = jax.jit(env.reset)(jax.random.key(8))
    every = jnp.broadcast_to(jnp.arange(7)[:, None], (7, 4))  # row k: everyone plays k
    carried_out = jnp.where(timestep.legal.T, every, env.neutral_action)
    assert (every != carried_out).any()
    assert equal(step(state, every, jax.random.key(0)), step(state, carried_out, jax.random.key(0)))
