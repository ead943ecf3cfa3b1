"""Other processes at the same study: each takes the next arm that nobody is at (`studies/running.py`)."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from coplay.cli.output import people
from coplay.cli.train import LiveLine
from coplay.errors import BadInput
from coplay.files import can_lock
from coplay.studies import Budget, Job, Study, run_study
from coplay.training import processes


def how_many(asked: int | None, jobs: int, devices: int) -> int:
    """Processes in all: as many as were asked for, else one for every core that its arms leave free."""
    if asked is not None and asked < 1:
        raise BadInput(f"--workers {asked} should be 1 or more")
    if not can_lock():  # nothing would keep two of them from the same arm
        return 1
    return min(jobs, asked or max(1, (os.cpu_count() or 1) // devices))


@contextlib.contextmanager
def helped_by(
    number: int, study: Study, jobs: list[Job], budget: Budget, out: Path, devices: int
) -> Iterator[None]:
    """So many processes help meanwhile. When the work is done or given up they stop after what they are at,
    and keep it; one that failed is told of, and its arm is anybody's."""
    given = (study, jobs, budget, out, devices)
    helpers = [processes.FRESH.Process(target=_help, args=given) for _ in range(number)]
    for helper in helpers:
        helper.start()
    try:
        yield
    finally:
        for helper in helpers:
            helper.terminate()
        for helper in helpers:
            helper.join()
            if helper.exitcode not in (0, -signal.SIGTERM):
                people.print(f"a process that helped ended with exit code {helper.exitcode}")


def _help(study: Study, jobs: list[Job], budget: Budget, out: Path, devices: int) -> None:
    with Quiet() as watcher:
        processes.begin(devices)
        run_study(study, jobs, budget, out, watcher, people.print)


class Quiet(LiveLine):
    """Stops when asked to, and leaves the progress line to whoever is helped."""

    def _stop(self, number, _frame) -> None:
        self.signal = number

    def planned(self, planned) -> None:
        pass

    def compiled(self, program, free) -> None:
        pass

    def progressed(self, progress) -> None:
        pass
