"""Checks of trained runs: what they make of numbers worked by hand, and all of them on a shipped run."""

import dataclasses
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.audit import (
    foretold as foretelling,
)
from coplay.audit import (
    learned_world,
    trained_company,
    trained_growth,
    trained_models,
    trained_subgoals,
    trained_values,
    trained_worlds,
)
from coplay.audit.by_seed import Shown, by_third, judged, weighed
from coplay.audit.finding import Check, Seen, findings
from coplay.audit.foretold import Foretold
from coplay.audit.learned_world import Chances
from coplay.audit.models import MODELS
from coplay.audit.subject import Budget, Subject
from coplay.audit.trained_growth import AHEAD
from coplay.audit.trained_models import OPPONENTS
from coplay.audit.trained_subgoals import Labelled, Told
from coplay.audit.trained_values import IMAGINED, SEARCHES, Sources
from coplay.audit.trained_worlds import WORLDS
from coplay.audit.value import VALUE
from coplay.cli.audit import subject_of
from coplay.errors import BadInput
from coplay.nets import world as worlds
from coplay.nets.world import Drawn
from coplay.nets.world_fit import Moves
from coplay.reports.audit_drawings import draw
from coplay.types import Board, Entities
from tests.audit.mutants import stag_hunt
from tests.audit.suite import finding_of

TRAINED = [check.name for check in (*OPPONENTS, *WORLDS, *SEARCHES, *IMAGINED)]


def verdict_of(outcome, kind="test") -> str:
    check = Check("it", "models", "", kind, "nets", lambda *_: outcome)
    return findings([Seen(check, outcome, 0.0)])[0].verdict


# --- seeds ---------------------------------------------------------------------------------------


def test_one_bad_seed_is_no_failure_and_three_are():
    def told(*figures):
        return judged("skill", np.array(figures), 0.3, 0.6, "the rows").verdict

    assert told(0.1, 0.9, 0.9) == "pass"
    assert told(0.1, 0.5, 0.9) == "warn"
    assert told(0.1, 0.2, 0.2) == "fail"


def test_a_test_goes_by_the_seed_that_shows_least():
    def told(*seeds):
        return verdict_of(weighed("shift", [Shown(size, 0.01, p) for size, p in seeds], 0.5, 0.1, "rows"))

    assert told((0.9, 0.0), (0.05, 0.0)) == "pass"
    assert told((0.9, 0.0), (0.2, 1e-6)) == "warn"
    assert told((0.9, 0.0), (0.2, 0.3)) == "pass"
    assert told((0.9, 0.0), (0.7, 1e-6)) == "fail"
    assert told((0.9, 0.0), (0.7, 0.3)) == "pass"  # far off, but by chance


# --- co-players ----------------------------------------------------------------------------------


def foretold(expected, own, action, games=20) -> Foretold:
    count, actions = len(action), np.shape(own)[-1]
    return Foretold(
        expected=np.broadcast_to(np.asarray(expected, float), (count, actions)),
        own=np.broadcast_to(np.asarray(own, float), (count, actions)),
        legal=np.ones((count, actions), bool),
        action=np.asarray(action),
        player=np.zeros(count, int),
        game=np.arange(count) % games,
        move=np.arange(count),
    )


def test_skill_lies_between_how_often_they_do_what_and_their_own_policy():
    # A player is certain of its move, 0 and 1 in turn. By frequency: ln 2; its own surprise: 0.
    # A model that gives what was done 0.8 is surprised by ln 1.25: (ln 2 - ln 1.25) / ln 2 = 0.678.
    action = np.arange(400) % 2
    own = np.eye(2)[action]
    found = foretelling.skill_of(foretold(0.6 * own + 0.2, own, action))
    assert_allclose(found.skill, 1.0 - np.log(1.25) / np.log(2.0), rtol=1e-6)
    assert_allclose(found.by_frequency, np.log(2.0))
    assert found.top1 == found.top3 == 1.0
    assert_array_equal(found.confusion, [[200, 0], [0, 200]])
    assert_allclose(found.recall, 1.0)
    guess = foretelling.skill_of(foretold([0.5, 0.5], own, action))
    assert_allclose(guess.skill, 0.0, atol=1e-6)
    upside_down = foretelling.skill_of(foretold(0.8 - 0.6 * own, own, action))
    assert upside_down.skill < 0 and upside_down.top1 == 0.0
    assert_allclose(upside_down.share, 0.5)


def test_precision_recall_and_f1_of_actions_by_hand():
    # Action 0 is done 300 times and always foretold; 1 is done 100 times, half of them taken for 0.
    # Precision 300 / 350 and 50 / 50, recall 1 and 1 / 2, F1 600 / 650 and 100 / 150; nobody does 2.
    action = np.array([0] * 300 + [1] * 100)
    likeliest = np.array([0] * 350 + [1] * 50)
    rows = foretold(0.9 * np.eye(4)[likeliest] + 0.025, np.eye(4)[action], action)
    found = foretelling.skill_of(rows)
    assert_allclose(found.precision, [300 / 350, 1, 0, 0])
    assert_allclose(found.recall, [1, 0.5, 0, 0])
    assert_allclose(found.f1, [600 / 650, 2 / 3, 0, 0])
    assert_allclose(found.macro_f1, (600 / 650 + 2 / 3) / 2)
    assert (found.top1, found.top3) == (350 / 400, 1.0)


def test_every_figure_of_actions_and_seeds_is_drawn():
    action = np.arange(400) % 2
    knows, guesses = (foretold(x, np.eye(2)[action], action) for x in (np.eye(2)[action], [0.6, 0.4]))
    seeds = [foretelling.skill_of(rows) for rows in (knows, guesses)]
    drawing = trained_models.confusion_drawing(("stay", "left"), seeds)
    _, actions, whole = drawing["drawings"]
    # Together: 400 stays, all called so, with 200 lefts that are not; precision 400 / 600, recall 200 / 400.
    assert actions["values"] == [[0.5, 0.6667, 1.0, 0.8], [0.5, 1.0, 0.5, 0.6667]]
    assert [row[:3] for row in whole["values"]] == [[1.0, 1.0, 1.0], [0.5, 1.0, 0.3333]]
    assert draw(drawing).count("<svg") == 3


def test_how_often_an_action_is_taken_is_asked_among_what_is_legal():
    rows = foretold([1 / 3] * 3, [1 / 3] * 3, [0, 0, 1, 2])
    legal = np.array([[True, True, True], [True, False, True], [True, True, False], [False, False, True]])
    guess = foretelling.by_frequency(rows._replace(legal=legal))
    assert_allclose(guess, [[0.5, 0.25, 0.25], [2 / 3, 0, 1 / 3], [2 / 3, 1 / 3, 0], [0, 0, 1]])


def drawn_actions(own, count=2000) -> np.ndarray:
    return np.random.default_rng(0).choice(len(own), count, p=own)


def test_nobody_foresees_more_than_the_player_itself_unless_labels_leak():
    own = [0.5, 0.3, 0.2]
    action = drawn_actions(own)
    assert trained_models.beyond_best(foretold(own, own, action)).size == 0.0
    honest = trained_models.beyond_best(foretold([0.4, 0.4, 0.2], own, action))
    assert honest.size < 0.01 and honest.p > 0.01
    leaked = 0.9 * np.array(own) + 0.1 * np.eye(3)[action]
    assert trained_models.beyond_best(foretold(leaked, own, action)).p < 1e-6


def test_who_is_as_sure_as_right_is_calibrated():
    own = [0.7, 0.2, 0.1]
    action = drawn_actions(own)
    sound = trained_models.miscalibration(foretold(own, own, action))
    assert sound.size < 0.05 and sound.p > 0.001
    sure = trained_models.miscalibration(foretold([0.98, 0.01, 0.01], own, action))
    assert_allclose(sure.size, 0.98 - np.mean(action == 0), rtol=1e-6)
    assert sure.size > 0.15 and sure.p < 1e-6


def test_calibration_error_is_the_mean_over_bins_of_confidence_less_how_often_right():
    # Fifteen bins of two rows: confidence 0.5 throughout, right once in each of ten bins, never in five.
    is_right = np.array([[True, False]] * 10 + [[False, False]] * 5).reshape(1, -1)
    found = trained_models.calibration_error(np.full(30, 0.5), is_right)
    assert_allclose(found, [5 * 0.5 / 15])


def test_subgoals_that_never_vary_say_nothing():
    random, shape = np.random.default_rng(0), (5, 8, 2, 3, 4)
    counts = np.ones(shape[:-1], bool)
    apart, active = trained_subgoals.spread_of(np.zeros(shape), np.zeros(shape), counts)
    assert apart == 0.0 and active == 0.0
    mean = random.normal(size=shape) * np.array([1.0, 1.0, 0.01, 0.0])
    apart, active = trained_subgoals.spread_of(mean, np.zeros(shape), counts)
    assert active == 2.0
    assert_allclose(apart, 0.5 * (mean**2).sum(axis=-1).mean())


def labelled(subgoal, goal, view=None) -> Labelled:
    """One pair of players, [time, env, ...]."""
    view = np.zeros((*goal.shape, 1)) if view is None else view
    return trained_subgoals.known_rows(*(x[:, :, None, None] for x in (subgoal, view, goal)))


def two_goals(steps=20, games=80) -> np.ndarray:
    """The same goal throughout a game, in three of five the first; at the end nothing more is known."""
    goal = np.broadcast_to(np.array([0, 0, 1, 1, 0] * (games // 5)), (steps, games)).copy()
    goal[-2:] = -1
    return goal


def test_a_probe_reads_goals_off_subgoals_that_hold_them_and_not_off_those_that_do_not():
    random, goal = np.random.default_rng(0), two_goals()
    noise = random.normal(size=(*goal.shape, 3))
    knows = trained_subgoals.probed(labelled(noise + 6.0 * goal[..., None], goal, noise), 2)
    assert knows.subgoals > 0.99
    assert_allclose(knows.commonest, 0.6)
    assert knows.shuffled < 0.75 and knows.view < 0.65
    collapsed = trained_subgoals.probed(
        labelled(np.zeros_like(noise), goal, 6.0 * goal[..., None] + noise), 2
    )
    assert_allclose([collapsed.subgoals, collapsed.shuffled], 0.6)
    assert collapsed.view > 0.99


def test_only_labelled_moments_are_kept_game_after_game():
    # Two games of three steps, two pairs: of the second pair one moment is known.
    goal = np.array([[[0, -1], [1, -1]], [[-1, 1], [1, -1]], [[0, -1], [-1, -1]]])[:, :, None]
    step = np.broadcast_to(np.arange(3)[:, None, None, None, None], (3, 2, 1, 2, 1)).astype(float)
    rows = trained_subgoals.known_rows(step, step, goal)
    assert_array_equal(rows.goal, [[0, 1], [0, -1], [1, -1], [1, -1]])
    assert_array_equal(rows.subgoal[:, 0, 0], [0, 2, 0, 1])
    assert_array_equal(rows.game[:, 0], [0, 0, 1, 1])
    assert rows.subgoal[0, 1, 0] == 1 and rows.game[0, 1] == 0


def test_moments_without_a_label_are_not_asked_about():
    with pytest.raises(BadInput, match="gave away"):
        trained_subgoals.probed(labelled(np.zeros((20, 80, 2)), np.full((20, 80), -1)), 2)


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        (Told(subgoals=0.8, commonest=0.6, shuffled=0.6, view=0.9), "pass"),
        (Told(subgoals=0.64, commonest=0.6, shuffled=0.6, view=0.9), "warn"),  # 0.04 of 0.3
        (Told(subgoals=0.65, commonest=0.6, shuffled=0.6, view=0.6), "pass"),
        (Told(subgoals=0.6, commonest=0.6, shuffled=0.6, view=0.6), "fail"),
        (Told(subgoals=0.65, commonest=0.6, shuffled=0.7, view=0.6), "fail"),
        (Told(subgoals=0.97, commonest=0.97, shuffled=0.97, view=0.97), "not_run"),
    ],
)
def test_subgoals_that_tell_no_more_than_the_commonest_goal_fail(told, verdict):
    assert trained_subgoals.judged_by([told] * 3, {}).verdict == verdict


def test_points_of_a_map_lie_along_the_two_directions_of_most_spread():
    # Three numbers: the second varies most, the third by half, the first not at all.
    rows = np.array([[7.0, 2.0, 1.0], [7.0, -2.0, 1.0], [7.0, 2.0, -1.0], [7.0, -2.0, -1.0]])
    assert_allclose(trained_subgoals.flattened(rows), rows[:, 1:])
    assert_allclose(trained_subgoals.flattened(rows[:, 1:2])[:, 1], 0.0)  # one number has no second direction


def test_models_that_age_by_more_than_half_a_nat_fail(monkeypatch):
    def told(nats):
        ends = {"drift/model_staleness": np.full((2, 4), nats), "drift/world_staleness": None}
        monkeypatch.setattr(trained_company, "at_end", lambda subject, name: ends[name])
        return trained_company.staleness(Subject(stag_hunt(), "a run"), Budget(), jax.random.key(0)).verdict

    assert [told(x) for x in (0.02, 0.3, 0.7)] == ["pass", "warn", "fail"]


# --- worlds --------------------------------------------------------------------------------------


ENTITIES = Entities(
    width=2,
    num_cells=4,
    steps=((0, 0), (0, 1), (1, 0)),
    kinds=("hare",),
    kind_of=(0,),
    read=lambda state: state,
    write=lambda *_: (),
    possible=lambda *_: True,
)


def moves_of(step, stays) -> SimpleNamespace:
    """One player that makes these steps, and one hare; everything is there before."""
    here = np.ones((len(step), 1), bool)
    before = SimpleNamespace(here=here, there=here)
    happened = SimpleNamespace(step=np.array(step)[:, None], there=np.array(stays)[:, None])
    return SimpleNamespace(before=before, happened=happened)


def test_a_world_that_says_nothing_moves_has_no_skill_and_one_that_knows_has_all():
    step, stays = [0, 1, 2, 1] * 20, [True, True, False, True] * 20
    made = moves_of(step, stays)

    def skills(step_told, stays_told):
        chance = Chances(np.eye(4)[step_told][:, None], np.zeros((80, 1, 2)), np.eye(2)[stays_told][:, None])
        return trained_worlds.skills(ENTITIES, learned_world.Foretold(made, chance, np.ones(80, bool)))  # type: ignore[arg-type]

    assert skills(np.array(step), np.array(stays, int)) == {"players": 1.0, "hare": 1.0}
    assert skills(np.zeros(80, int), np.ones(80, int)) == {"players": 0.0, "hare": 0.0}
    # Of three steps in four it misses every second: the 1s of places 1, but not of places 3.
    half = np.array([0, 0, 2, 1] * 20)
    assert_allclose(skills(half, np.array(stays, int))["players"], 2 / 3)


def test_signal_to_noise_by_hand():
    # A player steps from cell 0 to 1, a hare stays on 3. Who is sure of both is off by nothing: 120 dB.
    # Who gives 0.5 to the step and to staying, and 0.5 to the hare, is off by 0.25 on two of four cells of
    # the one plane and on one of the other: 0.125 (9.03 dB) and 0.0625 (12.04 dB), 0.09375 over all.
    world = worlds.world_model(ENTITIES, 1, 3, (0.0, 1.0), (4,))[0]
    there = jnp.ones((2, 1), bool)
    before, after = (Board(jnp.full((2, 1), cell), there, jnp.full((2, 1), 3), there) for cell in (0, 1))
    drawn = Drawn(jnp.ones((2, 1), int), jnp.zeros((2, 1), int), there)
    made = Moves((), before, after, jnp.zeros((2, 1), int), there, drawn)
    sure, half = [[0, 1.0, 0, 0]], [[0.5, 0.5, 0, 0]]
    stays, may_stay = [[0, 1.0]], [[0.5, 0.5]]

    def noise(step, stay):
        chance = Chances(np.array(step), np.full((2, 1, 2), 0.5), np.array(stay))
        return trained_worlds.noise(world, learned_world.Foretold(made, chance, np.ones(2, bool)))

    assert_allclose(noise([sure, sure], [stays, stays])[1:], 120.0)
    found = noise([half, half], [may_stay, may_stay])
    assert_allclose(list(found.error.values()), [0.125, 0.0625], rtol=1e-5)
    assert list(found.error) == ["player 0", "hare"]
    pooled = -10 * np.log10(0.09375)
    assert_allclose(found[1:], [pooled, -5 * np.log10(0.125 * 0.0625), pooled], rtol=1e-5)
    # Where every second board is right, the mean over boards hides the others; the ratio over all does not.
    mixed = noise([sure, half], [stays, may_stay])
    assert_allclose(mixed.pooled, -10 * np.log10(0.09375 / 2), rtol=1e-5)
    assert_allclose(mixed.by_board, (120.0 + pooled) / 2, rtol=1e-5)


def test_a_kind_that_hardly_changed_is_not_spoken_of():
    made = moves_of([1] * 80, [True] * 80)
    chance = Chances(np.full((80, 1, 4), 0.25), np.zeros((80, 1, 2)), np.full((80, 1, 2), 0.5))
    seed = learned_world.Foretold(made, chance, np.ones(80, bool))  # type: ignore[arg-type]
    # Squared error of an even guess among four: 3 / 16 + 9 / 16, of "nothing moves": 2.
    found = trained_worlds.skills(ENTITIES, seed)
    assert list(found) == ["players"]
    assert_allclose(found["players"], 1 - 0.75 / 2)


def test_a_step_onto_no_cell_is_not_taken():
    board = Board(*(jnp.array(x) for x in ([3], [True], [0], [True])))
    told = trained_worlds.players_told(ENTITIES, board, np.array([[0.5, 0.3, 0.1, 0.1]]))
    assert_allclose(told, [0, 0, 0, 0.9])  # 0.1 that it leaves


def test_recall_and_slope_of_what_pays():
    values = np.array([0.0, 1.0, 5.0])
    paid = np.array([0] * 50 + [1] * 30 + [2] * 20)
    table = trained_worlds.confusion(3, paid, np.eye(3)[paid])
    assert_allclose(table, np.diag([50, 30, 20]))
    assert trained_worlds.worst_recall(values, table) == 1.0
    assert_allclose(trained_worlds.slope_of(values, paid, np.eye(3)[paid]), 1.0)
    # Half of the 5s are taken for 1s.
    blurred = np.where((paid == 2)[:, None], np.array([[0.0, 0.5, 0.5]]), np.eye(3)[paid])
    assert trained_worlds.worst_recall(values, trained_worlds.confusion(3, paid, blurred)) == 0.5
    assert trained_worlds.slope_of(values, paid, blurred) < 0.8
    assert_allclose(trained_worlds.slope_of(3 * values, paid, np.eye(3)[paid]), 1.0)


def test_rewards_paid_too_seldom_are_not_asked_about():
    assert np.isnan(trained_worlds.worst_recall(np.array([0.0, 1.0]), np.diag([50.0, 5.0])))


def test_errors_that_breed_outgrow_independent_ones():
    steady = trained_growth.independent(0.02)
    assert_allclose(steady, [0.02, 1 - 0.98**3, 1 - 0.98**5, 1 - 0.98**10])
    assert_allclose(trained_growth.beyond_independent(steady), 1.0)
    bred = np.array([0.01, 0.1, 0.3, 0.6])
    assert trained_growth.beyond_independent(bred).max() > 3
    assert_allclose(trained_growth.beyond_independent(np.array([0.0, 0.001, 0.002, 0.009])), 0.0)


def test_an_episode_lasts_until_it_is_over():
    over = np.array([False, False, True, False])[:, None]
    assert_array_equal(trained_growth.lasting(over)[:, 0], [3, 2, 1, 1])


def test_what_is_not_where_it_should_be_is_counted_among_what_was_there():
    # Two players and a thing, one game; after 1 step all is right, from 3 on the first player is elsewhere,
    # after 10 the thing is still there, wrongly. The second player was never there.
    def boards(first, thing):
        steps = AHEAD[-1]
        return Board(
            players=jnp.array([[[cell, 0]] for cell in first]),
            here=jnp.array([[[True, False]]] * steps),
            things=jnp.zeros((steps, 1, 1), int),
            there=jnp.array(thing)[:, None, None],
        )

    true = boards([1] * 10, [True] * 9 + [False])
    told = boards([1, 1] + [2] * 8, [True] * 10)
    start = Board(*(jnp.array(x) for x in ([[1, 0]], [[True, False]], [[0]], [[True]])))
    found = trained_growth.misplaced(start, told, true, np.ones((len(AHEAD), 1), bool))
    assert_allclose(found, [0, 0.5, 0.5, 1.0])


# --- what is imagined, what searches say ---------------------------------------------------------


def test_imagined_rewards_three_times_as_high_are_shifted():
    random = np.random.default_rng(0)
    real, alike = random.normal(1.0, 1.0, (100, 20)), random.normal(1.0, 1.0, (100, 40))
    sound = trained_values.shifted(Sources(real, alike))
    assert sound.size < 0.1 and sound.p > 0.001
    scaled = trained_values.shifted(Sources(real, 3 * alike))
    assert_allclose(scaled.size, (3 * alike.mean() - real.mean()) / real.std())
    assert scaled.size > 0.5 and scaled.p < 1e-6


def test_a_probe_tells_shifted_subgoals_from_real_ones_and_like_from_like_it_does_not():
    random = np.random.default_rng(0)
    rows, game = random.normal(size=(800, 6)), np.tile(np.arange(40), 20)
    is_imagined = np.repeat([False, True], 400)
    sound = trained_values.probed(rows, is_imagined, game)
    assert sound.size < 0.6 and sound.p > 0.001
    shifted = trained_values.probed(rows + 4.0 * is_imagined[:, None], is_imagined, game)
    assert shifted.size > 0.95 and shifted.p < 1e-4


def test_what_came_is_counted_to_the_end_of_a_players_game():
    # Discount 0.5: 1 + 0.5 * (0 + 0.5 * 4) = 2, 2, 4; then a game that the round does not see the end of.
    reward = np.array([1.0, 0.0, 4.0, 8.0])[:, None, None]
    ends = np.array([False, False, True, False])[:, None, None]
    came, is_whole = trained_values.earned(reward, ends, 0.5)
    assert_allclose(came[:, 0, 0], [2.0, 2.0, 4.0, 8.0])
    assert_array_equal(is_whole[:, 0, 0], [True, True, True, False])


def test_searches_that_promise_too_much_are_off():
    random = np.random.default_rng(0)
    came = random.normal(size=(50, 8, 2))
    counts = np.ones(came.shape, bool)
    off, error = trained_values.off_by(came + random.normal(0, 0.1, came.shape), came, counts)
    assert abs(off) < 3 * error < 0.05
    off, error = trained_values.off_by(came + 0.5, came, counts)
    assert_allclose(off, 0.5 / came.std())
    assert error < 1e-6


def test_divergence_of_a_search_from_its_network_by_hand():
    # Visits 3 and 1 of 4 beside an even policy: 0.75 ln 1.5 + 0.25 ln 0.5 = 0.1308; who agrees diverges by 0.
    visits = np.array([[[[3.0, 1.0]], [[2.0, 2.0]], [[9.0, 0.0]]]])
    policy, counts = np.full(visits.shape, 0.5), np.array([[[True], [True], [False]]])
    assert_allclose(trained_values.divergence(visits, policy, counts), 0.1308 / 2, atol=1e-4)
    agree = trained_values.divergence(visits, visits / visits.sum(axis=-1, keepdims=True), counts)
    assert_allclose(agree, 0.0, atol=1e-6)


def test_cross_entropy_grows_only_if_it_does_in_every_seed_from_third_to_third():
    falls, rises, hardly = [1.6, 1.2, 1.0], [1.0, 1.1, 1.3], [1.0, 1.02, 1.04]
    assert trained_values.grows(np.array([rises, rises]))
    for seeds in ([rises, falls], [hardly], [falls], [[1.0, 0.5, 1.3]]):
        assert not trained_values.grows(np.array(seeds))


def test_a_figure_by_thirds_of_training():
    # Steps 0 to 8, two seeds and two seats: 0, 1, 2 then 3, 4, 5 then 6, 7, 8; the second seed is 10 above.
    step, seed, seat = (x.ravel() for x in np.meshgrid(np.arange(9), [0, 1], [0, 1]))
    run = SimpleNamespace(
        read_metrics=lambda: pa.table(
            {
                "metric": ["search/loss"] * 36,
                "step": step,
                "seed": seed,
                "seat": seat,
                "value": step + 10.0 * seed,
            }
        )
    )
    subject = Subject(stag_hunt(), "a run")
    object.__setattr__(subject, "run", run)
    assert_allclose(by_third(subject, "search/loss"), [[1, 4, 7], [11, 14, 17]])
    assert by_third(subject, "no/such") is None


# --- all of them ---------------------------------------------------------------------------------


@functools.cache
def a_run() -> Subject:
    """A player of HOP+ that comes with the package."""
    return subject_of("zoo:hop_plus_4h1s_4x4", 0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", TRAINED)
def test_a_run_that_has_learned_passes(name):
    found = finding_of(a_run(), name)
    if found.verdict == "not_run":
        assert name in ("search_targets", "staleness"), found.next  # it does not plan, and brings no figures
        return
    assert found.verdict == "pass", found.next
    assert found.figure is not None and np.isfinite(found.figure)
    assert "broke off" not in draw(found.drawing)


def test_a_world_model_that_has_forgotten_what_it_learned_fails():
    clean = a_run()
    run = clean.trained()
    forgotten = jax.tree.map(lambda x: 0.1 * x, run.params[0])
    kept = {"trained plays": run._replace(params=[forgotten]), "trained games plays": clean.trained_games()}
    known = {name: value for name, value in clean.kept.items() if name != "trained worlds"}
    subject = dataclasses.replace(clean, kept=known | kept)
    told = {name: finding_of(subject, name) for name in ("world_skill", "world_possible", "world_pay")}
    assert {name: found.verdict for name, found in told.items()} == dict.fromkeys(told, "fail")
    assert "broke off" not in draw(told["world_skill"].drawing)


def test_subgoals_that_are_the_same_of_everyone_fail_and_a_game_without_goals_is_not_asked():
    clean = a_run()
    (games,) = clean.trained_games()
    notes = games.steps.decision.notes[clean.learner]
    nothing = jax.tree.map(jnp.zeros_like, notes["reading"].subgoal)
    blank = {clean.learner: notes | {"reading": dataclasses.replace(notes["reading"], subgoal=nothing)}}
    steps = dataclasses.replace(games.steps, decision=dataclasses.replace(games.steps.decision, notes=blank))
    kept = {"trained games plays": [dataclasses.replace(games, steps=steps)]}
    found = finding_of(dataclasses.replace(clean, kept=clean.kept | kept), "subgoal_probe")
    assert found.verdict == "fail" and found.figure is not None and found.figure <= 0
    aimless = dataclasses.replace(clean.env, goals=dataclasses.replace(clean.env.goals, shown=None))
    found = finding_of(dataclasses.replace(clean, env=aimless), "subgoal_probe")
    assert found.verdict == "not_run" and "what players are after" in found.next


def test_models_that_foresee_scripts_and_not_their_own_company_fail():
    clean = a_run()
    (home,), (abroad,) = clean.trained_games(), clean.trained_games("meets")
    lineup = clean.trained("meets").job.stretches[0].lineup
    assert lineup[0] == clean.learner and clean.learner not in lineup[1:]
    even = expecting(home, jnp.full_like(home.steps.decision.thoughts.prediction, 1 / 5))
    policy = abroad.steps.decision.policy  # what each will do, of the others in the order of seats
    knows = expecting(abroad, policy[:, :, (np.arange(4)[:, None] + np.arange(1, 4)) % 4])
    kept = {"trained games plays": [even], "trained games meets": [knows]}
    found = finding_of(dataclasses.replace(clean, kept=clean.kept | kept), "company")
    assert found.verdict == "fail" and found.figure is not None and found.figure >= 1.0, found.next
    assert "nearest_stag" in found.next
    kept = {"trained games plays": [home], "trained games meets": [knows]}
    found = finding_of(dataclasses.replace(clean, kept=clean.kept | kept), "company")
    assert found.verdict == "pass", found.next


def expecting(games, prediction):
    """The same games, in which this was expected of everybody."""
    decision = games.steps.decision
    thoughts = dataclasses.replace(decision.thoughts, prediction=prediction)
    decision = dataclasses.replace(decision, thoughts=thoughts)
    return dataclasses.replace(games, steps=dataclasses.replace(games.steps, decision=decision))


def test_what_is_imagined_is_imagined_by_the_weights_that_were_saved():
    one = a_run().trained_updates()[0]
    assert {"imagined", "estimates", "rows"} <= set(one.taps)
    first = np.asarray(one.taps["imagined"].policy_input)[..., 0, :]
    assert_allclose(first, np.asarray(one.taps["rows"].policy_input), rtol=1e-5, atol=1e-5)


def test_an_experiment_that_nobody_has_trained_is_not_asked():
    fresh = dataclasses.replace(a_run(), run=None, kept={})
    for name in TRAINED:
        found = finding_of(fresh, name)
        assert found.verdict == "not_run" and "trained run" in found.next


def test_they_are_in_the_catalogue():
    names = {check.name for check in (*MODELS, *VALUE)}
    assert set(TRAINED) <= names
