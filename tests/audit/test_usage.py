"""How often the learner's own update uses what was played, held against its settings."""

import dataclasses

import jax
import pytest

from coplay.audit.subject import Subject
from tests.audit.planted import replacing
from tests.audit.suite import finding_of, subject_of

EXPERIMENT = "ppo_4h1s_4x4"  # at a small scale: 16 games, 2 epochs of 2 minibatches


@pytest.fixture(scope="module")
def sound() -> Subject:
    return subject_of(EXPERIMENT)


@pytest.mark.parametrize("check", ["samples", "steps_taken"])
def test_a_learner_that_keeps_to_its_settings_passes(sound, check):
    found = finding_of(sound, check)
    assert found.verdict == "pass", found.next


def test_a_learner_that_goes_over_its_batch_once_instead_of_twice_is_found():
    once = replacing(
        "coplay.algorithms.ppo",
        "fit",
        lambda fit: lambda loss, optimiser, plan: fit(loss, optimiser, plan._replace(epochs=1)),
    )
    with once():
        subject = subject_of(EXPERIMENT)
        samples, steps = (finding_of(subject, check) for check in ("samples", "steps_taken"))
    assert samples.verdict == "fail" and samples.figure == 16  # all columns: one for each game
    assert samples.next == "16 of 16 columns of critic+policy were used 1 to 1 times, not 2"
    # 1 epoch of 2 minibatches; settings say 2 of 2
    assert steps.verdict == "fail" and steps.next.endswith("2 steps in 1 rounds, not 4 in each")


def test_a_learner_that_leaves_half_of_the_games_out_is_found():
    def half(fit):
        def spoiled(loss, optimiser, plan):
            descend = fit(loss, optimiser, plan)

            def descend_half(weights, state, batch, *rest):
                return descend(weights, state, jax.tree.map(lambda x: x[: len(x) // 2], batch), *rest)

            return descend_half

        return spoiled

    with replacing("coplay.algorithms.ppo", "fit", half)():
        found = finding_of(subject_of(EXPERIMENT), "samples")
    assert found.verdict == "fail"
    assert found.next == "critic+policy goes over 160 steps of 320 that were played"  # 16 games of 20 steps


def test_samples_of_other_epochs_than_descent_went_through_are_found(sound):
    rounds = [
        one._replace(metrics=one.metrics | {"count/samples/policy": 2 * one.metrics["count/samples/policy"]})
        for one in sound.rounds()
    ]
    found = finding_of(dataclasses.replace(sound, kept=sound.kept | {"rounds": rounds}), "steps_taken")
    assert found.verdict == "fail" and found.room == "algorithms"


def test_a_learner_that_does_not_tell_is_not_run_and_never_passed(sound):
    silent = dataclasses.replace(
        sound, kept=sound.kept | {"rounds": [one._replace(taps={}) for one in sound.rounds()]}
    )
    found = finding_of(silent, "samples")
    assert found.verdict == "not_run" and "does not tell" in found.next
