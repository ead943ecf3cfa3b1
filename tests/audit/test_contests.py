"""Where several could be paid, nobody's name may decide who is."""

import dataclasses

import jax

from coplay.audit import CHECKS
from coplay.audit.finding import Seen, findings
from coplay.audit.subject import Budget, Subject
from coplay.types import Environment
from tests.audit.mutants import stag_hunt


def verdict(env: Environment):
    outcome = CHECKS["contests"].call(Subject(env, "a game"), Budget(), jax.random.key(3))
    return findings([Seen(CHECKS["contests"], outcome, 0.0)])[0]


def paying_seat_2_more(env: Environment) -> Environment:
    """Whatever anybody is paid, seat 2 is paid half as much again."""

    def step(state, action, key):
        state, timestep = env.step(state, action, key)
        return state, dataclasses.replace(timestep, reward=timestep.reward.at[2].mul(1.5))

    return dataclasses.replace(env, step=step)


def test_a_fair_game_pays_all_names_alike():
    assert verdict(stag_hunt()).verdict == "pass"


def test_a_name_that_is_paid_more_is_found():
    found = verdict(paying_seat_2_more(stag_hunt()))
    assert found.verdict == "fail" and found.room == "envs"
    assert found.next.startswith("seat 2 is paid +")
