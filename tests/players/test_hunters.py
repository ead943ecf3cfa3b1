"""The scripted hunters of the stag hunt: what they do on hand-made boards, and what they earn."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.envs import stag_hunt
from coplay.players.scripted import random_player, scripted
from coplay.players.stag_hunt import fickle, nearest_hare, nearest_stag, optimum, reciprocator, waiter
from tests.players.play import (
    assert_mean,
    compiled,
    guess,
    keep_all,
    play,
    policy_of,
    returns,
    returns_of_casts,
)

UP, DOWN, LEFT, RIGHT, STAY, HUNT_STAG, HUNT_HARE = range(7)
STAG, HARE = 0, 1


@functools.cache
def game(preset, **options):
    return stag_hunt.make(**stag_hunt.PRESETS[preset], **options)


# --- on hand-made boards -------------------------------------------------------------------------


def board(env, players, stags, hares):
    """A state and what is seen of it, with everything on the cells given as (row, column)."""
    size = env.options.size
    state, _ = compiled(env.reset)(jax.random.key(0))
    state = dataclasses.replace(
        state,
        players=cells(players, size),
        stags=cells(stags, size),
        hares=cells(hares, size),
    )
    return look(env, state)


def look(env, state):
    """The state, and what is seen of it, after everyone stays for a step: nothing moves but the clock."""
    return step(env, state, [STAY] * env.num_agents)


def step(env, state, actions):
    return compiled(env.step)(state, jnp.array(actions), jax.random.key(0))


def cells(places, size):
    return jnp.array([row * size + column for row, column in places], jnp.int32)


PLACES = {
    "players": [(1, 1), (3, 3), (3, 3), (0, 0)],
    "stags": [(3, 2)],
    "hares": [(1, 3), (3, 1), (0, 3), (0, 2)],
}


@pytest.mark.parametrize("observation", ["board", "entities"])
def test_a_tie_between_targets_is_drawn_before_the_moves_to_them(observation):
    env = game("4h1s_4x4", observation=observation)
    _, timestep = board(env, **PLACES)
    # From (1, 1) three hares are two steps away: (1, 3) by right, (3, 1) by down, (0, 2) by up or right.
    # right: 1/3 + 1/3 * 1/2 = 1/2; down: 1/3; up: 1/6. The stag at (3, 2) is reached by down or right.
    assert_allclose(policy_of(nearest_hare(env), timestep), [1 / 6, 1 / 3, 0, 1 / 2, 0, 0, 0], atol=1e-6)
    assert_allclose(policy_of(nearest_stag(env), timestep), [0, 0.5, 0, 0.5, 0, 0, 0], atol=1e-6)


def test_hunters_turn_to_the_other_prey_when_theirs_is_gone():
    env = game("4h1s_4x4")
    state, _ = board(env, **PLACES)
    _, no_stag = look(env, dataclasses.replace(state, stag_alive=jnp.zeros(1, bool)))
    _, no_hare = look(env, dataclasses.replace(state, hare_alive=jnp.zeros(4, bool)))
    ns, nh = nearest_stag(env), nearest_hare(env)
    assert_allclose(policy_of(ns, no_stag), policy_of(nh, no_stag))
    assert_allclose(policy_of(nh, no_hare), policy_of(ns, no_hare))
    assert ns.goal(0, no_hare.observation[0]) == STAG
    assert ns.goal(0, no_stag.observation[0]) == HARE
    assert nh.goal(0, no_stag.observation[0]) == HARE
    assert nh.goal(0, no_hare.observation[0]) == STAG


def test_at_its_prey_a_hunter_hunts_and_a_waiter_waits_for_company():
    env = game("4h1s_4x4")
    alone = {**PLACES, "players": [(3, 2), (3, 3), (0, 3), (0, 0)]}
    in_company = {**PLACES, "players": [(3, 2), (3, 2), (0, 3), (0, 0)]}
    _, lonely = board(env, **alone)
    _, joined = board(env, **in_company)
    patient = waiter(env, k=2)
    assert policy_of(nearest_stag(env), lonely)[HUNT_STAG] == 1
    assert policy_of(nearest_hare(env), lonely, seat=2)[HUNT_HARE] == 1
    assert policy_of(patient, lonely)[STAY] == 1
    assert policy_of(patient, joined)[HUNT_STAG] == 1
    # After two steps alone the latent is 2, and it goes for the hare at (3, 1), one step to the left.
    one = compiled(patient.advance)(jnp.int32(0), lonely.observation[0], lonely.observation[0])
    two = compiled(patient.advance)(jnp.int32(1), lonely.observation[0], lonely.observation[0])
    assert_allclose(one, [0, 1, 0])
    assert_allclose(two, [0, 0, 1])
    assert policy_of(patient, lonely, latent=2)[LEFT] == 1
    assert patient.goal(jnp.int32(1), lonely.observation[0]) == STAG
    assert patient.goal(jnp.int32(2), lonely.observation[0]) == HARE
    # Company, and steps elsewhere, do not count.
    assert_allclose(
        compiled(patient.advance)(jnp.int32(1), joined.observation[0], joined.observation[0]), [0, 1, 0]
    )
    assert_allclose(
        compiled(patient.advance)(jnp.int32(1), lonely.observation[3], lonely.observation[3]), [0, 1, 0]
    )


def test_a_masked_lone_hunt_makes_the_hunter_stay():
    env = game("4h1s_4x4", mask_lone_stag_hunt=True)
    _, timestep = board(env, **{**PLACES, "players": [(3, 2), (3, 3), (0, 3), (0, 0)]})
    assert policy_of(nearest_stag(env), timestep)[STAY] == 1


def test_paths_lead_round_walls_unless_walls_are_ignored():
    env = game("4h1s_8x8_walls")
    walls = np.asarray(env.split(compiled(env.reset)(jax.random.key(3))[1].observation[0])["walls"])
    free = ~walls
    # A wall with free cells on both sides in its row: the way through it is two steps for who sees no walls.
    row, column = next(
        (r, c) for r in range(8) for c in range(1, 7) if walls[r, c] and free[r, c - 1] and free[r, c + 1]
    )
    state, _ = compiled(env.reset)(jax.random.key(3))
    far = [(int(r), int(c)) for r, c in np.argwhere(free) if abs(r - row) + abs(c - column) > 4][:4]
    state = dataclasses.replace(
        state,
        players=cells([(row, column - 1)] * 4, 8),
        stags=cells([(row, column + 1)], 8),
        hares=cells(far, 8),
    )
    _, timestep = look(env, state)
    lengths = path_lengths(free, (row, column + 1))
    shorter = [
        move
        for move, (down, right) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)])
        if lengths.get((row + down, column - 1 + right), 99) < lengths[row, column - 1]
    ]
    assert RIGHT not in shorter and shorter
    expected = np.zeros(7)
    expected[shorter] = 1 / len(shorter)
    assert_allclose(policy_of(nearest_stag(env), timestep), expected, atol=1e-6)
    assert policy_of(nearest_stag(env, metric="manhattan"), timestep)[STAY] == 1


def path_lengths(free, goal):
    """Breadth first, in plain Python."""
    lengths, edge = {goal: 0}, [goal]
    while edge:
        row, column = edge.pop(0)
        for r, c in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if 0 <= r < 8 and 0 <= c < 8 and free[r, c] and (r, c) not in lengths:
                lengths[r, c] = lengths[row, column] + 1
                edge.append((r, c))
    return lengths


def test_the_fickle_switches_once():
    env = game("4h1s_4x4")
    player = fickle(env)
    row = jnp.zeros(env.observation_size)
    chances = np.stack([player.advance(jnp.int32(z), row, row) for z in range(4)])
    assert_allclose(player.start(), [0.5, 0.5, 0, 0])
    assert_allclose(chances, [[0.9, 0, 0, 0.1], [0, 0.9, 0.1, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    _, timestep = board(env, **PLACES)
    for latent, twin in ((0, nearest_stag(env)), (1, nearest_hare(env)), (2, nearest_stag(env))):
        assert_allclose(policy_of(player, timestep, latent), policy_of(twin, timestep))


@pytest.mark.parametrize("observation", ["board", "entities"])
def test_the_reciprocator_returns_a_stag_hunt_seen_in_the_last_episode(observation):
    env = game("4h1s_4x4", observation=observation)
    on_stag = {**PLACES, "players": [(0, 0), (3, 2), (3, 2), (1, 3)]}
    state, before = board(env, **on_stag)
    _, stag_taken = compiled(env.step)(
        state, jnp.array([STAY, HUNT_STAG, HUNT_STAG, STAY]), jax.random.key(0)
    )
    _, lone_hunt = compiled(env.step)(state, jnp.array([STAY, HUNT_STAG, STAY, HUNT_HARE]), jax.random.key(0))
    player = reciprocator(env)
    begin = jnp.int32(0)
    assert_allclose(player.start(), [1, 0, 0, 0])
    saw = compiled(player.advance)(begin, before.observation[0], stag_taken.observation[0])
    assert_allclose(saw, [0, 1, 0, 0])
    assert_allclose(player.renew(jnp.int32(1)), [1, 0, 0, 0])
    # A lone hunt feeds nobody; the next episode it goes for hares, until it sees a stag taken.
    assert_allclose(
        compiled(player.advance)(begin, before.observation[0], lone_hunt.observation[0]), [1, 0, 0, 0]
    )
    assert_allclose(player.renew(jnp.int32(0)), [0, 0, 1, 0])
    assert_allclose(player.renew(jnp.int32(3)), [1, 0, 0, 0])
    # It watches the seat it was told to: seat 3, which ate a hare, is three seats on from seat 0.
    other = reciprocator(env, watched=3)
    assert_allclose(
        compiled(other.advance)(begin, before.observation[0], lone_hunt.observation[0]), [1, 0, 0, 0]
    )
    # Once the watched player is gone, its last hunt stays on show and counts once only.
    state_after, _ = compiled(env.step)(
        state, jnp.array([STAY, HUNT_STAG, HUNT_STAG, STAY]), jax.random.key(0)
    )
    _, later = look(env, state_after)
    repeated = compiled(player.advance)(begin, stag_taken.observation[0], later.observation[0])
    assert_allclose(repeated, [1, 0, 0, 0])


def test_a_reciprocator_follows_its_neighbour_from_episode_to_episode():
    # Seat 0 watches seat 1, a nearest-stag hunter joined by two more: they take the stag nearly always.
    env = game("4h1s_4x4", observation="entities")
    loyal = scripted(reciprocator(env), env, (0,))
    stags = scripted(nearest_stag(env), env, (1, 2))
    hares = scripted(nearest_hare(env), env, (3,))
    transition, _, memories = play(
        env, {(0,): loyal, (1, 2): stags, (3,): hares}, 32, 80, jax.random.key(1), keep_all, again=True
    )
    first = np.asarray(transition.before.first)
    wants_hare = np.asarray(memories[0].latent)[..., 0] >= 2
    took_stag = np.asarray(transition.after.reward[..., 1] > 1)
    for game_number in range(32):
        starts = np.flatnonzero(first[:, game_number])
        for begin, end in itertools.pairwise(starts):
            assert wants_hare[end, game_number] != took_stag[begin:end, game_number].any()
    assert wants_hare.any() and not wants_hare.all()


# --- what they earn ------------------------------------------------------------------------------

# Mean return, whole episode and early ending: four random, NS, NH, two and two, one NS and three NH.
REFERENCE = {
    "4h1s_4x4": ((0.66, 2.83, 0.85, 2.98, 0.68), (0.39, 2.83, 0.82, 2.94, 0.67)),
    "4h1s_8x8_walls": ((0.30, 2.91, 0.92, 2.99, 0.71), (0.23, 2.81, 0.69, 1.52, 0.58)),
    "4h2s_8x8": ((0.26, 4.61, 0.91, 1.89, 0.71), (0.21, 3.65, 0.72, 1.61, 0.61)),
}
RANDOM, NS, NH = range(3)
CASTS = [[RANDOM] * 4, [NS] * 4, [NH] * 4, [NS, NS, NH, NH], [NS, NH, NH, NH]]
EPISODES = 1000


@pytest.mark.parametrize("early_ending", [None, 5])
@pytest.mark.parametrize("preset", REFERENCE)
def test_line_ups_earn_their_reference_returns(preset, early_ending):
    env = game(preset, end_after_first_hunt=early_ending, observation="entities")
    players = [random_player(env), nearest_stag(env), nearest_hare(env)]
    means = returns_of_casts(env, players, CASTS, EPISODES, jax.random.key(7)).mean(axis=-1)
    assert means.max() <= env.ceiling
    for got, expected in zip(means, REFERENCE[preset][early_ending is not None], strict=True):
        assert_mean(got, expected)


@pytest.mark.parametrize("early_ending", [None, 5])
@pytest.mark.parametrize(("preset", "best"), [("4h1s_4x4", 3), ("4h1s_8x8_walls", 3), ("4h2s_8x8", 5)])
def test_the_optimum_reaches_the_ceiling_from_every_start(preset, best, early_ending):
    env = game(preset, end_after_first_hunt=early_ending, observation="entities")
    means = returns(env, {(0, 1, 2, 3): optimum(env)}, 1000, jax.random.key(2)).mean(axis=1)
    assert_allclose(means, best)


def test_the_optimum_sends_the_rest_home_when_there_is_not_prey_for_all():
    # Six players, one stag for three of them, one hare: 10 + 1 over six players.
    env = stag_hunt.make(size=4, players=6, stags=1, hares=1, stag_hunters=3)
    seats = tuple(range(6))
    means = returns(env, {seats: optimum(env)}, 50, jax.random.key(2)).mean(axis=1)
    assert_allclose(means, 11 / 6, rtol=1e-6)


def test_the_optimum_plans_anew_in_every_episode():
    env = game("4h1s_4x4", observation="entities")
    steps, _, _ = play(env, {(0, 1, 2, 3): optimum(env)}, 20, 70, jax.random.key(3), keep_all, again=True)
    episodes_over = np.asarray(~steps.after.active.any(axis=-1)).sum()
    assert episodes_over > 100
    # Nobody is fed before the strike and everybody by it: 12 for every episode that is over.
    assert np.asarray(steps.after.reward).sum() == 12 * episodes_over


# --- how well they can be guessed ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "unknown", "told"),
    [("4h1s_4x4", 0.79, 0.89), ("4h1s_8x8_walls", 0.86, 0.90), ("4h2s_8x8", 0.92, 0.94)],
)
def test_the_best_guess_at_two_stag_and_two_hare_hunters(preset, unknown, told):
    env = game(preset, observation="entities")
    ns, nh = nearest_stag(env), nearest_hare(env)
    seated = {(0, 1): scripted(ns, env, (0, 1)), (2, 3): scripted(nh, env, (2, 3))}
    transition = play(env, seated, 200, env.horizon, jax.random.key(0), keep_all)[0]
    filtered = guess([ns, nh], transition)
    active = np.asarray(transition.before.active)
    expected = np.asarray(filtered.prediction.max(axis=-1))
    hit = np.asarray(filtered.prediction.argmax(axis=-1) == transition.decision.action)
    assert abs(expected[active].mean() - unknown) < 0.02
    assert abs(np.asarray(transition.decision.policy.max(axis=-1))[active].mean() - told) < 0.02
    # What it expects of itself is what it gets; games are independent, rows within one are not.
    surplus = np.where(active, hit - expected, 0.0).sum(axis=(0, 2)) / active.sum(axis=(0, 2)).mean()
    assert_mean(surplus, 0.0, floor=0.0)


def test_the_filter_follows_a_change_of_mind():
    env = game("4h1s_4x4", observation="entities")
    player = fickle(env)
    seated = {(0, 1, 2, 3): scripted(player, env, (0, 1, 2, 3))}
    transition, _, memories = play(env, seated, 400, env.horizon, jax.random.key(4), keep_all)
    filtered = guess([player, random_player(env)], transition)
    active = np.asarray(transition.before.active)
    latent = np.asarray(memories[0].latent)
    # Calibrated: on average it gives the true latent state the weight that it deserves.
    belief = np.asarray(filtered.posterior)
    truth = np.take_along_axis(belief, latent[..., None], axis=-1)[..., 0]
    # Games in which the player was fickle; as many were random in its prior, so condition on fickle.
    share = belief[..., :4].sum(axis=-1)
    own = (belief[..., :4] ** 2).sum(axis=-1) / share
    surplus = np.where(active, truth / share - own / share, 0.0).sum(axis=(0, 2))
    assert_mean(surplus / active.sum(axis=(0, 2)).mean(), 0.0, floor=0.0)
