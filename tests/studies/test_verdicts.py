"""What may be claimed from runs whose returns and drift were written by hand."""

import numpy as np
import pytest

from coplay.studies import BUDGETS, Chosen, Job, findings
from coplay.studies.arms import experiment_of
from coplay.studies.page import idle, sentence
from coplay.training.records import joined, metric_rows
from coplay.training.run_folder import RunFolder
from tests.small import small_job

SEEDS, ROUNDS = 5, 20


@pytest.fixture
def told(study, tmp_path):
    """A function from {arm: (return at the end, nats a round)} to findings; returns rise evenly, seeds differ
    by a hundredth."""

    def tell(arms: dict[str, tuple[float, float]]):
        return findings(study, [_chosen(study, tmp_path, arm, *figures) for arm, figures in arms.items()])

    return tell


def _chosen(study, folder, arm: str, end: float, nats: float) -> Chosen:
    rise = np.linspace(0.0, end, ROUNDS)[None] + 0.01 * np.arange(SEEDS)[:, None]
    moved = np.full((SEEDS, ROUNDS), nats)
    work = small_job(seeds=SEEDS)
    rows = joined(
        metric_rows(work, {"return": rise.astype(np.float32)}, 0, ROUNDS),
        metric_rows(work, {"drift/joint_kl": moved.astype(np.float32)}, 0, ROUNDS),
    )
    run = RunFolder.create(folder / arm, "", {})
    run.write_metrics(0, ROUNDS * work.steps_per_update, rows)
    experiment = experiment_of(study, "four", arm, 0.01, BUDGETS["full"])
    return Chosen(Job("four", arm), 0.01, {}, experiment, run)


def test_a_candidate_above_all_it_has_to_beat_may_be_claimed(study, told):
    found = told({"plain": (0.5, 0.1), "slow": (0.5, 0.05), "wide": (0.5, 0.1), "generated": (1.0, 0.01)})
    (claim,) = found.claims
    # Five seeds against five, all above: 2 of the 252 ways of dealing them are as far apart.
    assert claim.p == pytest.approx(2 / 252)
    assert claim.may_be_made
    assert "at equal joint drift it earns" in sentence(study, found, claim)
    assert "decentralised + memory" in sentence(study, found, claim)


def test_who_only_moves_less_is_no_better(study, told):
    """The candidate earns what the baseline does, with a fifth of its drift; so does the slow one."""
    found = told(
        {"plain": (0.99, 0.05), "slow": (0.98, 0.005), "wide": (0.97, 0.05), "generated": (1.0, 0.01)}
    )
    (claim,) = found.claims
    assert not claim.may_be_made
    assert claim.hardest.against == "slow"
    assert "no claim" in sentence(study, found, claim)
    assert "slow earns as much or more" in sentence(study, found, claim)
    assert claim.baseline.difference > 0


def test_nothing_is_claimed_before_all_rivals_were_run(study, told):
    found = told({"plain": (0.5, 0.1), "slow": (0.5, 0.05), "generated": (1.0, 0.01)})
    (claim,) = found.claims
    assert claim.p < 0.01
    assert not claim.may_be_made
    assert "was not all run: wide" in sentence(study, found, claim)


def test_without_the_baseline_there_is_nothing_to_claim(told):
    assert told({"slow": (0.5, 0.05), "generated": (1.0, 0.01)}).claims == []


def test_the_drift_that_is_saved_is_read_at_the_level(told):
    found = told({"plain": (1.0, 0.05), "generated": (1.0, 0.01)})
    assert found.claims[0].saved == pytest.approx({"plain": 0.8})


def test_the_drift_that_is_saved_is_also_told_beside_the_rival_that_needs_least(study, told):
    # drifts a round 0.04 and 0.02 of rivals, 0.05 of the baseline and 0.01 of the candidate, equal returns
    found = told({"plain": (1.0, 0.05), "slow": (1.0, 0.04), "wide": (1.0, 0.02), "generated": (1.2, 0.01)})
    (claim,) = found.claims
    assert set(claim.saved) == {"plain", "wide"}
    assert claim.saved["wide"] < claim.saved["plain"]
    assert "less joint drift than plain and" in sentence(study, found, claim._replace(may_be_made=True))


def test_seeds_that_never_reach_the_level_are_counted(told):
    found = told({"plain": (0.5, 0.05), "generated": (1.2, 0.01)})
    plain, generated = found.arms
    assert (plain.lost, generated.lost) == (SEEDS, 0)
    assert np.isnan(plain.to_level.mean)


def test_curves_that_coincide_are_never_a_claim(study, told):
    found = told({"plain": (1.0, 0.05), "generated": (1.0, 0.01)})
    (claim,) = found.claims
    assert claim.baseline.coincide
    assert not claim.may_be_made
    assert "not wired in" in sentence(study, found, claim)


def test_a_rival_that_is_the_baseline_to_the_bit_is_said_to_control_nothing(told):
    found = told({"plain": (0.5, 0.1), "slow": (0.5, 0.1), "wide": (0.6, 0.1), "generated": (1.0, 0.01)})
    assert [job.arm for job in found.idle] == ["slow"]


def test_a_control_that_is_its_base_to_the_bit_is_said_to_control_nothing(study, told):
    found = told({"plain": (0.5, 0.1), "generated": (1.0, 0.01), "mistaken": (1.0, 0.01)})
    (said,) = idle(study, found, "four")
    assert said.startswith("mistaken: the curves of generated to the bit")
    assert said.endswith("nothing was controlled by it.")


def test_a_control_that_differs_from_its_base_is_not(study, told):
    found = told({"plain": (0.5, 0.1), "generated": (1.0, 0.01), "mistaken": (0.5, 0.1)})
    assert idle(study, found, "four") == []


def test_a_context_that_any_other_game_replaces_is_said_to_do_nothing(study, told):
    found = told({"plain": (0.5, 0.1), "generated": (1.0, 0.01), "mistaken": (1.0, 0.01)})
    assert "Its context is not shown to matter" in sentence(study, found, found.claims[0])
