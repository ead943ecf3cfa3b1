"""Moves that are never legal, and games that are held out: whoever learns from them is found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coplay.audit.unheard import one_move_more
from coplay.envs import contract, make_game
from tests.audit.planted import replacing
from tests.audit.suite import DEFECTS, finding_of, subject_of


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    [
        "ppo_4h1s_4x4",
        "ppo_gru_4h1s_4x4",
        "happo_4h1s_4x4",
        "hyper_mappo_4h1s_4x4",
        "hop_4h1s_4x4",
        "hop_snowdrift",
        "hop_plus_4h1s_4x4",
        "hop_plus_4h1s_8x8_walls",
        "imagination_reference",
        "matrix_chicken",
    ],
)
def test_clean_learners_do_not_hear_of_a_move_that_is_never_legal(name):
    found = finding_of(subject_of(name), "forbidden")
    assert found.verdict == "pass" and found.n > 0


@pytest.mark.parametrize("name", ["4h1s_4x4", "coin_game", "specialisation", "matrix_stag_hunt"])
def test_a_game_with_a_move_more_is_a_game_in_which_nobody_may_make_it(name):
    env = make_game(name)
    wider = one_move_more(env)
    contract.check(wider, steps=100)
    key = jax.random.key(3)
    state, timestep = wider.reset(key)
    assert not np.any(timestep.legal[:, -1]) and np.array_equal(
        timestep.legal[:, :-1], env.reset(key)[1].legal
    )
    tries = jnp.full(env.num_agents, env.num_actions)
    as_neutral = jnp.full(env.num_agents, env.neutral_action)
    ours, theirs = wider.step(state, tries, key), env.step(state, as_neutral, key)
    assert jax.tree.all(jax.tree.map(np.array_equal, ours[0], theirs[0]))


def test_hopes_for_what_is_not_allowed_are_found():
    with DEFECTS[308].plant():
        found = finding_of(subject_of("hop_4h1s_4x4"), "forbidden")
    assert found.verdict == "fail" and found.room == "algorithms" and "not allowed" in found.next


def unmasked(log_policy):
    return lambda logits, legal: log_policy(logits, jnp.ones_like(legal))


def test_a_policy_without_its_mask_in_learning_is_found():
    with replacing("coplay.algorithms.losses", "log_policy", unmasked)():
        found = finding_of(subject_of("ppo_4h1s_4x4"), "forbidden")
    assert found.verdict == "fail"


def test_who_was_made_for_the_games_own_moves_is_not_asked():
    found = finding_of(subject_of("one_ppo_three_nearest_stag"), "forbidden")
    assert found.verdict == "not_run" and "own moves" in found.next


def test_models_that_learn_from_what_they_are_judged_on_are_found():
    subject = subject_of("hop_plus_4h1s_4x4")
    assert finding_of(subject, "held_out").verdict == "pass"
    with DEFECTS[309].plant():
        found = finding_of(subject_of("hop_plus_4h1s_4x4"), "held_out")
    assert found.verdict == "fail" and "world/members learns from" in found.next


def nobody_is_held_out(held_out):
    return lambda rows: jnp.zeros_like(rows)


def test_models_of_others_that_learn_from_what_they_are_judged_on_are_found():
    with replacing("coplay.algorithms.subgoal_stage", "_held_out", nobody_is_held_out)():
        found = finding_of(subject_of("hop_plus_4h1s_4x4"), "held_out")
    assert found.verdict == "fail" and "policy/others learns from" in found.next


def test_who_holds_nothing_out_is_not_asked():
    found = finding_of(subject_of("ppo_4h1s_4x4"), "held_out")
    assert found.verdict == "not_run" and "judged" in found.next


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", ["ppo_4h1s_4x4", "ppo_gru_4h1s_4x4", "happo_4h1s_4x4", "hyper_mappo_4h1s_4x4", "hop_4h1s_4x4"]
)
def test_clean_policies_do_not_hear_how_loud_their_critics_are(name):
    found = finding_of(subject_of(name), "loud_critic")
    assert found.verdict == "pass" and found.n > 0


def test_gradients_that_are_cut_together_are_found():
    with DEFECTS[407].plant():
        found = finding_of(subject_of("ppo_4h1s_4x4"), "loud_critic")
    assert found.verdict == "fail" and "cut together" in found.next
