"""Critics and what they learn from: returns worked by hand, and learners that count otherwise."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from coplay.audit import trained_critics
from coplay.audit.imagined import possible
from coplay.audit.slow_returns import Walk, rows_apart, slow_returns, slow_standardised
from coplay.audit.subject import Subject
from coplay.cli.audit import subject_of as subject_of_run
from tests.audit.mutants import stag_hunt
from tests.audit.planted import replacing
from tests.audit.suite import finding_of, subject_of

IMAGINATION, LOSSES, PPO = (f"coplay.algorithms.{name}" for name in ("imagination", "losses", "ppo"))


# --- imagined returns, by hand -------------------------------------------------------------------


def two_steps(ends=(False, False), cut=(False, False)) -> Walk:
    """Rewards 1 and 2; what each step leads to is worth 4 and 10."""
    return Walk(np.array([1.0, 2.0]), np.array([4.0, 10.0]), np.array(ends), np.array(cut))


def test_returns_of_two_imagined_steps():
    # Discount 0.9, trace 0.5: G_1 = 2 + 0.9 * 10 = 11; G_0 = 1 + 0.9 * (0.5 * 4 + 0.5 * 11) = 7.75.
    assert_allclose(slow_returns(two_steps(), 2, 0.9, 0.5), [7.75, 11.0])
    # Only the first counts: G_0 = 1 + 0.9 * 4.
    assert_allclose(slow_returns(two_steps(), 1, 0.9, 0.5)[0], 4.6)


def test_an_imagined_end_leaves_nothing_to_come_and_a_cut_leaves_its_value():
    # G_1 = 2; G_0 = 1 + 0.9 * (0.5 * 4 + 0.5 * 2) = 3.7.
    assert_allclose(slow_returns(two_steps(ends=(False, True)), 2, 0.9, 0.5), [3.7, 2.0])
    assert_allclose(slow_returns(two_steps(cut=(True, False)), 2, 0.9, 0.5), [4.6, 11.0])


def test_advantages_less_their_mean_by_a_deviation():
    # 1 and 3 count: mean 2, deviation 1.
    advantage, counts = np.array([1.0, 3.0, 9.0]), np.array([True, True, False])
    assert_allclose(slow_standardised(advantage, counts, (0,), None)[:2], [-1.0, 1.0])
    assert_allclose(slow_standardised(advantage, counts, (0,), np.array(4.0))[:2], [-0.25, 0.25])


def test_rows_that_are_other_than_they_should_be_are_counted_with_the_first_seat():
    should = np.ones((1, 2, 3))
    said, counts = should.copy(), np.ones(should.shape, bool)
    said[0, :, 1:] = 2.0
    counts[0, 0, 1] = False
    found = rows_apart({"targets": (said, should, counts)}, np.array([4, 5, 6]))
    assert found == (["3 targets are not (first seat 5)"], 5)


def test_what_an_episode_can_bring_at_most():
    # Two steps at discount 0.5 that pay 5 each: 7.5; a tenth more on either side.
    env = dataclasses.replace(stag_hunt(), horizon=2, reward_values=(0.0, 5.0))
    assert_allclose(possible(env, 0.5), (-0.75, 8.25))


# --- a learner that imagines ---------------------------------------------------------------------


IMAGINES = {"imagined_steps": 2, "imagined_branches": 2, "critic_data": "both"}


@functools.cache
def imagining() -> Subject:
    return subject_of("hop_plus_4h1s_4x4", IMAGINES)


def changed_returns(change):
    """Imagined returns of other rows than are there."""

    def spoil(lambda_returns):
        return lambda *rows: lambda_returns(*change(*rows))

    return replacing(IMAGINATION, "lambda_returns", spoil)


def unweighed(weights):
    """Every row weighs as much as it is trusted, however many others there are."""
    return lambda raw, counts, real: raw


SPOILED = {
    "discounted twice": changed_returns(lambda r, v, g, c, discount, trace: (r, v, g, c, discount**2, trace)),
    "nothing beyond the cut": changed_returns(
        lambda r, v, g, cut, discount, trace: (r, jnp.where(cut, 0.0, v), g, cut, discount, trace)
    ),
    "the end goes on": changed_returns(lambda r, v, g, *rest: (r, v, jnp.ones_like(g), *rest)),
    "weights that do not add up": replacing(IMAGINATION, "_weights", unweighed),
}


def test_imagined_returns_that_are_their_formulas_pass():
    for check in ("imagined_references", "imagined_range", "imagined_ends", "references"):
        found = finding_of(imagining(), check)
        assert found.verdict == "pass" and found.n, found.next


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SPOILED)
def test_imagined_returns_that_are_not_their_formulas_are_found(name):
    with SPOILED[name]():
        found = finding_of(subject_of("hop_plus_4h1s_4x4", IMAGINES), "imagined_references")
    assert found.verdict == "fail" and found.room == "algorithms"
    assert "imagined" in found.next, found.next


def with_imagined(subject: Subject, number: int, **changes) -> Subject:
    """The same but for what was imagined in one of its rounds."""
    rounds = list(subject.rounds())
    one = rounds[number]
    imagined = dataclasses.replace(one.taps["imagined"], **changes)
    rounds[number] = one._replace(taps=one.taps | {"imagined": imagined})
    return dataclasses.replace(subject, kept=subject.kept | {"rounds": rounds})


def test_returns_that_no_game_could_bring_are_told_but_are_no_failure():
    advantage = imagining().rounds()[1].taps["imagined"].advantage
    found = finding_of(with_imagined(imagining(), 1, advantage=advantage - 1000.0), "imagined_range")
    assert found.verdict == "warn" and "100% of imagined returns" in found.next


def test_who_imagines_nothing_is_not_asked():
    plain = subject_of("matrix_stag_hunt")
    for check in ("imagined_references", "imagined_range"):
        assert finding_of(plain, check).verdict == "not_run"


# --- terms of losses -----------------------------------------------------------------------------


def huber_at_a_tenth(pointwise_error):
    return lambda difference, huber: pointwise_error(difference, 0.1)


def entropy_in_bits(clipped_policy_loss):
    def spoiled(*given):
        surrogate, entropy, figures = clipped_policy_loss(*given)
        return surrogate, entropy / np.log(2.0), figures

    return spoiled


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (replacing(LOSSES, "pointwise_error", huber_at_a_tenth), "the critic's loss is"),
        (replacing(PPO, "clipped_policy_loss", entropy_in_bits), "the entropy is"),
    ],
)
def test_terms_that_are_not_their_formulas_are_found(plant, says):
    with plant():
        found = finding_of(subject_of("ppo_4h1s_4x4"), "term_weights")
    assert found.verdict == "fail" and found.room == "algorithms"
    assert says in found.next, found.next


def test_errors_beyond_a_small_huber_are_no_alarm_where_it_is_set():
    assert finding_of(subject_of("ppo_4h1s_4x4", {"huber": 0.1}), "term_weights").verdict == "pass"


# --- a run that has learned ----------------------------------------------------------------------


def test_walks_of_two_steps_begin_at_every_moment_but_the_last():
    x = np.array([1.0, 2.0, 3.0])[:, None, None]
    assert_array_equal(trained_critics.walks(x, 2)[:, 0, 0], [[1.0, 2.0], [2.0, 3.0]])
    assert_array_equal(trained_critics.walks(x, 1)[:, 0, 0], [[1.0], [2.0], [3.0]])


def test_squares_are_averaged_over_what_counts():
    error = np.array([1.0, 3.0, 50.0]).reshape(3, 1, 1, 1)
    counts = np.array([True, True, False]).reshape(3, 1, 1, 1)
    assert_allclose(trained_critics.squared(error, counts), [5.0])  # (1 + 9) / 2


@functools.cache
def a_run() -> Subject:
    return subject_of_run("zoo:hop_plus_4h1s_4x4", 0)


def with_taps(**changes) -> Subject:
    """The run with something else in its updates; `changes` are functions of a tap."""
    updates = [
        one._replace(taps=one.taps | {name: change(one.taps[name]) for name, change in changes.items()})
        for one in a_run().trained_updates()
    ]
    return dataclasses.replace(a_run(), kept=a_run().kept | {"trained updates": updates})


def test_a_critic_that_has_learned_is_as_near_to_what_is_imagined_as_to_what_is_played():
    found = finding_of(a_run(), "critic_error")
    assert found.verdict == "pass" and found.figure is not None and 0.8 < found.figure < 1.25, found.next


def test_imagined_rewards_three_times_as_high_are_errors_of_the_critic():
    def three_times(imagined):
        return dataclasses.replace(imagined, advantage=imagined.advantage + 2 * imagined.reward)

    found = finding_of(with_taps(imagined=three_times), "critic_error")
    assert found.verdict == "fail" and found.figure is not None and found.figure > 3.0, found.next


def test_a_critic_that_knows_less_than_nothing_is_worth_a_warning():
    def turned_about(made):
        return dataclasses.replace(made, value=2 * jnp.mean(made.value) - made.value)

    found = finding_of(with_taps(estimates=turned_about), "critic_error")
    assert found.verdict == "warn", found.next


def test_critics_that_have_hardly_been_trained_are_not_judged():
    found = finding_of(dataclasses.replace(a_run(), run=None, kept={}), "critic_error")
    assert found.verdict == "not_run" and "trained run" in found.next
