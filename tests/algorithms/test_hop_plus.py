"""HOP+'s wiring: every part can be switched off, reaches what it is meant to reach, and nothing else."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.algorithms import value_scale
from coplay.algorithms.hop_plus import hop_plus
from coplay.algorithms.hop_plus_config import HOPPlusConfig
from coplay.algorithms.hop_plus_imagining import (
    _figures,
    are_good,
    beside_play,
    hidden_of,
    imagination_of,
)
from coplay.algorithms.hop_plus_parts import closeness, parts_of
from coplay.algorithms.imagination import imagine, values
from coplay.algorithms.imagined_search import Planner, one_step, plan
from coplay.algorithms.losses import log_policy
from coplay.algorithms.ppo import Beside, Plan, _mixed, ppo
from coplay.algorithms.ppo_config import PPOConfig
from coplay.algorithms.search_table import Table
from coplay.algorithms.subgoal_stage import macro_f1, subgoal_stage
from coplay.algorithms.targets import make_batch, usual_lesson
from coplay.algorithms.world_stage import world_stage
from coplay.diagnostics import gates
from coplay.envs import make_game
from coplay.envs.contract import COMPILE_FAST
from coplay.errors import BadInput
from coplay.opponents.goal_policy import those_after
from coplay.training.rollout import collect, start_playing
from tests.small import same_bits

SMALL = {"hidden": (8, 8), "minibatches": 2, "epochs": 2}
CONFIG = HOPPlusConfig(
    **SMALL,
    model_hidden=(8, 8),
    world_hidden=(8,),
    world_members=2,
    world_steps=2,
    world_batch=64,
    world_memory=640,
    gates="off",
)
PLAN = Plan(num_updates=4, sequence_length=10, num_envs=16, num_steps=20)
SEATS = (0, 1, 2, 3)
KEY = jax.random.key(5)
compiled = functools.partial(jax.jit, compiler_options=COMPILE_FAST)


@functools.cache
def game():
    return make_game("4h1s_4x4", observation="entities")


@functools.cache
def played(config=CONFIG, algorithm=hop_plus):
    """Weights, learner, and a round of play; the same draws for every algorithm."""
    env, player = game(), algorithm(game(), SEATS, config, PLAN)
    params = player.init(jax.random.key(0))
    actor = compiled(lambda key: start_playing(env, player, key, 16))(jax.random.key(1))
    play = compiled(lambda actor, key: collect(env, player, params, actor, key, 20, 10)[1])
    return player, params, player.learn.init(params), play(actor, jax.random.key(2))


@functools.cache
def learned(config=CONFIG, algorithm=hop_plus):
    player, params, learner, trajectory = played(config, algorithm)
    return compiled(lambda: player.learn.update(params, learner, trajectory, KEY))()


@functools.cache
def imagined(config=CONFIG, most=3):
    _, params, _, trajectory = played(config)
    parts, _ = parts_of(game(), SEATS, config)

    def run():
        memory = hidden_of(parts, params, trajectory, PLAN.sequence_length)
        return imagine(imagination_of(parts), params, trajectory, memory, jnp.int32(most), KEY)

    return compiled(run)()


def networks(params):
    """Policy and critic, of PPO or HOP+."""
    own = (params["policy"] if isinstance(params, dict) else params).own["group"]
    return {name: own[name] for name in ("policy", "critic", "scale")}


OFF = HOPPlusConfig(**SMALL, subgoals="none", world="none", real_share=1.0)
UNUSED = dataclasses.replace(CONFIG, policy_reads=False, real_share=1.0)


@pytest.mark.optimised  # compiled without care, PPO is rounded in another way beside models
@pytest.mark.parametrize("config", [OFF, UNUSED], ids=["every part off", "models learn and nobody asks them"])
def test_switched_off_it_is_ppo_to_the_bit(config):
    ours, theirs = learned(config), learned(PPOConfig(**SMALL), ppo)
    assert same_bits(networks(ours[0]), networks(theirs[0]))


def test_switched_on_it_is_not():
    config = dataclasses.replace(CONFIG, policy_reads=False)
    assert not same_bits(networks(learned(config)[0])["policy"], networks(learned(UNUSED)[0])["policy"])


def test_a_closed_gate_is_no_imagination():
    closed = dataclasses.replace(CONFIG, policy_reads=False, gates="auto")
    ours, plain = (networks(learned(config)[0]) for config in (closed, UNUSED))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert_allclose(a, b, atol=1e-5)


def test_every_part_learns_and_tells_how_well():
    _, params, _, _ = played()
    after, _, figures = learned()
    for name in ("policy", "critic", "others"):
        for a, b in zip(
            *(jax.tree.leaves(p["policy"].own["group"][name]) for p in (params, after)), strict=True
        ):
            moved = np.asarray(a != b).reshape(4, -1).any(axis=1)
            assert moved.all(), f"{name} of some seat has not moved"
    assert not same_bits(params["world"], after["world"])
    for name in (
        "world/exact",
        "opponents/surprise",
        "imagined/policy/ratio",
        "imagination/rung",
        "value/bias",
    ):
        assert np.isfinite(figures[name]).all(), name


# --- imagined rows -------------------------------------------------------------------------------


def test_rewards_are_told_by_source():
    _, _, _, trajectory = played()
    figures = learned()[2]
    reward = np.asarray(trajectory.steps.after.reward)
    active = np.asarray(trajectory.steps.before.active)
    for seat in SEATS:
        rows = reward[..., seat][active[..., seat]]
        assert_allclose(figures["real/reward"][seat], rows.mean(), rtol=1e-4)
        assert_allclose(figures["real/reward_std"][seat], rows.std(), rtol=1e-4)
        assert figures["count/samples/imagined"][seat] == len(rows)  # one step from every moment


def test_figures_of_imagined_rows_are_over_those_that_count():
    rows, nothing = imagined(), jnp.zeros((20, 16, 4))
    figures = _figures(rows, nothing, nothing > 0)
    counts = np.asarray(rows.counts)
    assert not counts.all()
    told = {"reward": rows.reward, "return": rows.value + rows.advantage, "advantage": rows.advantage}
    for name, x in told.items():
        mine = np.asarray(x)[:, :, 2][counts[:, :, 2]]  # of the third seat
        assert_allclose(figures[f"imagined/{name}_std"][2], mine.std(), rtol=1e-3)
    assert_allclose(figures["imagined/bias"][2], -mine.mean(), atol=1e-5)


def test_imagined_rows_are_of_the_policy_that_learns_from_them():
    _, params, _, _ = played()
    parts, _ = parts_of(game(), SEATS, CONFIG)
    rows = imagined()

    @compiled
    def again():
        def one(weights, inputs, legal):
            network = eqx.combine(parts.policy.networks["policy"], weights["policy"])
            return log_policy(network(inputs), legal)

        weights = parts.policy.sharing.weights(params["policy"])
        return jax.vmap(one, (0, 2, 2), 2)(weights, rows.policy_input, rows.legal)

    told = np.take_along_axis(np.asarray(again()), np.asarray(rows.action)[..., None], axis=-1)[..., 0]
    counts = np.asarray(rows.counts)
    assert_allclose(told[counts], np.asarray(rows.log_prob)[counts], atol=1e-5)
    assert counts.any()


BOUND = dataclasses.replace(CONFIG, world="game", others="policies")


def test_with_the_true_game_and_policies_a_step_is_worth_what_the_game_pays_and_what_follows():
    """Against every legal joint move's true outcome: reward and value of where it leads."""
    _, _, _, trajectory = played(BOUND)
    rows = imagined(BOUND)
    assert set(np.unique(rows.reward)) <= {np.float32(v) for v in game().reward_values}
    # Nobody else acts in a game with one player left, so there what it did decides all.
    steps = trajectory.steps
    alone = np.asarray(steps.before.active.sum(axis=-1) == 1)
    where = np.argwhere(alone[:, :, None] & np.asarray(steps.before.active))
    assert len(where), "this round does not show it"
    for time, env, seat in where[:8]:
        action = np.zeros(4, np.int32)
        action[seat] = rows.action[time, env, seat, 0]
        state = jax.tree.map(lambda x, t=time, e=env: x[t, e], steps.state)
        _, after = game().step(state, jnp.asarray(action), jax.random.key(0))
        assert_allclose(rows.reward[time, env, seat, 0], after.reward[seat])


def test_who_has_left_imagines_nothing():
    _, _, _, trajectory = played()
    assert_array_equal(imagined().counts[..., 0], trajectory.steps.before.active)


def test_several_steps_go_on_from_where_the_one_before_led():
    config = dataclasses.replace(CONFIG, imagined_steps=3)
    rows = imagined(config)
    assert rows.counts.shape[-1] == 3
    counts = np.asarray(rows.counts)
    assert (counts[..., 1] <= counts[..., 0]).all()
    # Rows of the second step are other moments than those of the first.
    both = counts[..., 0] & counts[..., 1]
    assert (
        (np.asarray(rows.policy_input)[..., 0, :] != np.asarray(rows.policy_input)[..., 1, :])
        .any(-1)[both]
        .all()
    )


def test_branches_start_from_the_same_moments_and_go_different_ways():
    config = dataclasses.replace(CONFIG, world="game", others="policies", imagined_steps=2)
    split = imagined(dataclasses.replace(config, imagined_branches=3))
    assert split.action.shape[3] == 6
    first = jax.tree.map(lambda x: x[:, :, :, ::2], split)  # of every branch
    for same in (first.policy_input, first.value, first.counts):
        assert_array_equal(same, jnp.repeat(same[:, :, :, :1], 3, axis=3))
    drawn = np.asarray(first.action)[np.asarray(first.counts[..., 0])]
    assert (drawn[:, 0] != drawn[:, 1]).mean() > 0.3
    assert (drawn[:, 0] == drawn[:, 1]).mean() > 0.1


def test_steps_beyond_what_is_allowed_count_for_nothing_and_returns_are_cut_before_them():
    config = dataclasses.replace(CONFIG, imagined_steps=3)
    far, near = imagined(config), imagined(config, most=1)
    assert not np.asarray(near.counts)[..., 1:].any()
    # One step on, bootstrapped: as a single step's return with trace 0 would be from the same values.
    short = imagined(dataclasses.replace(config, trace=0.0))
    counts = np.asarray(near.counts)[..., 0]
    assert_allclose(
        np.asarray(near.advantage)[..., 0][counts], np.asarray(short.advantage)[..., 0][counts], atol=1e-5
    )
    assert not np.allclose(
        np.asarray(far.advantage)[..., 0][counts], np.asarray(near.advantage)[..., 0][counts]
    )


def test_sums_of_imagined_rewards_take_the_cut_for_the_end():
    config = dataclasses.replace(CONFIG, imagined_steps=3, imagined_returns="sums", world="game")
    rows = imagined(config)
    reward, counts = np.asarray(rows.reward), np.asarray(rows.counts)
    sums = reward[..., 0] + 0.99 * reward[..., 1] + 0.99**2 * reward[..., 2]
    found = np.asarray(rows.value + rows.advantage)[..., 0]
    whole = counts.all(axis=-1)
    assert whole.any()
    assert_allclose(found[whole], sums[whole], atol=1e-5)


def test_subgoals_in_imagination_are_those_of_play_on_the_same_history():
    _, params, _, trajectory = played()
    parts, _ = parts_of(game(), SEATS, dataclasses.replace(CONFIG, imagined_steps=2))
    memory = compiled(lambda: hidden_of(parts, params, trajectory, PLAN.sequence_length))()
    notice = imagination_of(parts).notice
    at = jax.tree.map(lambda x: x[4], trajectory.steps)
    _, notes = compiled(lambda: notice(params, memory[3], at.decision.notes, at.before))()
    read = np.asarray(notes["reading"].subgoal.mean)
    assert_allclose(read, at.decision.notes["reading"].subgoal.mean, atol=1e-5)
    assert (np.abs(read) > 0).any()


@pytest.mark.parametrize("name", ["4h1s_4x4", "snowdrift"])
def test_closeness_is_that_of_the_nearest_thing_to_be_after(name):
    env = make_game(name, observation="entities")
    state, timestep = jax.vmap(env.reset)(jax.random.split(KEY, 32))
    board = jax.vmap(env.entities.read)(state) if env.entities else None
    found = np.asarray(closeness(env.goals, timestep))
    if board is None:
        rows = np.asarray(timestep.observation)
        others, count = env.num_agents - 1, env.num_agents - 1 + 6
        places = rows[:, :, 2 : 2 + 3 * count].reshape(*rows.shape[:2], 3, count)[..., others:]
        away = np.abs(np.round(places[:, :, :2] * 8)).sum(axis=2).min(axis=-1)
    else:
        size = 4
        at, to = (np.stack(np.divmod(np.asarray(x), size), -1) for x in (board.players, board.things))
        away = np.abs(at[:, :, None] - to[:, None]).sum(axis=-1).min(axis=-1)
    assert_allclose(found, 1 / (1 + np.exp(away - 3.0)), atol=1e-5)


def test_who_is_far_from_everything_is_read_less():
    config = dataclasses.replace(CONFIG, goal_gate="distance")
    _, params, _, trajectory = played()
    steps = trajectory.steps
    rows = [
        parts_of(game(), SEATS, c)[0].policy.views["policy"](
            steps.before, steps.decision.notes, SEATS, params["policy"]
        )[..., -3 * c.subgoal_size :]
        for c in (CONFIG, config)
    ]
    near = np.asarray(closeness(game().goals, steps.before))[..., those_after(SEATS, 4)]
    plain, gated = (np.asarray(x).reshape(*near.shape, -1) for x in rows)
    assert_allclose(gated, plain * near[..., None], atol=1e-6)
    assert (np.abs(plain) > 0).any()


# --- what reaches what ---------------------------------------------------------------------------


def with_poisoned_world(params):
    spoiled = jax.tree.map(lambda x: x * jnp.nan, params["world"])
    return params | {"world": spoiled}


@functools.cache
def beside(config, is_poisoned=False, rung=gates.SEVERAL):
    _, params, _, trajectory = played(config)
    parts, _ = parts_of(game(), SEATS, config)
    params = with_poisoned_world(params) if is_poisoned else params
    return compiled(lambda: beside_play(parts, PLAN, params, trajectory, jnp.int32(rung), KEY))()


def test_what_the_world_says_reaches_what_is_learned_where_gates_are_open():
    clean, spoiled = (beside(CONFIG, is_poisoned)[0].rows for is_poisoned in (False, True))
    assert not same_bits(clean.policy.advantage, spoiled.policy.advantage)


@pytest.mark.parametrize(("rung", "share"), [(0, 0.0), (1, 0.0), (2, 0.5), (3, 0.5)])
def test_imagined_rows_weigh_nothing_below_the_second_rung(rung, share):
    rows, told = beside(CONFIG, rung=rung)[0]
    assert_allclose(told, share)
    assert (np.abs(rows.policy.advantage).sum() > 0) == (share > 0)


@pytest.mark.parametrize("rung", [0, 1])
def test_a_world_that_has_lost_its_senses_reaches_nobody_through_a_closed_gate(rung):
    rows = beside(dataclasses.replace(CONFIG, critic_data="both"), is_poisoned=True, rung=rung)[0].rows
    assert_array_equal(rows.policy.advantage, 0.0)
    assert_array_equal(rows.value_weight, 0.0)


def test_imagined_returns_are_put_to_the_scale_of_this_round():
    rows, share = beside(dataclasses.replace(CONFIG, critic_data="both"))[0]
    parts, _ = parts_of(game(), SEATS, CONFIG)
    _, params, _, trajectory = played()
    settled = dataclasses.replace(CONFIG, value_normalisation=True)
    batch, scale, *_ = compiled(
        lambda: make_batch(
            game(), parts.policy, settled, usual_lesson(settled), 10, params["policy"], trajectory
        )
    )()
    each = parts.policy.sharing.map
    mixed = _mixed(batch, Beside(rows, share), each(value_scale.normalised), scale)
    back = each(value_scale.denormalised)(scale, mixed.imagined.returns)
    assert_allclose(back, rows.returns, atol=1e-4)
    old = each(value_scale.scale_of)(parts.policy.sharing.weights(params["policy"]))
    assert not np.allclose(np.asarray(each(value_scale.denormalised)(old, mixed.imagined.returns)), back)


def test_weights_are_the_share_of_a_mean_over_as_many_rows_as_were_played():
    rows, share = beside(dataclasses.replace(CONFIG, critic_data="both"))[0]
    for group in range(4):
        played_rows = np.asarray(rows.policy.counts[group, ..., 0]).sum()
        assert_allclose(
            np.asarray(rows.value_weight[group]).sum(), played_rows * share / (1 - share), rtol=1e-4
        )


def test_what_is_imagined_never_reaches_a_critic_on_real_data_nor_its_scale():
    base = networks(learned(UNUSED)[0])
    ours = networks(learned(dataclasses.replace(CONFIG, policy_reads=False))[0])
    assert same_bits((base["critic"], base["scale"]), (ours["critic"], ours["scale"]))
    both = networks(learned(dataclasses.replace(CONFIG, policy_reads=False, critic_data="both"))[0])
    assert not same_bits(base["critic"], both["critic"])
    assert same_bits(base["scale"], both["scale"])


# --- the model of the game -----------------------------------------------------------------------


def test_the_world_learns_from_games_that_are_not_held_out_only():
    _, params, _, trajectory = played()
    parts, _ = parts_of(game(), SEATS, CONFIG)
    stage = world_stage(game(), parts.world, CONFIG, PLAN)
    learner = stage.init(params["world"])
    update = compiled(lambda t: stage.update(params["world"], learner, t, KEY)[0])

    def with_other_boards_in(games):
        """Where everyone came to, taken from another step."""
        later = jax.tree.map(lambda x: x.at[:, games].set(x[::-1, games]), trajectory.steps.next_state)
        return dataclasses.replace(trajectory, steps=dataclasses.replace(trajectory.steps, next_state=later))

    base = update(trajectory)
    assert same_bits(base, update(with_other_boards_in(slice(0, 3))))  # a fifth of sixteen
    assert not same_bits(base, update(with_other_boards_in(slice(3, 4))))


def test_models_of_the_others_learn_from_games_that_are_not_held_out_only():
    _, params, _, trajectory = played()
    parts, _ = parts_of(game(), SEATS, CONFIG)
    stage = subgoal_stage(parts.reader, CONFIG, PLAN.sequence_length)
    learner = stage.init(params["policy"])
    update = compiled(lambda t: stage.update(params["policy"], learner, t, KEY))

    def with_other_moves_in(games):
        """Everyone stays where they are."""
        decision = trajectory.steps.decision
        moves = decision.action.at[:, games].set(game().neutral_action)
        steps = dataclasses.replace(trajectory.steps, decision=dataclasses.replace(decision, action=moves))
        return dataclasses.replace(trajectory, steps=steps)

    base, elsewhere, here = (
        update(t) for t in (trajectory, *[with_other_moves_in(slice(*g)) for g in [(3, 4), (0, 3)]])
    )
    assert same_bits(base[0], here[0])  # a fifth of sixteen
    assert not same_bits(base[0], elsewhere[0])
    name = "opponents/true_surprise"
    assert same_bits(base[2][name], elsewhere[2][name])
    assert not same_bits(base[2][name], here[2][name])


def test_the_gates_ask_for_every_reward_and_for_the_largest_at_all():
    parts, _ = parts_of(game(), SEATS, dataclasses.replace(CONFIG, others="policies"))
    good = {"world/possible": jnp.array(1.0)}
    for value in parts.world.reward_values:
        good |= {f"world/recall/{value:.3g}": jnp.array(0.95), f"world/seen/{value:.3g}": jnp.array(30.0)}
    assert are_good(parts, good).tolist() == [True, True]
    blind = good | {"world/recall/5": jnp.array(0.1)}
    assert are_good(parts, blind).tolist() == [False, True]
    unseen = good | {"world/seen/5": jnp.array(3.0), "world/recall/5": jnp.array(1.0)}
    assert are_good(parts, unseen).tolist() == [False, True]
    knows, _ = parts_of(game(), SEATS, dataclasses.replace(CONFIG, others="policies", world_from="a folder"))
    assert are_good(knows, unseen).tolist() == [True, True], "it has learned of it before"
    assert are_good(knows, blind).tolist() == [False, True]
    never_happened = good | {"world/seen/0.25": jnp.array(0.0), "world/recall/0.25": jnp.array(jnp.nan)}
    assert are_good(parts, never_happened).tolist() == [True, True]


def test_the_gates_ask_every_seat_to_foresee_its_co_players():
    parts, _ = parts_of(game(), SEATS, dataclasses.replace(CONFIG, world="game"))
    good = {
        "opponents/surprise": jnp.full(4, 0.65),
        "opponents/true_surprise": jnp.full(4, 0.6),
        "opponents/even_surprise": jnp.full(4, 1.4),
    }
    assert are_good(parts, good).tolist() == [True, True]
    one_is_off = good | {"opponents/surprise": jnp.array([0.6, 0.6, 0.6, 0.75])}
    assert are_good(parts, one_is_off).tolist() == [False, True]
    # Within 0.1 nats, but so is a guess: half of what can be foreseen is not.
    easy = {
        "opponents/surprise": jnp.full(4, 1.35),
        "opponents/true_surprise": jnp.full(4, 1.3),
        "opponents/even_surprise": jnp.full(4, 1.4),
    }
    assert are_good(parts, easy).tolist() == [False, True]
    at_random = easy | {"opponents/surprise": jnp.full(4, 1.41), "opponents/true_surprise": jnp.full(4, 1.4)}
    assert are_good(parts, at_random).tolist() == [True, True], "there is nothing that could be foreseen"


def test_one_catch_seen_often_is_still_one_catch():
    """Rare rewards are drawn more often to learn from; what has been seen is counted once for each move."""
    trajectory = played()[3]
    figures = learned()[2]
    paid = np.asarray(trajectory.steps.after.reward)
    here = np.asarray(trajectory.steps.before.active)
    for value in game().reward_values:
        happened = ((np.abs(paid - value) < 1e-4) & here).any(axis=-1).sum()
        assert_allclose(figures[f"world/seen/{value:.3g}"], happened)


@pytest.mark.parametrize(
    ("changes", "seats", "sentence"),
    [
        ({"world": "none"}, SEATS, "takes a world"),
        ({"subgoals": "none"}, SEATS, "takes subgoals"),
        ({"network": "gru"}, SEATS, "network='mlp'"),
        ({"real_share": 1.5}, SEATS, "between 0 and 1"),
        ({"others": "policies"}, (0,), "every seat"),
        ({"others": "policies", "real_share": 1.0, "acts": "search"}, (0,), "every seat"),
        ({"learning_reward": "team"}, SEATS, "own reward"),
        ({"learning_reward": "team", "real_share": 1.0, "acts": "one_step"}, SEATS, "own reward"),
        ({"model_hidden": ()}, SEATS, "at least one width"),
        ({"doubt": -1.0}, SEATS, "doubt=-1.0"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changes, seats, sentence):
    with pytest.raises((ValueError, BadInput), match=sentence):
        hop_plus(game(), seats, dataclasses.replace(CONFIG, **changes), PLAN)


def test_a_prior_is_refused_in_a_game_without_a_board():
    config = HOPPlusConfig(world="none", real_share=1.0, prior="a folder")
    with pytest.raises(BadInput, match="shows no board"):
        hop_plus(make_game("prisoners_dilemma"), (0, 1), config, PLAN)


# --- figures -------------------------------------------------------------------------------------


def test_no_model_tells_its_co_players_better_than_their_own_policies_do_on_average():
    figures = learned()[2]
    assert (figures["opponents/true_surprise"] < figures["opponents/even_surprise"]).all()
    assert (figures["opponents/true_surprise"] < figures["opponents/surprise"] + 0.01).all()
    for name in ("top1", "true_top1", "macro_f1", "true_macro_f1"):
        assert ((figures[f"opponents/{name}"] > 0) & (figures[f"opponents/{name}"] < 1)).all(), name


def test_macro_f1_is_that_of_a_table_counted_by_hand():
    """Four moves: 0 told as 0, 0 told as 1, 1 told as 1, and one that does not count. F1 is 2/3 for both."""
    told = jax.nn.one_hot(jnp.array([0, 1, 1, 2]), 3)
    counts = jnp.array([True, True, True, False])
    assert_allclose(macro_f1(told, jnp.array([0, 0, 1, 1]), counts), 2 / 3, rtol=1e-6)


# --- planning ------------------------------------------------------------------------------------


def planned(config, params, trajectory, time=12):
    """What is done at one moment of a round, when it counts."""
    player = hop_plus(game(), SEATS, config, PLAN)
    timestep, state = jax.tree.map(lambda x: x[time], (trajectory.steps.before, trajectory.steps.state))
    return compiled(lambda: player.play(params, player.remember(16), timestep, state, KEY)[1])()


@pytest.mark.parametrize("acts_in", ["world", "game"])
@pytest.mark.parametrize("acts", ["one_step", "search"])
def test_plans_are_legal_moves_that_chance_alone_would_not_make(acts, acts_in):
    _, params, _, trajectory = played()
    config = dataclasses.replace(CONFIG, acts=acts, acts_in=acts_in, simulations=4, trees=2)
    decision = planned(config, params, trajectory)
    legal = np.asarray(trajectory.steps.before.legal[12])
    assert np.take_along_axis(legal, np.asarray(decision.action)[..., None], axis=-1).all()
    assert_array_equal(np.asarray(decision.policy).max(axis=-1), 1.0)
    drawn = planned(CONFIG, params, trajectory)
    assert not np.array_equal(decision.action, drawn.action)
    assert_array_equal(decision.thoughts.prediction, drawn.thoughts.prediction)


def test_one_step_on_a_lone_player_finds_what_each_move_pays_and_is_worth_after_it():
    """Nobody else acts in a game with one player left, so what a plan says can be computed by hand."""
    _, params, _, trajectory = played(BOUND)
    parts, _ = parts_of(game(), SEATS, BOUND)
    steps = trajectory.steps
    where = np.argwhere(np.asarray(steps.before.active.sum(axis=-1) == 1))
    assert len(where), "this round does not show it"
    time, env = where[0]
    seat = int(np.argmax(steps.before.active[time, env]))
    timestep, state, notes = jax.tree.map(
        lambda x: x[time, env][None], (steps.before, steps.state, steps.decision.notes)
    )
    imagination = imagination_of(parts)
    planner = Planner(imagination, params, Table(np.array(SEATS), those_after(SEATS, 4), 2), 0.5)
    keys = jax.random.split(KEY, 4)
    found = compiled(lambda: one_step(planner, 0.9, notes, timestep, state, keys))().q[0, seat]

    @compiled
    def by_hand(action):
        joint = jnp.zeros(4, jnp.int32).at[seat].set(action)
        _, after = game().step(jax.tree.map(lambda x: x[0], state), joint, KEY)
        seen = imagination.model.views["critic"](
            jax.tree.map(lambda x: x[None], after), notes, SEATS, params["policy"]
        )
        worth = values(imagination.model, params["policy"], jnp.swapaxes(seen, 0, 1))[seat, 0]
        return after.reward[seat] + 0.9 * jnp.where(after.terminated[seat], 0.0, worth)

    legal = np.asarray(timestep.legal[0, seat])
    expected = np.array([by_hand(jnp.int32(action)) for action in np.flatnonzero(legal)])
    assert_allclose(np.asarray(found)[legal], expected, atol=1e-5)


def test_what_the_others_are_expected_to_do_changes_what_a_plan_finds():
    _, params, _, trajectory = played()
    parts, _ = parts_of(game(), SEATS, CONFIG)
    timestep, state, notes = jax.tree.map(
        lambda x: x[2], (trajectory.steps.before, trajectory.steps.state, trajectory.steps.decision.notes)
    )

    def found(action):
        """By a search in the true game, if all others are sure to do this."""
        certain = jnp.log(jax.nn.one_hot(action, game().num_actions) + 1e-9)

        def others(params, guess, timestep, own):
            return jnp.broadcast_to(certain, (4, timestep.first.shape[0] // 4, 3, certain.shape[0]))

        imagination = imagination_of(parts, in_game=True)._replace(others=others)
        planner = Planner(imagination, params, Table(np.array(SEATS), those_after(SEATS, 4), 2), 0.5)
        keys = jax.random.split(KEY, 4)
        search = CONFIG.search_with(0.9)
        return compiled(
            lambda: plan(planner, dataclasses.replace(search, simulations=8), notes, timestep, state, keys)
        )()

    stay, hunt = found(4), found(5)
    assert not np.allclose(stay.q, hunt.q, atol=1e-3)
    assert_allclose(np.asarray(stay.visits).sum(axis=-1)[np.asarray(timestep.active)], 2 * 8)


def test_plans_without_a_world_or_without_models_of_the_others_are_refused():
    with pytest.raises(ValueError, match="acts_in='game'"):
        HOPPlusConfig(acts="search", world="none", real_share=1.0)
    with pytest.raises(ValueError, match="subgoals='inferred'"):
        HOPPlusConfig(acts="one_step", subgoals="none", real_share=1.0)
    with pytest.raises(ValueError, match="trees=0"):
        HOPPlusConfig(trees=0)
