"""Networks that stay as they are on purpose, and others that do though they should learn."""

import dataclasses

import jax
import pytest

from coplay.audit.subject import Subject
from coplay.opponents.prior import prior_model
from coplay.training.part_folder import PartFolder
from tests.audit.suite import finding_of, subject_of

ALONE = {"hop_plus.world": "none", "hop_plus.real_share": "1.0"}  # nothing is imagined: a faster update


@pytest.fixture(scope="module")
def no_delta() -> Subject:
    """Increments that count for nothing: what makes them has nothing to learn from."""
    return subject_of("hyper_a5_no_delta")


@pytest.fixture(scope="module")
def with_prior(tmp_path_factory) -> Subject:
    """HOP+ beside a prior, which is not trained here: weights as they are drawn."""
    plain = subject_of("hop_plus_4h1s_4x4")
    config = plain.config("hop_plus")
    _, init = prior_model(plain.env, config.subgoal_size, config.prior_hidden, "action")
    folder = PartFolder.create(tmp_path_factory.mktemp("parts") / "vae", "vae", {}, {})
    folder.save(1, jax.tree.map(lambda x: x[None], init(jax.random.key(0))), {}, 1.0)
    return subject_of("hop_plus_4h1s_4x4", ALONE | {"hop_plus.prior": str(folder.path)})


def saying(subject: Subject, still: tuple[str, ...]) -> Subject:
    """The same, recorded already, with another declaration."""
    subject.parts(), subject.rounds()
    work = subject.learning_job()
    stretch = work.stretches[0]
    other = stretch._replace(algorithm=stretch.algorithm._replace(still=still))
    return dataclasses.replace(subject, kept=subject.kept | {"job": work._replace(stretches=[other])})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("given", ["no_delta", "with_prior"])
@pytest.mark.parametrize("check", ["moves", "reach"])
def test_what_is_declared_to_stay_may_stay(given, check, request):
    found = finding_of(request.getfixturevalue(given), check)
    assert found.verdict == "pass", found.next


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("given", "network"), [("no_delta", "generator"), ("with_prior", "prior")])
def test_what_stays_undeclared_is_found(given, network, request):
    found = finding_of(saying(request.getfixturevalue(given), ()), "moves")
    assert found.verdict == "fail"
    assert f"['{network}']" in found.next and "did not move" in found.next


def test_weights_that_are_felt_nowhere_are_found_where_nobody_says_that_they_stay(no_delta):
    found = finding_of(saying(no_delta, ()), "reach")
    assert found.verdict == "fail" and "of hyper_mappo/generator is not felt" in found.next


def test_what_is_declared_to_stay_and_moves_is_found(no_delta):
    declared = no_delta.learning_job().stretches[0].algorithm.still
    found = finding_of(saying(no_delta, (*declared, "hyper_mappo/critic")), "moves")
    # the critic's three layers, a weight and a bias each
    assert found.verdict == "fail" and found.figure == 6
    assert "moved, and is said to stay" in found.next
