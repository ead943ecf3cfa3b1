"""Planted defects against the check that is meant for each: some with every commit, all with `--whole`.

Defects of games and of planning are tried in their own files.
"""

import pytest

from tests.audit.suite import DEFECTS, quickly

SINCE = [n for n, planted in sorted(DEFECTS.items()) if planted.check and n > 200]  # missed at first
OTHERS = [n for n, planted in sorted(DEFECTS.items()) if planted.room not in ("envs", "planning") and n < 100]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("number", [*OTHERS, *SINCE])
def test_each_planted_defect_is_found_by_the_check_for_it(number):
    found = quickly(DEFECTS[number])
    assert found.verdict == "fail", f"{DEFECTS[number].what}: {found}"
    assert found.room == DEFECTS[number].room and found.next


def test_the_list_is_whole():
    assert set(range(1, 79)) <= set(DEFECTS)
    assert all(planted.what and planted.check for number, planted in DEFECTS.items() if number < 200)
