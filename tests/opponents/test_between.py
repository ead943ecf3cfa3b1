"""What is kept between episodes, worked by hand, and which memory serves which company."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay.opponents.between import BETWEEN, Episode
from coplay.opponents.goals import UNKNOWN


def episode(label, posterior=(0.9, 0.1)):
    return Episode(jnp.int32(label), jnp.array(posterior), jnp.int32(label != UNKNOWN))


@pytest.mark.parametrize("rule", BETWEEN)
def test_the_first_prior_is_open_and_every_prior_adds_up(rule):
    between = BETWEEN[rule](3)
    kept = between.start()
    assert_allclose(between.prior(kept)[:2], between.prior(kept)[0])
    assert_allclose(jnp.sum(between.prior(kept)), 1.0, rtol=1e-6)
    for _ in range(5):
        kept = between.keep(kept, episode(1, (0.8, 0.1, 0.1)))
    assert_allclose(jnp.sum(between.prior(kept)), 1.0, rtol=1e-6)


def test_counters_count_with_a_slow_fade():
    # From 1 each: 0.995, 1.995 after one label of goal 1; then 0.990025, 2.985025.
    between = BETWEEN["counters"](2)
    kept = between.keep(between.keep(between.start(), episode(1)), episode(1))
    assert_allclose(kept, [0.990025, 2.985025], rtol=1e-6)
    assert_allclose(between.prior(kept)[1], 2.985025 / 3.97505, rtol=1e-6)


@pytest.mark.parametrize("rule", ["counters", "average"])
def test_an_episode_without_a_label_changes_nothing(rule):
    between = BETWEEN[rule](2)
    kept = between.keep(between.start(), episode(0))
    assert_allclose(between.keep(kept, episode(UNKNOWN)), kept)


def test_the_published_average_moves_by_two_percent():
    between = BETWEEN["average"](2)
    assert_allclose(between.keep(between.start(), episode(0)), [0.98 * 0.5 + 0.02, 0.98 * 0.5], rtol=1e-6)


def test_a_sticky_mind_starts_from_the_last_posterior_with_some_doubt():
    between = BETWEEN["sticky"](2)
    assert_allclose(between.prior(between.keep(between.start(), episode(0))), [0.86, 0.14], rtol=1e-6)


def test_a_long_memory_turns_slowly_and_a_sticky_one_at_once():
    def after_a_change(rule):
        between = BETWEEN[rule](2)
        kept = between.start()
        for _ in range(30):
            kept = between.keep(kept, episode(1, (0.1, 0.9)))
        return float(between.prior(between.keep(kept, episode(0, (0.9, 0.1))))[0])

    assert after_a_change("counters") < 0.15
    assert after_a_change("sticky") > 0.8


def test_removals_are_counted_from_a_poisson_start():
    between = BETWEEN["removal_count"](7)
    start = between.start()
    assert_allclose(start[1:5], [0.368, 0.184, 0.061, 0.015], atol=5e-4)
    assert_allclose(start.sum(), 1.0, rtol=1e-6)
    chance = float(start[1:].sum())
    assert_allclose(between.prior(start), [chance / 6] * 6 + [1 - chance], rtol=1e-5)
    kept = between.keep(start, Episode(jnp.int32(2), jnp.ones(7) / 7, jnp.int32(3)))
    assert_allclose(kept, 0.98 * start + np.eye(7)[3], rtol=1e-6)


def test_after_two_removals_a_third_comes_with_the_chance_of_more_than_two():
    between = BETWEEN["removal_count"](4)
    kept = jnp.array([0.4, 0.3, 0.2, 0.1])
    assert_allclose(between.again(kept, jnp.int32(2)), 0.1 / 0.3, rtol=1e-6)
    assert_allclose(between.again(kept, jnp.int32(3)), 0.0)


def test_a_rule_is_believed_as_far_as_it_has_foretold():
    # After (0.9, 0.1) and label 0 the priors for goal 0 are 1/2, 0.86, 0.896 and 1.2985 / 1.597; all weigh
    # alike.
    between = BETWEEN["weighed"](2)
    first = between.keep(between.start(), episode(0))
    assert_allclose(first.log_weight, 0.0, atol=1e-6)
    counted = 1.2985 / 1.597
    mixed = (0.5 + 0.86 + 0.896 + counted) / 4
    assert_allclose(between.prior(first)[0], mixed, rtol=1e-6)
    # Then everything speaks for goal 1, so a rule's evidence is the chance that it gave to goal 1.
    second = between.keep(first, episode(1, (0.0, 1.0)))
    evidence = np.array([0.5, 0.14, 0.104, 1 - counted]) / (1 - mixed)
    assert_allclose(second.log_weight, np.log(evidence), rtol=1e-5)


def weights_after(posteriors, labels):
    between = BETWEEN["weighed"](2)
    kept = between.start()
    for belief, label in zip(posteriors, labels, strict=True):
        kept = between.keep(kept, episode(label, (1 - belief, belief)))
    names = ("none", "sticky", "stickier", "counters")
    return dict(zip(names, np.exp(kept.log_weight), strict=True)), between.prior(kept)


def test_memory_counts_for_little_where_it_misleads_and_for_much_where_it_serves():
    steady, prior = weights_after([0.98] * 20, [1] * 20)
    assert steady["none"] < 0.2 * steady["counters"]
    assert prior[1] > 0.95
    restless, prior = weights_after([0.02, 0.98] * 10, [0, 1] * 10)
    assert restless["stickier"] < restless["sticky"] < 0.2 * restless["none"]
    assert 0.4 < prior[1] < 0.6
