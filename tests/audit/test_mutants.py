"""Planted defects against the check that is meant for each: all of them by command, some with every commit.

Defects of games and of planning are tried in their own files.
"""

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.audit.suite import DEFECTS, quickly

OTHERS = [n for n, planted in sorted(DEFECTS.items()) if planted.room not in ("envs", "planning") and n < 100]
SAMPLE = 10


def of_this_commit() -> list[int]:
    """A sample that is another one with every commit."""
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    )
    return sorted(
        sorted(OTHERS, key=lambda n: hashlib.sha256(f"{asked.stdout}{n}".encode()).digest())[:SAMPLE]
    )


def is_found(number: int) -> None:
    found = quickly(DEFECTS[number])
    assert found.verdict == "fail", f"{DEFECTS[number].what}: {found}"
    assert found.room == DEFECTS[number].room and found.next


@pytest.mark.mutants
@pytest.mark.parametrize("number", OTHERS)
def test_each_planted_defect_is_found_by_the_check_for_it(number):
    is_found(number)


@pytest.mark.parametrize("place", range(SAMPLE))
def test_a_sample_of_planted_defects_is_found(place):
    is_found(of_this_commit()[place])


def test_the_list_is_whole():
    assert set(range(1, 79)) <= set(DEFECTS)
    assert all(planted.what and planted.check for planted in DEFECTS.values())
