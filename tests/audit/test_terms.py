"""Terms of losses: a loss worked by hand, and losses that weigh their terms otherwise than is asked for."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from numpy.testing import assert_allclose

from coplay.algorithms.losses import ToldTerms, told_terms, weighed
from coplay.algorithms.subgoal_stage import ToldSubgoals
from coplay.audit.terms import astray, misweighed, other_spread, shares
from coplay.opponents.subgoals import Subgoal, spread
from coplay.taps import TERMS, heard, tap
from tests.audit.planted import replacing
from tests.audit.suite import finding_of, subject_of

CONFIG = SimpleNamespace(entropy_weight=0.01, value_weight=0.5)
WEIGHTS = {"policy": 1.0, "entropy": -0.01, "value": 0.5}


def terms_by_hand(weights, batch):
    """With weights (3, 4) and a batch of 2: 6, 16, 12, with slopes (2, 0), (0, 8), (4, 3)."""
    x, y = weights["net"]
    return {"policy": batch * x, "entropy": y**2, "value": x * y}


def told_by_hand(weigh) -> ToldTerms:
    weights = {"net": jnp.array([3.0, 4.0])}
    return told_terms(
        lambda *now: (weighed(terms_by_hand(*now), weigh), {}), terms_by_hand, weights, jnp.float32(2.0)
    )


def test_terms_are_told_with_their_slopes_and_two_steps_down_each():
    told = told_by_hand(WEIGHTS)
    assert_allclose(told.loss, 6 - 0.16 + 6)
    assert_allclose(told.loss_slope, [2 + 0.5 * 4, -0.01 * 8 + 0.5 * 3])
    assert_allclose(told.slopes["entropy"], [0, 8])
    # Weights are 5 long: a step of 0.005 down a slope of 8 takes 0.04 off, half on each side of 4; then a
    # quarter of that.
    assert_allclose(told.falls["entropy"], [0.04, 0.01], rtol=1e-5)
    fell = [4.0025**2 - 3.9975**2, 4.000625**2 - 3.999375**2]
    assert_allclose(told.fell["entropy"], fell, rtol=1e-3)  # differences of 16s in single precision


@pytest.mark.parametrize(
    ("fell", "says"),
    [
        ([0.94, 0.246], ""),  # a clip that the longer step crosses: less is missing after the shorter one
        ([0.90, 0.225], "falls 0.90 times"),  # a slope that is not all of it, whatever the step
        ([-0.1, -0.02], "does not lessen it"),
    ],
)
def test_what_only_a_long_step_lessens_otherwise_is_a_clip(fell, says):
    falls = jnp.array([[1.0, 0.25]])  # one group of seats
    terms = [{"policy": x} for x in (jnp.array([5.0]), jnp.zeros((1, 1)), jnp.array([fell]), falls)]
    said = astray(ToldTerms(jnp.zeros(1), jnp.zeros((1, 1)), *terms))
    assert said == [] if not says else says in said[0]


def test_a_loss_that_is_the_sum_of_its_terms_passes():
    two_numbers = {name: WEIGHTS[name] for name in ("entropy", "value")}  # as many as there are weights
    assert misweighed(CONFIG, only(told_by_hand(two_numbers), two_numbers)) == []


def test_terms_that_pull_one_way_pass_as_long_as_they_add_up():
    slopes = {"policy": jnp.array([1.0, 2.0]), "entropy": jnp.array([1.0, 2.00001])}
    values = dict.fromkeys(slopes, jnp.float32(1.0))

    def told(*loss_slope) -> ToldTerms:
        return ToldTerms(jnp.float32(0.0), jnp.array(loss_slope), values, slopes, {}, {})

    assert misweighed(CONFIG, told(0.99, 1.98003)) == []  # what each weighs is anybody's guess
    assert misweighed(CONFIG, told(1.01, 2.02)) != []


def only(told: ToldTerms, names) -> ToldTerms:
    kept = {name: {n: getattr(told, name)[n] for n in names} for name in ("values", "slopes")}
    return ToldTerms(told.loss, told.loss_slope, kept["values"], kept["slopes"], {}, {})


@pytest.mark.parametrize(
    ("weigh", "says"),
    [
        ({"entropy": -0.01, "value": 50.0}, "value weighs 50 in the loss; value_weight says 0.5"),
        ({"entropy": 0.01, "value": 0.5}, "entropy weighs 0.01 in the loss; entropy_weight says -0.01"),
        ({"value": 0.5}, "entropy weighs 0 in the loss; entropy_weight says -0.01"),
    ],
)
def test_a_term_that_weighs_otherwise_is_named_with_what_it_weighs(weigh, says):
    (said,) = misweighed(CONFIG, only(told_by_hand(weigh), ("entropy", "value")))
    assert said == says


def test_what_else_is_in_the_loss_is_seen():
    told = only(told_by_hand(WEIGHTS), ("entropy",))
    assert "a loss of entropy is not their sum" in misweighed(CONFIG, told)


def test_a_term_has_its_share_of_the_weights_that_it_reaches():
    # Entropy reaches the second weight alone: 0.01 * 8 of it, beside 0.5 * 3 of value's.
    assert_allclose(shares(CONFIG, told_by_hand(WEIGHTS))["entropy"], 0.08 / (0.08 + 1.5), rtol=1e-5)


def told_subgoals(times: float) -> ToldSubgoals:
    """Two rows of one number: means 1 and 2, deviation 1, so 0.5 and 2 nats; only the first is taught."""
    subgoal = Subgoal(jnp.array([[1.0], [2.0]]), jnp.zeros((2, 1)))
    taught = jnp.array([True, False])
    value = times * jnp.sum(jnp.where(taught, spread(subgoal), 0.0))
    none = ToldTerms(value, jnp.zeros(1), {"subgoal": value}, {}, {}, {})
    return ToldSubgoals(none, subgoal, (), taught)


def test_the_divergence_of_subgoals_is_held_against_its_formula():
    assert other_spread(told_subgoals(1.0)) == ""
    assert "told as 50 nats and is 0.5" in other_spread(told_subgoals(100.0))


def test_costly_taps_are_made_for_those_who_ask_for_them_only():
    def function(x):
        tap("plain", lambda: x + 1)
        tap(TERMS + "policy", lambda: x + 2)
        return x

    assert heard(function)(1) == (1, {"plain": 2})
    assert heard(function, lambda name: name.startswith(TERMS))(1) == (1, {TERMS + "policy": 3})


# --- on a learner --------------------------------------------------------------------------------


def scaled(**times: float):
    """PPO's loss with other weights than are set."""

    def spoil(loss_terms):
        return lambda config: {n: w * times.get(n, 1.0) for n, w in loss_terms(config).items()}

    return replacing("coplay.algorithms.ppo", "loss_terms", spoil)


def test_a_critics_loss_of_another_weight_is_found():
    with scaled(value=3.0)():
        found = finding_of(subject_of("ppo_4h1s_4x4"), "term_weights")
    assert found.verdict == "fail" and found.room == "algorithms"
    assert found.next == "value weighs 1.5 in the loss; value_weight says 0.5"


def test_a_gradient_that_is_not_the_terms_own_is_found():
    def astray(pointwise_error):
        def spoiled(difference, huber):
            error = pointwise_error(difference, huber)
            return 2 * jax.lax.stop_gradient(error) - error

        return spoiled

    with replacing("coplay.algorithms.losses", "pointwise_error", astray)():
        found = finding_of(subject_of("ppo_4h1s_4x4"), "term_weights")
    assert found.verdict == "fail" and "slope of value does not lessen it" in found.next


def test_a_slope_that_is_left_out_on_purpose_is_no_alarm():
    fused = {"context": "local_history", "history_fusion": "kl_weighted", "num_steps": 40}
    assert finding_of(subject_of("hyper_mappo_4h1s_4x4", fused), "term_weights").verdict == "pass"
