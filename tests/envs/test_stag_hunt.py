"""The stag hunt, by hand and in 100 random games of every preset."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.envs import stag_hunt
from coplay.envs.stag_hunt import StagHuntState
from coplay.envs.walls import wall_maps
from tests.envs.walks import STAG_HUNTS, fields_of, variant, walk

UP, DOWN, LEFT, RIGHT, STAY, STAG, HARE = range(7)
EARLY = [name for name in STAG_HUNTS if "early" in name]


def a_start(players, stags, hares, **options):
    """An open board of 16 cells, numbered row by row."""
    env = stag_hunt.make(size=4, players=len(players), stags=len(stags), hares=len(hares), **options)
    state = StagHuntState(
        map=jnp.int32(0),
        players=jnp.array(players),
        stags=jnp.array(stags, jnp.int32),
        hares=jnp.array(hares, jnp.int32),
        active=jnp.ones(len(players), bool),
        stag_alive=jnp.ones(len(stags), bool),
        hare_alive=jnp.ones(len(hares), bool),
        previous=jnp.full(len(players), STAY),
        strengths=jnp.asarray(env.options.strengths or (1,) * len(players)),
        time=jnp.int32(0),
        end=jnp.int32(env.horizon),
    )
    return env, state


def play(env, state, actions):
    """Fields of states and rows after each joint action, [time, ...]."""

    def one_step(state, action):
        state, after = env.step(state, action, jax.random.key(0))
        return state, (state, after)

    _, (states, rows) = jax.jit(lambda state: jax.lax.scan(one_step, state, jnp.array(actions)))(state)
    return fields_of(states), fields_of(rows)


@pytest.fixture(scope="module")
def by_hand():
    """Ten steps on 4x4, worked by hand. A and B hunt the stag, C takes a hare and so does D, alone."""
    env, state = a_start([0, 1, 15, 12], [5], [14, 3, 12, 8], end_after_first_hunt=5)
    return play(
        env,
        state,
        [
            [RIGHT, DOWN, UP, UP],  # B reaches the stag's cell 5, D the hare's cell 8
            [DOWN, STAG, LEFT, DOWN],  # B hunts alone, in vain
            [UP, STAG, HARE, LEFT],  # C has no hare under it, D would leave the board: both stay
            [DOWN, STAY, DOWN, STAY],
            [STAG, STAG, HARE, RIGHT],  # the first catch, at time 5: five more steps
            [LEFT, UP, RIGHT, LEFT],  # only D is there to move
            [STAG, STAG, HARE, UP],
            [UP, UP, UP, STAG],  # D stands on a hare, not on a stag: it stays
            [STAY, STAY, STAY, STAY],
            [STAY, STAY, STAY, HARE],
        ],
    )


def test_ten_steps_by_hand_move_the_players(by_hand):
    states, _ = by_hand
    assert_array_equal(
        states["players"],
        [
            [1, 5, 11, 8],
            [5, 5, 10, 12],
            [1, 5, 10, 12],
            [5, 5, 14, 12],
            [5, 5, 14, 13],
            [5, 5, 14, 12],
            [5, 5, 14, 8],
            [5, 5, 14, 8],
            [5, 5, 14, 8],
            [5, 5, 14, 8],
        ],
    )


def test_ten_steps_by_hand_pay_the_hunters_once(by_hand):
    _, rows = by_hand
    expected = np.zeros((10, 4))
    expected[4] = [5, 5, 1, 0]  # the stag's 10 in two halves, a hare for C
    expected[9] = [0, 0, 0, 1]
    assert_array_equal(rows["reward"], expected)
    assert rows["reward"].sum() / 4 == 3.0  # the ceiling of four hares and one stag


def test_ten_steps_by_hand_end_five_after_the_first_catch(by_hand):
    states, rows = by_hand
    assert_array_equal(states["end"], [35] * 4 + [10] * 6)
    assert_array_equal(rows["terminated"][:4], np.zeros((4, 4), bool))
    assert_array_equal(rows["terminated"][4:9], [[True, True, True, False]] * 5)
    assert rows["terminated"][9].all()
    assert_array_equal(rows["active"], ~rows["terminated"])


def test_ten_steps_by_hand_keep_the_last_action_carried_out(by_hand):
    states, _ = by_hand
    assert_array_equal(states["previous"][2], [UP, STAG, STAY, STAY])  # two illegal actions became stay
    assert_array_equal(states["previous"][7], [STAG, STAG, HARE, STAY])  # the departed keep their hunt


def test_ten_steps_by_hand_show_the_clock(by_hand):
    _, rows = by_hand
    assert_allclose(rows["observation"][3, :, -2:], [[4 / 35, 31 / 35]] * 4, rtol=1e-6)
    assert_allclose(rows["observation"][5, :, -2:], [[6 / 35, 4 / 35]] * 4, rtol=1e-6)


def test_ten_steps_by_hand_allow_what_the_place_allows(by_hand):
    _, rows = by_hand
    # A on cell 1 and B on the stag; C on 11 at the right border; D on 8 at the left one, on a hare
    assert_array_equal(
        rows["legal"][0],
        [
            [False, True, True, True, True, False, False],
            [True, True, True, True, True, True, False],
            [True, True, True, False, True, False, False],
            [True, True, False, True, True, False, True],
        ],
    )
    only_stay = [False] * 4 + [True] + [False] * 2
    assert_array_equal(rows["legal"][5, :3], [only_stay] * 3)


def test_a_stag_is_split_by_strength_and_a_hare_equally():
    env, state = a_start([5, 5, 5, 0], [5], [0], strengths=(3, 1, 0, 2))
    _, rows = play(env, state, [[STAG, STAG, STAG, HARE]])
    assert_allclose(rows["reward"][0], [7.5, 2.5, 0.0, 1.0])  # 10 * 3/4, 1/4, 0/4


def test_hunters_without_strength_share_equally():
    env, state = a_start([5, 5, 0], [5], [0, 1], strengths=(0, 0, 1))
    _, rows = play(env, state, [[STAG, STAG, STAY]])
    assert_allclose(rows["reward"][0], [5.0, 5.0, 0.0])


def test_three_who_take_the_same_hare_share_it():
    env, state = a_start([0, 0, 0], [5], [0, 1])
    states, rows = play(env, state, [[HARE, HARE, HARE]])
    assert_allclose(rows["reward"][0], [1 / 3] * 3, rtol=1e-6)
    assert_array_equal(states["hare_alive"][0], [False, True])


def test_a_hunt_that_needs_three_fails_with_two():
    env, state = a_start([5, 5, 0], [5], [0], stag_hunters=3)
    states, rows = play(env, state, [[STAG, STAG, STAY]])
    assert_array_equal(rows["reward"][0], [0, 0, 0])
    assert states["stag_alive"][0].all()


def test_a_masked_lone_hunt_is_legal_only_in_company():
    env, state = a_start([5, 5, 1], [5], [0], mask_lone_stag_hunt=True)
    _, rows = play(env, state, [[STAY, UP, STAY], [STAY, STAY, STAY]])
    assert_array_equal(rows["legal"][0, :, STAG], [False, False, False])  # B has left the cell
    _, rows = play(env, state, [[STAY, STAY, STAY], [STAY, STAY, STAY]])
    assert_array_equal(rows["legal"][0, :, STAG], [True, True, False])


def test_the_game_ends_when_no_prey_is_left():
    env, state = a_start([0, 7], [], [0])
    _, rows = play(env, state, [[HARE, STAY]])
    assert rows["terminated"][0].all()
    assert not rows["active"][0].any()


@pytest.mark.parametrize("name", STAG_HUNTS)
def test_rewards_add_to_the_value_of_the_prey_taken(name):
    state, rows = walk(name).state, walk(name).rows
    stags = -np.diff(state["stag_alive"].sum(axis=-1), axis=1)
    hares = -np.diff(state["hare_alive"].sum(axis=-1), axis=1)
    assert hares.sum() > 50
    assert stags.sum() > 0 or variant(name).options.size == 8  # there, two seldom meet by chance
    assert_allclose(rows["reward"][:, 1:].sum(axis=-1), 10 * stags + hares, atol=1e-5)


@pytest.mark.parametrize("name", STAG_HUNTS)
def test_the_departed_stay_away(name):
    state, rows, _, played, _ = walk(name)
    departed = ~state["active"][:, :-1] & played[:, :, None]
    assert departed.sum() > 100
    assert not state["active"][:, 1:][departed].any()
    assert not rows["active"][:, 1:][departed].any()
    assert rows["terminated"][:, 1:][departed].all()
    assert not rows["reward"][:, 1:][departed].any()
    assert_array_equal(state["players"][:, 1:][departed], state["players"][:, :-1][departed])
    assert_array_equal(state["previous"][:, 1:][departed], state["previous"][:, :-1][departed])
    assert (rows["legal"][:, :-1][departed] == (np.arange(7) == STAY)).all()


@pytest.mark.parametrize("name", STAG_HUNTS)
def test_split_agrees_with_the_state(name):
    env, (state, rows, *_) = variant(name), walk(name)
    parts = jax.jit(jax.vmap(jax.vmap(jax.vmap(env.split))))(jnp.asarray(rows["observation"][:, ::4]))
    parts = {key: np.asarray(part) for key, part in parts.items()}
    state = {key: value[:, ::4] for key, value in state.items()}
    players, cells = env.num_agents, env.options.size**2
    circle = (np.arange(players)[:, None] + np.arange(players)[None, :]) % players
    bodies = boards(state["players"], state["active"], cells)[:, :, circle]  # [game, time, observer, seen]
    walls = bank(env).walls[state["map"]]
    prey = {
        kind: boards(state[kind + "s"], state[kind + "_alive"], cells).any(axis=2)
        for kind in ("stag", "hare")
    }
    assert_array_equal(flat(parts["others"]), bodies[:, :, :, 1:])
    here = state["active"]
    assert_array_equal(flat(parts["self"])[here], bodies[:, :, :, 0][here])
    for observer in range(players):
        assert_array_equal(flat(parts["walls"])[:, :, observer], walls)
        assert_array_equal(flat(parts["stags"])[:, :, observer], prey["stag"])
        assert_array_equal(flat(parts["hares"])[:, :, observer], prey["hare"])
    one_hot = np.eye(7)[state["previous"]][:, :, circle]
    assert_array_equal(parts["previous"], one_hot)
    clock = np.stack([state["time"], state["end"] - state["time"]], axis=-1) / env.horizon
    assert_allclose(parts["time"], np.repeat(clock[:, :, None], players, axis=2), rtol=1e-6)


def boards(cell: np.ndarray, present: np.ndarray, cells: int) -> np.ndarray:
    return (cell[..., None] == np.arange(cells)) & present[..., None]


def flat(board: np.ndarray) -> np.ndarray:
    return board.reshape(*board.shape[:-2], -1)


def bank(env):
    options = env.options
    return wall_maps(options.size, options.wall_components, options.map_seed, options.num_maps)


@pytest.mark.parametrize("name", STAG_HUNTS)
def test_no_legal_move_enters_a_wall_or_leaves_the_grid(name):
    env, (state, rows, *_) = variant(name), walk(name)
    size = env.options.size
    free = ~np.pad(bank(env).walls.reshape(-1, size, size), ((0, 0), (1, 1), (1, 1)), constant_values=True)
    row, column = np.divmod(state["players"], size)
    number = np.broadcast_to(state["map"][:, :, None], row.shape)
    assert free[number, row + 1, column + 1].all()
    for move, (down, right) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)]):
        is_open = free[number, row + 1 + down, column + 1 + right]
        assert_array_equal(rows["legal"][..., move], is_open & state["active"])


@pytest.mark.parametrize("name", EARLY)
def test_an_early_ending_comes_exactly_five_steps_after_the_first_catch(name):
    env, (state, rows, _, played, _) = variant(name), walk(name)
    caught = ~(state["stag_alive"].all(axis=-1) & state["hare_alive"].all(axis=-1))
    over = rows["terminated"].all(axis=-1)
    length = played.sum(axis=1)
    first_catch = np.where(caught.any(axis=1), caught.argmax(axis=1), 1000)
    everyone_gone = ~state["active"].any(axis=-1)
    gone = np.where(everyone_gone.any(axis=1), everyone_gone.argmax(axis=1), 1000)
    assert (first_catch < 30).sum() > 20
    assert_array_equal(length, np.minimum(np.minimum(first_catch + 5, gone), env.horizon))
    assert_array_equal(over.argmax(axis=1), length)
    left = rows["observation"][..., 0, -1] * env.horizon  # what the first player sees of the end
    time = np.arange(left.shape[1])[None, :]
    end = np.where(
        time >= first_catch[:, None], np.minimum(first_catch[:, None] + 5, env.horizon), env.horizon
    )
    assert_allclose(left, end - time, atol=1e-4)


def test_a_whole_episode_lasts_to_the_horizon_unless_all_have_eaten():
    state, _, _, played, _ = walk("4x4")
    assert_array_equal(played.sum(axis=1)[state["active"][:, -1].any(axis=-1)], 35)


def test_prey_start_on_different_cells_and_players_anywhere():
    state = walk("two stags").state
    prey = np.concatenate([state["stags"], state["hares"]], axis=-1)[:, 0]
    assert all(len(set(cells)) == 6 for cells in prey)
    assert any(len(set(cells)) < 4 for cells in state["players"][:, 0])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"size": 1}, "size=1 must lie between 2 and 32"),
        ({"players": 9}, "players=9 must lie between 2 and 8"),
        ({"hares": 0, "stags": 0}, "there is no prey"),
        ({"size": 2, "hares": 4}, "do not fit on 4 cells"),
        ({"stag_hunters": 5}, "stag_hunters=5 must lie between 1 and players=4"),
        ({"strengths": (1, 2)}, "must name one whole number for each of 4 players"),
        ({"end_after_first_hunt": 0}, "must be at least 1, or left out"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        stag_hunt.make(**options)


def test_the_sizes_are_those_of_the_specification():
    assert stag_hunt.make(size=4).observation_size == 142
    assert stag_hunt.make(size=8).observation_size == 478
    ceilings = {stags: stag_hunt.make(stags=stags).ceiling for stags in (0, 1, 2)}
    assert ceilings == {0: 1.0, 1: 3.0, 2: 5.0}


def test_a_picture_shows_what_is_there():
    env, state = a_start([1, 5, 15], [5], [3])
    picture = env.draw(state)
    assert_array_equal(picture.players, [[0, 1], [1, 1], [3, 3]])
    assert_array_equal(picture.cells["stag"], [[1, 1]])
    assert_array_equal(picture.cells["hare"], [[0, 3]])
    assert (np.asarray(picture.cells["wall"]) == -1).all()
