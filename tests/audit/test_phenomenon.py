"""What a run's curves say, on curves written by hand: one clean run, and one with each thing wrong."""

import dataclasses

import jax
import numpy as np
import pytest

from coplay.audit import CHECKS
from coplay.audit.finding import Seen, exact, findings, headline
from coplay.audit.phenomenon import at_end, order
from coplay.audit.subject import Budget, Subject
from coplay.envs import make_game
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
    return written(path, returns)


def written(path, returns) -> RunFolder:
    """A run of returns [seed, update, seat]; NaN where no episode ended."""
    returns = np.asarray(returns, np.float32)
    work = small_job(seeds=len(returns))
    folder = RunFolder.create(path, "", {})
    rows = metric_rows(work, {"return": returns}, 0, returns.shape[1])
    folder.write_metrics(0, returns.shape[1] * work.steps_per_update, rows)
    return folder


def found(folder: RunFolder | None, lineup=("ppo",) * SEATS) -> dict:
    return {finding.name: finding for finding in findings(curves(folder, lineup))}


def curves(folder: RunFolder | None, lineup=("ppo",) * SEATS) -> list[Seen]:
    subject = Subject(stag_hunt(), "a run", lineup, folder)
    names = [name for name, check in CHECKS.items() if check.area == "phenomenon"]
    return [Seen(CHECKS[n], CHECKS[n].call(subject, Budget(), jax.random.key(0)), 0.0) for n in names]


def test_a_clean_run_has_nothing_to_explain(tmp_path):
    assert {finding.verdict for finding in found(a_run(tmp_path / "run")).values()} == {"pass"}


def test_seats_ranked_by_number_are_found_and_counted(tmp_path):
    told = found(a_run(tmp_path / "run", shift=0.2))
    assert told["order"].verdict == "fail"
    assert told["order"].figure == pytest.approx(0.6, abs=0.05)  # the last less the first
    assert told["any_seat"].explained_by == ("order",)


def test_whatever_fails_beneath_the_curves_explains_them_and_its_room_is_named(tmp_path):
    cause = Seen(CHECKS["turns"], exact("x", 1, 4, "seat 2 learns last"), 0.0)
    told = findings([*curves(a_run(tmp_path / "run", shift=0.2, fall=1.0)), cause])
    explained = {finding.name: finding.explained_by for finding in told if finding.verdict == "fail"}
    assert explained == {
        "order": ("turns",),
        "any_seat": ("order", "turns"),
        "collapse": ("turns",),
        "turns": (),
    }
    assert "Look first at training" in headline(told) and "seat 2 learns last" in headline(told)


def test_curves_alone_are_told_without_a_room(tmp_path):
    told = findings(curves(a_run(tmp_path / "run", shift=0.2)))
    said = "2 fail, 3 pass. The curves show it, and no other check that was made says where it comes from: "
    assert headline(told).startswith(said + "seat 3 earns 0.5")
    assert {finding.room for finding in told if finding.verdict == "fail"} == {""}


def test_where_one_wins_what_another_loses_a_gap_is_weighed_by_what_was_earned(tmp_path):
    subject = Subject(make_game("matching_pennies"), "a run", ("ppo", "ppo"))
    folder = written(tmp_path / "run", of_two_seats(np.full((5, 6), 0.8)))  # its ceiling is a mean of 0
    told = order(dataclasses.replace(subject, run=folder), Budget(), jax.random.key(0))
    assert told.figure == pytest.approx(1.6) and told.threshold == pytest.approx(0.05 * 0.8)


def test_an_order_too_small_to_matter_is_no_alarm(tmp_path):
    assert found(a_run(tmp_path / "run", shift=0.02))["order"].verdict == "pass"


def test_two_seeds_that_are_one_are_found(tmp_path):
    told = found(a_run(tmp_path / "run", copies=True))["seeds"]
    assert told.verdict == "fail" and "seeds 3 and 5" in told.next


def of_two_seats(first) -> np.ndarray:
    """What one seat wins the other loses: the mean over seats is 0 for every seed and update."""
    return np.stack([first, -np.asarray(first)], axis=-1)


def test_seeds_of_a_game_of_winners_and_losers_are_not_one_because_their_sums_are(tmp_path):
    told = found(written(tmp_path / "run", of_two_seats([[0.1, 0.3, 0.2, 0.4], [0.2, 0.1, 0.4, 0.3]])))
    assert told["seeds"].verdict == "pass" and told["seeds"].figure == 0


def test_equal_seeds_of_such_a_game_are_one(tmp_path):
    told = found(written(tmp_path / "run", of_two_seats([[0.1, 0.3, 0.2, 0.4], [0.2, 0.3, 0.2, 0.4]])))
    assert told["seeds"].verdict == "fail" and told["seeds"].figure == 3


@pytest.mark.parametrize(
    "end",
    [
        [5.0, 5.0, 5.0, 5.0],  # the ceiling
        [5.0, 4.9, 5.0, 5.0],  # from which both stumble alike: two different returns, and it takes three
        [5.0, np.nan, np.nan, np.nan],  # and then no episode ends
    ],
)
def test_seeds_that_stand_still_alike_are_not_one(tmp_path, end):
    starts = [[1.0, 2.0], [1.5, 2.5]]
    returns = np.array([start + end for start in starts])[:, :, None].repeat(2, axis=2)
    assert found(written(tmp_path / "run", returns))["seeds"].verdict == "pass"


def test_one_seat_that_differs_is_enough_to_tell_seeds_apart(tmp_path):
    returns = np.array([[1.0, 2.0, 3.0, 4.0]] * 2)[:, :, None].repeat(2, axis=2)
    returns[1, :, 1] += 0.5
    assert found(written(tmp_path / "run", returns))["seeds"].verdict == "pass"


def test_a_run_that_was_better_before_is_found(tmp_path):
    assert found(a_run(tmp_path / "run", fall=1.0))["collapse"].verdict == "fail"


def test_one_seed_does_not_tell_a_collapse_from_chance(tmp_path):
    told = found(written(tmp_path / "run", [[[1.0], [3.0], [3.0], [1.0], [1.0]]]))["collapse"]
    assert told.verdict == "not_run" and "may be chance" in told.next


def test_a_collapse_is_judged_by_seeds_that_ended_episodes_before_and_after(tmp_path):
    # five updates, so that a fifth is one; the best is the second: 3 - 1 = 2, 4 - 2 = 2, and one is silent
    runs = [[1.0, 3.0, 2.0, 2.0, 1.0], [1.0, 4.0, 3.0, 2.0, 2.0], [1.0, 3.0, 2.0, 2.0, np.nan]]
    told = found(written(tmp_path / "run", np.array(runs)[..., None]))["collapse"]
    assert told.verdict == "fail" and told.figure == 2.0 and told.n == 2


def test_seats_played_by_different_players_are_not_ranked(tmp_path):
    told = found(a_run(tmp_path / "run", shift=0.2), lineup=("ppo", "ppo", "random", "random"))
    assert told["order"].verdict == "not_run" and "played alike" in told["order"].next


def test_without_a_run_nothing_is_said():
    assert {finding.verdict for finding in found(None).values()} == {"not_run"}


def test_the_end_is_the_last_fifth_by_seed_and_seat(tmp_path):
    table = at_end(a_run(tmp_path / "run", shift=1.0))
    assert table.shape == (SEEDS, SEATS)
    assert table[:, 3].mean() - table[:, 0].mean() == pytest.approx(3.0, abs=0.1)
