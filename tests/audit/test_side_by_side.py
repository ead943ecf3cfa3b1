"""An audit on several cores finds what it finds on one."""

import dataclasses

from coplay.audit import AREAS, CHECKS, checks_of
from coplay.audit.side_by_side import audit_side_by_side, companies
from coplay.audit.subject import Budget, subject_of

ENDS_ABRUPTLY = """
import multiprocessing, os
from coplay.envs import make_game

def make():
    if multiprocessing.parent_process() is not None:
        os._exit(1)
    return make_game("matching_pennies")
"""


def tell(name: str) -> None:
    """Nobody listens."""


def test_every_check_is_in_one_company_and_the_largest_comes_first():
    groups = companies(checks_of(AREAS))
    assert sorted(check.name for group in groups for check in group) == sorted(CHECKS)
    assert max(groups, key=len) is groups[0]
    assert companies(checks_of(["environment"])) == [checks_of(["environment"])]


def test_two_processes_find_what_one_does():
    areas, subject = ("environment", "data"), subject_of("matrix_matching_pennies")
    found = [audit_side_by_side(subject, Budget(), areas, tell, cores) for cores in (1, 2)]
    alone, together = ([dataclasses.replace(one, seconds=0.0) for one in each] for each in found)
    assert [one.name for one in alone] == [check.name for check in checks_of(areas)]
    assert alone == together


def test_a_process_that_is_ended_is_doubted_and_the_audit_goes_on(tmp_path):
    (tmp_path / "mine.py").write_text(ENDS_ABRUPTLY)
    experiment = tmp_path / "mine.toml"
    experiment.write_text(f'game = "{tmp_path}/mine.py:make"\nalgorithm = "ppo"\n')
    subject = subject_of(str(experiment))
    found = audit_side_by_side(subject, Budget(), ("environment", "data"), tell, cores=2)
    assert {one.verdict for one in found} == {"warn"}
    assert all("too little memory" in one.next for one in found)
