"""HOP's wiring: orders, lessons, labels, beliefs and search each do what they are there for."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.algorithms.hop import _notes, _parts, _planner, _teachers, _think, hop
from coplay.algorithms.hop_config import HOPConfig
from coplay.algorithms.hop_search import _prior
from coplay.algorithms.opponent_stage import _labels, _played, _rows
from coplay.algorithms.orders import DRAWS, FREE, WHIM, drawn_orders
from coplay.algorithms.ppo import Plan
from coplay.algorithms.search_table import Plans, most_visited
from coplay.envs import make_game
from coplay.envs.contract import COMPILE_FAST
from coplay.errors import BadInput
from coplay.opponents.goal_policy import policies, wishes
from coplay.opponents.goals import UNKNOWN, shown_goals
from coplay.opponents.minds import open_mind, watched
from coplay.training.rollout import collect, start_playing
from coplay.types import as_played

CONFIG = HOPConfig(
    hidden=(8, 8),
    model_hidden=(8, 8),
    trees=2,
    simulations=8,
    searched_games=0.5,
    minibatches=2,
    epochs=1,
)
PLAN = Plan(num_updates=4, sequence_length=40, num_envs=16, num_steps=40)
SEATS = (0, 1, 2, 3)
KEY = jax.random.key(6)
compiled = functools.partial(jax.jit, compiler_options=COMPILE_FAST)


@functools.cache
def game(**options):
    return make_game("4h1s_4x4", observation="entities", **options)


@functools.cache
def rounds():
    """Two rounds of play in a row, and what played them."""
    env, algorithm = game(), hop(game(), SEATS, CONFIG, PLAN)
    params = algorithm.init(jax.random.key(0))
    actor = compiled(lambda key: start_playing(env, algorithm, key, 16))(jax.random.key(1))
    play = compiled(lambda actor, key: collect(env, algorithm, params, actor, key, 40, 40)[:2])
    actor, first = play(actor, jax.random.key(2))
    _, second = play(actor, jax.random.key(3))
    return algorithm, params, first, second


def test_orders_go_to_a_share_of_the_games_and_favour_no_seat():
    draws = jax.random.uniform(jax.random.key(0), (40_000, DRAWS))
    order = np.asarray(drawn_orders(game().goals, 0.75, False, jnp.arange(4), draws, jax.random.key(1)))
    assert_allclose((order != FREE).any(axis=1).mean(), 0.75, atol=0.01)
    shares = [(order == goal).mean(axis=0) for goal in (0, 1)]
    assert np.ptp(shares) < 0.015
    alone_among_hares = ((order[:, 1:] == 1).all(axis=1) & (order[:, 0] == FREE)).mean()
    assert_allclose(alone_among_hares, 0.75 * 5 / 8 / 4 * 0.3125, atol=0.004)


def test_a_fifth_of_the_orders_is_a_whim():
    draws = jax.random.uniform(jax.random.key(0), (40_000, DRAWS))
    order = np.asarray(drawn_orders(game().goals, 0.75, True, jnp.arange(4), draws, jax.random.key(1)))
    assert_allclose((order == WHIM).sum() / (order != FREE).sum(), 0.2, atol=0.01)
    assert np.ptp((order == WHIM).mean(axis=0)) < 0.015


def test_a_single_learner_among_others_is_free():
    draws = jax.random.uniform(jax.random.key(0), (100, DRAWS))
    order = drawn_orders(game().goals, 0.75, True, jnp.array([2]), draws, jax.random.key(1))
    assert (np.asarray(order) == FREE).all()


def test_an_order_holds_while_its_goal_can_be_had_and_beliefs_start_open():
    _, _, first, _ = rounds()
    notes, before = first.steps.decision.notes, first.steps.before
    same = notes["order"][1:] == notes["order"][:-1]
    possible = np.asarray(compiled(lambda t: wishes(game().goals, t).possible)(before))
    ordered = np.maximum(notes["order"], 0)[..., None]
    can_be_had = np.take_along_axis(possible[1:], ordered[:-1], axis=-1)[..., 0] | (notes["order"][:-1] < 0)
    assert (same | ~can_be_had | before.first[1:, :, None]).all()
    has_order = (notes["order"] >= 0) & before.active
    assert np.take_along_axis(possible, ordered, axis=-1)[..., 0][has_order].all()
    assert_allclose(notes["belief"][0], 0.5)
    assert_allclose(notes["belief"].sum(axis=-1), 1.0, rtol=1e-5)


def test_only_free_rows_teach_the_policy():
    algorithm, params, first, _ = rounds()
    learner = algorithm.learn.init(params)
    update = compiled(lambda t: algorithm.learn.update(params, learner, t, jax.random.key(0))[0])
    played, base = first.steps.decision, update(first)
    for free in (True, False):
        touched = (played.notes["order"] == FREE) == free
        decision = dataclasses.replace(played, log_prob=played.log_prob - 0.1 * touched)
        changed = dataclasses.replace(first, steps=dataclasses.replace(first.steps, decision=decision))
        moved = update(changed)
        assert _same(base["policy"], moved["policy"]) != free
        assert _same(base["pursuit"], moved["pursuit"])


def test_whoever_is_on_a_whim_does_anything_and_teaches_nobody_what_it_is_worth_to_be_free():
    algorithm, params, first, _ = rounds()
    played = first.steps.decision
    on_a_whim = np.asarray((played.notes["order"] == WHIM) & first.steps.before.active)
    assert on_a_whim.any()
    legal = np.asarray(first.steps.before.legal)
    assert_allclose(played.policy[on_a_whim], (legal / legal.sum(-1, keepdims=True))[on_a_whim], rtol=1e-6)
    learner = algorithm.learn.init(params)
    update = compiled(lambda t: algorithm.learn.update(params, learner, t, jax.random.key(0))[0]["policy"])
    base = update(first)
    for rows, counts in ((on_a_whim, False), (~on_a_whim & first.steps.before.active, True)):
        # Rows are told another goal: only rows that are learned from make a difference.
        belief = jnp.where(rows[..., None, None], 1.0 - played.notes["belief"] * 0.5, played.notes["belief"])
        decision = dataclasses.replace(played, notes=played.notes | {"belief": belief})
        changed = dataclasses.replace(first, steps=dataclasses.replace(first.steps, decision=decision))
        assert _same(base, update(changed)) != counts


def _same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_models_learn_from_labelled_steps_of_players_in_the_game_and_from_no_others():
    _, _, first, second = rounds()
    env = game()
    parts, _ = _parts(env, SEATS, CONFIG)

    @compiled
    def learned_from(first, second):
        before, now = _played(env, parts.models, first), _played(env, parts.models, second)
        label = _labels(CONFIG, before, now)
        return label, _rows(parts.models, before, label)

    label, rows = learned_from(first, second)
    by_hand = _labels_by_hand(first, second)
    assert_array_equal(label, by_hand)
    active = np.swapaxes(np.asarray(first.steps.before.active), 0, 1)
    for seat in SEATS:
        for place in range(3):
            other = (seat + 1 + place) % 4
            counted = np.asarray(rows.weight[seat, place]) > 0
            assert_array_equal(counted, active[:, :, other] & (by_hand[:, :, other] != UNKNOWN))
    assert (by_hand != UNKNOWN).any()


def _labels_by_hand(first, second):
    """Each step's label by looking ahead, one step at a time, to the end of its game."""
    both = jax.tree.map(lambda a, b: np.concatenate([a, b]), first.steps, second.steps)
    shown = np.asarray(compiled(lambda steps: shown_goals(game(), steps))(jax.tree.map(jnp.asarray, both)))
    over = both.after.truncated | both.after.terminated.all(axis=-1)
    look = compiled(jax.vmap(jax.vmap(jax.vmap(lambda row: game().goals.look(row)[0]))))
    was, is_now = (np.asarray(look(jnp.asarray(x.observation))) for x in (both.before, both.after))
    lost = (was & ~is_now).any(axis=-1)
    time, envs, agents = shown.shape
    label = np.full((envs, time // 2, agents), UNKNOWN)
    for env, start, agent in np.ndindex(label.shape):
        for step in range(start, time):
            label[env, start, agent] = shown[step, env, agent]
            if label[env, start, agent] != UNKNOWN or over[step, env] or lost[step, env, agent]:
                break
    assert (lost & (shown == UNKNOWN)).any()
    return label


def test_a_goal_given_away_when_another_was_gone_already_is_not_kept():
    _, params, first, _ = rounds()
    parts, _ = _parts(game(), SEATS, CONFIG)
    goals, weights = game().goals, parts.policy.sharing.weights(params["opponents"])
    stag_is_gone = dataclasses.replace(
        goals, look=lambda row: (goals.look(row)[0] & jnp.array([False, True]), goals.look(row)[1])
    )

    def kept(goals):
        """Labels at the ends of episodes that are still to come, after each step."""
        models = parts.models._replace(goals=goals)

        def one_step(mind, step):
            mind = watched(models, weights, parts.habits, mind, step, shown_goals(game(), step))
            return mind, mind.label

        start = open_mind(parts.habits, 16, 4, 3)
        return np.asarray(compiled(lambda: jax.lax.scan(one_step, start, first.steps)[1])())

    assert (kept(goals) == 1).any()  # a hare was taken, and there was a stag
    assert (kept(stag_is_gone) == UNKNOWN).all()


@functools.cache
def searched():
    """One planned move in sixteen games."""
    algorithm, params, _, _ = rounds()
    playing = as_played(algorithm)
    env = game()
    actor = compiled(lambda key: start_playing(env, playing, key, 16))(jax.random.key(5))

    @compiled
    def decide(params):
        return playing.act(params, actor.memory, actor.timestep, actor.env_state, KEY)[1]

    return decide, params, actor


def test_a_planned_move_is_legal_and_all_walks_are_counted():
    decide, params, actor = searched()
    decision = decide(params)
    legal = np.take_along_axis(np.asarray(actor.timestep.legal), np.asarray(decision.action)[..., None], -1)
    assert legal.all()
    assert_array_equal(decision.notes["search/visits"].sum(axis=-1), CONFIG.trees * CONFIG.simulations)
    assert_allclose(decision.policy.sum(axis=-1), 1.0)


@pytest.mark.parametrize("part", ["policy", "opponents"])
def test_a_search_listens_to_its_networks_and_to_its_models(part):
    # Models are only drawn from, so they are bent towards one action; a policy that is no number spoils all.
    decide, params, _ = searched()
    base = decide(params).notes["search/q"]
    bent = dict(params)
    if part == "policy":
        bent["policy"] = jax.tree.map(
            lambda x: x * jnp.nan if x.dtype == jnp.float32 else x, params["policy"]
        )
        assert np.isnan(decide(bent).notes["search/q"]).all()
        return
    last = params["opponents"].own["group"].layers[-1].bias
    bent["opponents"] = jax.tree.map(
        lambda x: x.at[..., 0].add(50.0) if x is last else x, params["opponents"]
    )
    assert not np.array_equal(base, decide(bent).notes["search/q"])


CHANGES = [{"company": "random"}, {"company": "self"}, {"models": "direct"}, {"leaf": "rollout"}]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: "-".join(change.values()))
def test_each_ablation_changes_what_a_search_finds(change):
    decide, params, actor = searched()
    decided = jax.tree.map(lambda x: 30.0 * x, params["opponents"])  # models that know what they expect
    params = params | {"opponents": decided}
    base = decide(params)
    player = as_played(hop(game(), SEATS, dataclasses.replace(CONFIG, **change), PLAN))
    other = compiled(lambda: player.act(params, actor.memory, actor.timestep, actor.env_state, KEY)[1])()
    assert np.isfinite(other.notes["search/q"]).all()
    assert not np.array_equal(base.notes["search/q"], other.notes["search/q"])


def test_without_within_beliefs_keep_through_an_episode_what_they_were_at_its_start():
    env, (_, params, first, _) = game(), rounds()
    before = jax.tree.map(lambda x: x[0], first.steps)
    moved, kept = (
        hop(env, SEATS, dataclasses.replace(CONFIG, within=within), PLAN).watch(
            params, jax.tree.map(lambda x: x[0], first.memory), before
        )
        for within in ("bayes", "none")
    )
    start = first.memory.mind.log_belief[0]
    assert_array_equal(kept.mind.log_belief, start)
    assert not np.array_equal(moved.mind.log_belief, start)


@pytest.mark.parametrize(("between", "expected"), [("weighed", 0.9 * 0.6 + 0.1 * 0.05), ("none", 0.05)])
def test_what_was_thought_of_whims_lasts_into_the_next_episode_where_anything_does(between, expected):
    env, (_, params, first, _) = game(), rounds()
    player = hop(env, SEATS, dataclasses.replace(CONFIG, between=between), PLAN)
    memory = player.remember(16)
    memory = dataclasses.replace(
        memory, mind=dataclasses.replace(memory.mind, whim=jnp.full_like(memory.mind.whim, 0.6))
    )
    last = jax.tree.map(lambda x: x[0], first.steps)
    gone = dataclasses.replace(last.before, active=jnp.zeros_like(last.before.active))
    over = dataclasses.replace(last.after, truncated=jnp.ones_like(last.after.truncated))
    last = dataclasses.replace(last, before=gone, after=over)
    whim = compiled(player.watch)(params, memory, last).mind.whim
    assert_allclose(whim, expected, rtol=1e-5)


def test_a_search_among_those_who_want_nothing_does_not_ask_their_models():
    _, params, actor = searched()
    last = params["opponents"].own["group"].layers[-1].bias
    bent = params | {
        "opponents": jax.tree.map(lambda x: x.at[..., 0].add(50.0) if x is last else x, params["opponents"])
    }
    player = as_played(hop(game(), SEATS, CONFIG, PLAN))

    @compiled
    def found(params, whim):
        mind = dataclasses.replace(actor.memory.mind, whim=jnp.full_like(actor.memory.mind.whim, whim))
        memory = dataclasses.replace(actor.memory, mind=mind)
        return player.act(params, memory, actor.timestep, actor.env_state, KEY)[1]

    assert_array_equal(found(params, 1.0).notes["search/q"], found(bent, 1.0).notes["search/q"])
    assert not np.array_equal(found(params, 0.0).notes["search/q"], found(bent, 0.0).notes["search/q"])
    legal = np.asarray(actor.timestep.legal)[:, 1]
    expected = legal / legal.sum(axis=-1, keepdims=True)
    assert_allclose(found(bent, 1.0).thoughts.prediction[:, 0, 0], expected, rtol=1e-6)
    assert_allclose(found(bent, 1.0).thoughts.belief, 0.0, atol=1e-6)


def test_the_most_visited_is_chosen_and_q_decides_among_equals():
    visits = jnp.array([[[40.0, 40.0, 16.0], [50.0, 30.0, 16.0], [60.0, 20.0, 16.0]]])
    plans = Plans(visits=visits, q=jnp.array([[[1.0, 2.0, 9.0], [1.0, 2.0, 9.0], [1.0, 2.0, 9.0]]]))
    assert_array_equal(most_visited(plans, 3), [[1, 0, 0]])


def test_direct_models_are_told_no_goal():
    parts, _ = _parts(game(), SEATS, dataclasses.replace(CONFIG, models="direct"))
    _, params, first, _ = rounds()
    timestep = jax.tree.map(lambda x: x[3], first.steps.before)
    weights = parts.policy.sharing.weights(params["opponents"])
    policy = policies(parts.models, weights, timestep, wishes(parts.models.goals, timestep))
    assert_array_equal(policy[..., 0, :], policy[..., 1, :])
    told, _ = _parts(game(), SEATS, CONFIG)
    policy = policies(told.models, weights, timestep, wishes(told.models.goals, timestep))
    assert not np.array_equal(policy[..., 0, :], policy[..., 1, :])


def test_a_leaf_is_worth_the_best_of_being_free_and_of_every_errand_that_can_be_had():
    parts, _ = _parts(game(), SEATS, CONFIG)
    _, params, _, _ = rounds()
    size = params["policy"].own["group"]["policy"].layers[0].weight.shape[-2]
    rows = jax.random.normal(jax.random.key(0), (4, 5, size))
    errands = jax.random.normal(jax.random.key(1), (4, 5, 2, game().goals.features))

    def worth(*possible):
        allowed = jnp.broadcast_to(jnp.array(possible), (4, 5, 2))
        return np.asarray(_think(parts, params["policy"], rows, allowed, errands)[1])

    free, stag, hare, both = (
        worth(*possible) for possible in ((False, False), (True, False), (False, True), (True, True))
    )
    assert_array_equal(both, np.maximum(stag, hare))
    assert (stag >= free).all() and (hare >= free).all()
    assert (both > free).any()


def test_the_errand_is_the_goal_worth_most_of_those_that_can_be_had():
    parts, _ = _parts(game(), SEATS, CONFIG)
    _, params, _, _ = rounds()
    size = params["policy"].own["group"]["policy"].layers[0].weight.shape[-2]
    rows = jax.random.normal(jax.random.key(0), (4, 5, size))
    errands = jax.random.normal(jax.random.key(1), (4, 5, 2, game().goals.features))

    def asked(*possible):
        allowed = jnp.broadcast_to(jnp.array(possible), (4, 5, 2))
        return [np.asarray(x) for x in _think(parts, params["policy"], rows, allowed, errands)[1:]]

    assert (asked(False, False)[1] == FREE).all()
    (stag, _), (hare, _), (both, errand) = asked(True, False), asked(False, True), asked(True, True)
    assert set(np.unique(errand)) == {FREE, 0, 1}
    assert_array_equal(both[errand == 0], stag[errand == 0])
    assert_array_equal(both[errand == 1], hare[errand == 1])


def test_what_is_tried_first_is_the_policy_chance_and_the_errand_in_their_shares():
    _, params, first, _ = rounds()
    timestep = jax.tree.map(lambda x: jnp.concatenate([x[0]] * 4), first.steps.before)  # a game for each seat
    searches = timestep.first.shape[0]
    logits = jax.random.normal(jax.random.key(3), (searches, game().num_actions))
    errand = jnp.arange(searches) % 3 + FREE

    def prior(open_prior, errands=0.0):
        parts, _ = _parts(game(), SEATS, dataclasses.replace(CONFIG, open_prior=open_prior))
        planner = _planner(parts, params, 1, errands)
        legal = planner.table.own(timestep.legal)
        return np.asarray(_prior(planner, timestep, legal, logits, errand))

    policy, chance, goes = prior(0.0), prior(1.0), prior(0.0, errands=1.0)
    mixed, is_free = prior(0.5, errands=0.5), np.asarray(errand == FREE)
    shares = np.where(
        is_free[:, None], 0.5 * policy + 0.5 * chance, 0.25 * policy + 0.25 * chance + 0.5 * goes
    )
    assert_allclose(mixed, shares, atol=1e-6)
    assert_array_equal(goes[is_free], policy[is_free])
    assert not np.allclose(goes[~is_free], policy[~is_free], atol=1e-3)
    assert_allclose(mixed.sum(axis=-1), 1.0, rtol=1e-5)


def test_who_is_told_is_certain_and_who_is_not_goes_on_believing():
    algorithm, _, first, _ = rounds()
    parts, _ = _parts(game(), SEATS, CONFIG)
    memory = jax.tree.map(lambda x: x[0], first.memory)
    goals = jnp.broadcast_to(jnp.array([UNKNOWN, 0, 1, UNKNOWN]), (16, 4))
    told = algorithm.told(memory, goals)
    assert_array_equal(told.mind.log_belief, memory.mind.log_belief)  # what was seen goes on for itself
    timestep = jax.tree.map(lambda x: x[0], first.steps.before)
    notes = compiled(lambda memory: _notes(parts, memory, timestep))(told)
    assert_allclose(notes["belief"][:, 0], np.broadcast_to([[1, 0], [0, 1], [0.5, 0.5]], (16, 3, 2)))
    assert_allclose(notes["whim"][:, 0], np.broadcast_to([0, 0, 0.05], (16, 3)))


def test_of_our_own_seats_only_those_under_orders_teach_the_models():
    parts, _ = _parts(game(), SEATS, CONFIG)
    _, _, first, _ = rounds()
    teaches = _played(game(), parts.models, first, _teachers(parts)).teaches
    expected = first.steps.before.active & (first.steps.decision.notes["order"] >= 0)
    assert_array_equal(teaches, np.swapaxes(expected, 0, 1))
    assert 0 < teaches.mean() < first.steps.before.active.mean()
    alone, _ = _parts(game(), (2,), CONFIG)
    assert _teachers(alone) is None


@pytest.mark.parametrize("players", [2, 6])
def test_it_plays_and_learns_with_any_number_of_players(players):
    env = make_game("stag_hunt", players=players, size=4, observation="entities")
    plan = PLAN._replace(num_steps=8, sequence_length=8, num_envs=4)
    algorithm = hop(env, tuple(range(players)), CONFIG, plan)
    params = algorithm.init(jax.random.key(0))

    @compiled
    def one_round(params):
        actor = start_playing(env, algorithm, jax.random.key(1), 4)
        _, trajectory, _ = collect(env, algorithm, params, actor, jax.random.key(2), 8, 8)
        learned = algorithm.learn.update(params, algorithm.learn.init(params), trajectory, jax.random.key(3))
        return learned[0], learned[2]

    learned, metrics = one_round(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(learned))
    assert metrics["policy/loss"].shape == (players,)


def test_a_game_that_hides_goals_is_refused_in_a_sentence():
    with pytest.raises(BadInput, match="observation='entities'"):
        hop(make_game("snowdrift"), SEATS, CONFIG, PLAN)


def test_settings_that_hop_does_not_have_are_refused():
    with pytest.raises(ValueError, match="per_agent"):
        HOPConfig(parameters="shared")
    for name in ("trees", "model_minibatches", "pursuit_epochs"):
        with pytest.raises(ValueError, match=f"{name}=0"):
            HOPConfig(**{name: 0})
    with pytest.raises(ValueError, match="errand_prior"):
        HOPConfig(errand_prior=1.2)
