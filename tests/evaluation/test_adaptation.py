"""Meetings are played, counted and summed up as they say; figures against counts made by hand."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay import runs
from coplay.envs import make_game
from coplay.envs.contract import COMPILE_FAST
from coplay.evaluation import adaptation_figures as figures
from coplay.evaluation.adaptation import UNKNOWN, Ends, Learning, Protocol, play
from coplay.meetings.tables import open_focal, player_at, sit_down
from coplay.players.catalogue import make_player
from coplay.players.scripted import scripted
from tests.small import small

SHORT = Protocol(steps=400, games=32)
NEAREST_HARE, WATCHED = 1, 350


@functools.cache
def game():
    return make_game("4h1s_4x4", observation="entities")


@functools.cache
def met(focal, company, seat=0):
    table = sit_down(game(), company, seat)
    algorithm = scripted(make_player(focal, game()), game(), table.focal_seats)
    meeting = table.with_focal(algorithm)
    params = {"focal": algorithm.init(jax.random.key(0)), "company": table.company.init(jax.random.key(1))}
    run = jax.jit(lambda key: play(meeting, SHORT, params, key), compiler_options=COMPILE_FAST)
    return table, jax.device_get(run(jax.random.key(2)))


def test_a_hare_hunter_among_stag_hunters_earns_its_hare():
    table, played = met("nearest_hare", ("nearest_stag",) * 3)
    found = figures.episodes(played.early, played.late, table.focal_seats, SHORT.kept_games)
    assert_allclose(figures.scores(found, SHORT).mean(), 1.0, atol=0.01)
    assert_allclose(figures.few_shot(found).mean(), 1.0, atol=0.01)
    assert len(figures.curve(found, SHORT)) >= 11


def test_goals_are_those_that_the_scripts_declare():
    table, played = met("random", ("nearest_stag", "random", "nearest_hare"), seat=2)
    assert table.focal_seats == (2,)
    assert table.seats == (3, 0, 1)
    goal, first = played.seen.goal, played.seen.steps.before.first
    assert (goal[first][:, 3] == 0).all()
    assert (goal[first][:, 1] == NEAREST_HARE).all()
    assert (goal[..., [0, 2]] == UNKNOWN).all()


def test_one_name_leaves_three_seats_to_the_focal_players():
    table = sit_down(game(), ("random",), 1)
    assert table.focal_seats == (1, 2, 3)
    assert table.seats == (0,)


def test_a_company_that_changes_does_so_after_its_episode():
    player = make_player("changing('nearest_hare', 'nearest_stag', 3)", game())
    one_row = jax.tree.map(lambda x: x[0], jax.vmap(game().reset)(jax.random.split(jax.random.key(0), 1))[1])
    row, legal = one_row.observation[0], one_row.legal[0]
    latent, goals = int(jnp.argmax(player.start())), []
    for _ in range(6):
        goals.append(int(player.goal(jnp.int32(latent), row)))
        chances = player.advance(jnp.int32(latent), row, row)
        assert_allclose(chances.sum(), 1.0)
        latent = int(jnp.argmax(player.renew(jnp.argmax(chances))))
    assert goals == [1, 1, 1, 0, 0, 0]
    as_stag = make_player("nearest_stag", game()).policy(jnp.int32(0), row, legal)
    assert_allclose(player.policy(jnp.int32(latent), row, legal), as_stag)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return runs.train(small(seeds=2), tmp_path_factory.mktemp("runs") / "learners")


def went_on(run, *parts):
    rounds = {"rollout.num_envs": 8, "rollout.num_steps": 10, "rollout.sequence_length": 10}
    rounds |= {"learning_rate": 0.05}  # so that one round shows
    focal = open_focal(f"{run.path}@last:0", rounds)
    table = sit_down(focal.built.env, (f"{run.path}@last:1",) * 3, 0, rounds)
    meeting = table._replace(learning=Learning(parts, 10, 10)).with_focal(focal.algorithm(table.focal_seats))
    return player_at(meeting, Protocol(steps=45, games=8, kept=1.0))(focal.params[0], 0)


def test_those_who_go_on_learning_play_alike_until_somebody_has_learned(run):
    by_whom = [went_on(run, *parts) for parts in ((), ("focal",), ("company",), ("focal", "company"))]
    actions = [played.seen.steps.decision.action for played in by_whom]
    assert actions[0].shape == (45, 8, 4)
    for one, other in itertools.combinations(actions, 2):
        assert_array_equal(one[:10], other[:10])
        assert (one[10:] != other[10:]).any()


def test_returns_are_added_up_across_the_rounds_of_those_who_learn(run):
    played = went_on(run, "company")
    reward, over = played.seen.steps.after.reward, played.early.over
    so_far = np.zeros((8, 4))
    for step in range(45):
        so_far = so_far + reward[step]
        assert_allclose(played.early.episode_return[step], so_far, atol=1e-6)
        so_far = np.where(over[step][:, None], 0.0, so_far)
    assert played.late.over.shape == (0, 8)


# --- figures -------------------------------------------------------------------------------------


def ends(over, value):
    over, value = jnp.array(over, bool), jnp.array(value, float)
    return Ends(over, jnp.stack([value, value], axis=-1), jnp.ones(over.shape, int))


def test_episodes_are_numbered_by_game_and_those_that_stopped_have_fewer():
    early = ends([[0, 1], [1, 0], [0, 1]], [[0, 5], [2, 0], [0, 7]])
    late = ends([[1], [0], [1]], [[3], [0], [4]])
    found = figures.episodes(early, late, (0,), kept=1)
    assert_array_equal(found.value, [[2, 3, 4], [5, 7, np.nan]])
    assert_array_equal(found.last_step, [[2, 4, 6], [1, 3, np.nan]])
    scored = figures.scores(found, Protocol(steps=6, games=2, kept=0.5, scored=0.5))
    assert_allclose(scored, [3.5])
    half = Protocol(steps=6, games=2, kept=0.5, scored=0.5)
    assert_allclose(figures.per_step(found, half), (3 + 4) / 2)  # each was one step long


def test_the_curve_stops_where_a_game_has_not_finished_an_episode():
    value = np.full((4, 14), 2.0)
    value[0, 12:] = np.nan
    value[3, 10:] = np.nan  # stopped after the watched episodes
    found = figures.Episodes(value, value, value)
    assert len(figures.curve(found, Protocol(games=4, kept=0.75))) == 12


def test_sure_from_the_step_after_the_last_doubt():
    step = np.array([0, 1, 2, 3, 0, 1, 2, 0])[:, None]
    sure = np.array([0.5, 0.95, 0.8, 0.95, 0.95, 0.95, 0.5, 0.5])[:, None, None]
    counts = np.ones(sure.shape, bool)
    found = figures.sure_from(sure, counts, step)
    assert found == {"steps_to_90": 3.0, "never_90": 0.5}
    counts[6] = False  # it had left: no doubt counts
    assert figures.sure_from(sure, counts, step) == {"steps_to_90": 1.5, "never_90": 0.0}


def test_skill_is_one_for_the_exact_filter_and_zero_for_frequencies():
    table, played = met("random", ("nearest_hare",) * 3)
    seen, others = played.seen, [1, 2, 3]
    script = make_player("nearest_hare", game())
    exact = np.moveaxis(figures.best_predictions(seen, others, script, []), 0, 2)
    perfect = figures.model_figures(_with_prediction(seen, exact), 0, table.scripts, [])
    assert_allclose(perfect["skill"], 1.0)
    assert_allclose(perfect["top1"], perfect["bayes_top1"])
    legal = seen.steps.before.legal[..., others, :]
    counts = seen.steps.before.active[..., others] & seen.steps.before.active[..., :1]
    share = np.bincount(seen.steps.decision.action[..., others][counts], minlength=7)
    guess = np.where(legal, share, 0.0)
    guess /= np.maximum(guess.sum(axis=-1, keepdims=True), 1e-9)
    plain = figures.model_figures(_with_prediction(seen, guess), 0, table.scripts, [])
    assert_allclose(plain["skill"], 0.0, atol=0.02)


def _with_prediction(seen, prediction):
    return type(seen)(seen.steps, jnp.asarray(seen.goal), seen.belief, jnp.asarray(prediction))
