"""What a run's curves say, on curves written by hand: one clean run, and one with each thing wrong."""

import jax
import numpy as np
import pytest

from coplay.audit import CHECKS
from coplay.audit.finding import Seen, findings
from coplay.audit.phenomenon import at_end
from coplay.audit.subject import Budget, Subject
from coplay.training.records import metric_rows
from coplay.training.run_folder import RunFolder
from tests.audit.mutants import stag_hunt
from tests.small import small_job

SEEDS, UPDATES, SEATS = 8, 20, 4


def a_run(path, shift=0.0, fall=0.0, copies=False) -> RunFolder:
    """Returns that rise to 2.5 with some noise; seat i earns `shift` times i more; `fall` is lost again."""
    generator = np.random.default_rng(0)
    rise = np.minimum(np.arange(UPDATES) / 8, 1.0) * 2.5
    rise[-6:] -= fall
    returns = rise[None, :, None] + 0.05 * generator.standard_normal((SEEDS, UPDATES, SEATS))
    returns += shift * np.arange(SEATS)[None, None, :]
    if copies:
        returns[3] = returns[5]
    work = small_job(seeds=SEEDS)
    folder = RunFolder.create(path, "", {})
    rows = metric_rows(work, {"return": returns.astype(np.float32)}, 0, UPDATES)
    folder.write_metrics(0, UPDATES * work.steps_per_update, rows)
    return folder


def found(folder: RunFolder | None, lineup=("ppo",) * SEATS) -> dict:
    subject = Subject(stag_hunt(), "a run", lineup, folder)
    names = [name for name, check in CHECKS.items() if check.area == "phenomenon"]
    seen = [Seen(CHECKS[n], CHECKS[n].call(subject, Budget(), jax.random.key(0)), 0.0) for n in names]
    return {finding.name: finding for finding in findings(seen)}


def test_a_clean_run_has_nothing_to_explain(tmp_path):
    assert {finding.verdict for finding in found(a_run(tmp_path / "run")).values()} == {"pass"}


def test_seats_ranked_by_number_are_found_and_counted(tmp_path):
    told = found(a_run(tmp_path / "run", shift=0.2))
    assert told["order"].verdict == "fail"
    assert told["order"].figure == pytest.approx(0.6, abs=0.05)  # the last less the first
    assert told["any_seat"].explained_by == ("order",)


def test_an_order_too_small_to_matter_is_no_alarm(tmp_path):
    assert found(a_run(tmp_path / "run", shift=0.02))["order"].verdict == "pass"


def test_two_seeds_that_are_one_are_found(tmp_path):
    told = found(a_run(tmp_path / "run", copies=True))["seeds"]
    assert told.verdict == "fail" and "seeds 3 and 5" in told.next


def test_a_run_that_was_better_before_is_found(tmp_path):
    assert found(a_run(tmp_path / "run", fall=1.0))["collapse"].verdict == "fail"


def test_seats_played_by_different_players_are_not_ranked(tmp_path):
    told = found(a_run(tmp_path / "run", shift=0.2), lineup=("ppo", "ppo", "random", "random"))
    assert told["order"].verdict == "not_run" and "played alike" in told["order"].next


def test_without_a_run_nothing_is_said():
    assert {finding.verdict for finding in found(None).values()} == {"not_run"}


def test_the_end_is_the_last_fifth_by_seed_and_seat(tmp_path):
    table = at_end(a_run(tmp_path / "run", shift=1.0))
    assert table.shape == (SEEDS, SEATS)
    assert table[:, 3].mean() - table[:, 0].mean() == pytest.approx(3.0, abs=0.1)
