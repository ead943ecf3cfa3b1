"""Does the audit see a defect at a quarter of its size, and does it say the same whatever key it draws with?

    python -m tests.audit.steadiness --quarter            five defects made small, with five keys each
    python -m tests.audit.steadiness --keys               a clean experiment with five keys: the exact checks
    python -m tests.audit.steadiness --keys mappo_4h1s_4x4

A small defect is tried against the check that is meant for it, which must fail or warn. Prints one line for
each, and ends with 1 if any verdict moved or fewer than four of five small defects were seen.
"""

import argparse
import dataclasses
import sys
from collections import Counter

import jax
import jax.numpy as jnp

from coplay.audit import CHECKS, asked
from coplay.audit.finding import Finding, findings
from coplay.audit.subject import Budget
from coplay.training.devices import keep_compiled_programs, prepare
from tests.audit.mutants import beside_the_stag, by_index, hare_to, paid
from tests.audit.planted import Planted, keeping, replacing
from tests.audit.planted_training import STAGES, updates
from tests.audit.suite import DEFECTS, LIMIT, blindly, in_game, subject_of

KEYS, ENOUGH = 5, 4


def a_quarter_by_index(env, before, reward, after, key):
    return reward + 0.25 * (by_index(env, before, reward, after, key) - reward)


def beside_the_stag_at_times(env):
    """Seat 0 starts on the stag in one episode of four."""
    always = beside_the_stag(env)

    def reset(key):
        is_one = jax.random.uniform(jax.random.fold_in(key, 5)) < 0.25
        return jax.tree.map(lambda a, b: jnp.where(is_one, a, b), always.reset(key), env.reset(key))

    return dataclasses.replace(env, reset=reset)


def an_eighth_slower(before, after):
    return dataclasses.replace(after, params=keeping(1, before.params, after.params, 0.125))


def a_sixteenth_twice(cut):
    """One of sixteen columns is never used: another stands in its place."""

    def spoiled(batch, plan, key):
        columns = jax.tree.leaves(batch)[0].shape[0]
        lost = max(1, columns // 16)
        used = jnp.where(jnp.arange(columns) < lost, jnp.arange(columns) + lost, jnp.arange(columns))
        return cut(jax.tree.map(lambda x: x[used], batch), plan, key)

    return spoiled


SMALL = {
    2: in_game(paid(a_quarter_by_index)),
    5: in_game(beside_the_stag_at_times),
    13: in_game(paid(hare_to(0.525))),
    14: updates(an_eighth_slower),
    28: replacing(STAGES, "_cut", a_sixteenth_twice),
}


def small(number: int) -> Planted:
    return DEFECTS[number]._replace(plant=SMALL[number])


def with_keys(planted: Planted) -> list[Finding]:
    """What the check that is meant for a defect says of it, with each key."""
    found = []
    for seed in range(KEYS):
        with planted.plant():
            subject = subject_of(planted.experiment, planted.settings, seed)
            found += findings([asked(CHECKS[planted.check], subject, Budget(LIMIT), jax.random.key(seed))])
    return found


def quarter() -> bool:
    """Whether at least four of the five are seen with at least four of five keys."""
    seen = 0
    for number in SMALL:
        jax.clear_caches()
        found = with_keys(small(number))
        verdicts = Counter(finding.verdict for finding in found)
        figures = ", ".join(f"{finding.figure:.3g}" for finding in found if finding.figure is not None)
        print(f"{number} {DEFECTS[number].what}: {dict(verdicts)} by {found[0].name} ({figures})", flush=True)
        seen += verdicts["fail"] + verdicts["warn"] >= ENOUGH
    print(f"{seen} of {len(SMALL)} seen at a quarter of their size")
    return seen >= ENOUGH


def repeated(experiment: str) -> bool:
    """Whether every exact check says the same with every key."""
    audits = []
    for seed in range(KEYS):
        found = [finding for finding in blindly(None, experiment, {}, seed) if finding.kind == "exact"]
        audits.append({finding.name: finding.verdict for finding in found})
        print(f"key {seed}: {dict(Counter(audits[-1].values()))}", flush=True)
    moved = sorted(name for name in audits[0] if len({audit[name] for audit in audits}) > 1)
    print(f"{experiment}: {len(audits[0])} exact checks, verdicts that moved: {moved or 'none'}")
    return not moved


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", nargs="?", default="ppo_4h1s_4x4")
    parser.add_argument("--quarter", action="store_true")
    parser.add_argument("--keys", action="store_true")
    arguments = parser.parse_args()
    keep_compiled_programs()
    prepare(1)
    is_seen = quarter() if arguments.quarter else True
    is_steady = repeated(arguments.experiment) if arguments.keys else True
    return 0 if is_seen and is_steady else 1


if __name__ == "__main__":
    sys.exit(main())
