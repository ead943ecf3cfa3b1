"""How small a seat's advantage does random play show? A gift per episode to one seat, over many keys.

    python -m tests.audit.power 0.05 0.02 --keys 20           65,536 episodes each
    python -m tests.audit.power 0.01 --keys 20 --full         a million

Prints how often the check failed, and how often it did without any gift.
"""

import argparse

import jax
import numpy as np

from coplay.audit import CHECKS
from coplay.audit.finding import Seen, findings
from coplay.audit.subject import Budget, Subject
from coplay.training.devices import prepare
from tests.audit.mutants import paid, stag_hunt


def given(gift: float):
    """So much to seat 2 at the end of an episode."""

    def more(env, before, reward, after, key):
        return reward + np.float32(gift) * (after.time >= after.end) * (np.arange(4) == 2)

    return paid(more)(stag_hunt())


def verdicts(gift: float, keys: int, is_full: bool) -> list[str]:
    subject, found = Subject(given(gift), "a gift"), []
    for number in range(keys):
        check = CHECKS["random_play"]
        outcome = check.call(subject, Budget(3600.0, is_full), jax.random.key(number))
        found.append(findings([Seen(check, outcome, 0.0)])[0].verdict)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gifts", nargs="+", type=float)
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--full", action="store_true")
    arguments = parser.parse_args()
    prepare(1)
    for gift in (0.0, *arguments.gifts):
        found = verdicts(gift, arguments.keys, arguments.full)
        counts = {name: found.count(name) for name in sorted(set(found))}
        print(f"gift {gift:g} in {arguments.keys} audits: {counts}", flush=True)


if __name__ == "__main__":
    main()
