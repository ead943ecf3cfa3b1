"""Checks of learners: silent on ours, and defects that are not in the list found all the same."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import pytest

from coplay.audit import CHECKS
from coplay.audit.compare import RATE
from coplay.audit.subject import Subject
from coplay.types import Seated
from tests.audit.mutants import stag_hunt
from tests.audit.planted import keeping, map_seated
from tests.audit.suite import finding_of, subject_of

LEARNERS = ["pipeline", "data", "liveness", "models", "value"]
NAMES = [name for name, check in CHECKS.items() if check.area in LEARNERS]
COUNT = itertools.count()
KEPT: dict[str, Subject] = {}  # programs are compiled once for all checks of a subject


def a_subject(name: str) -> Subject:
    if name not in KEPT:
        KEPT[name] = subject_of(name)
    return KEPT[name]


def asked_of(experiments: list[str]) -> list:
    """Every check of every experiment; those of one stay with one worker."""
    return [
        pytest.param(name, check, marks=pytest.mark.xdist_group(f"audit {name}"), id=f"{name}-{check}")
        for name in experiments
        for check in NAMES
    ]


@pytest.mark.sampled(50)
@pytest.mark.parametrize(
    ("name", "check"),
    asked_of(["ppo_4h1s_4x4", "mappo_4h1s_4x4", "hyper_mappo_4h1s_4x4", "hop_plus_4h1s_4x4"]),
)
def test_what_is_sound_passes(name, check):
    found = finding_of(a_subject(name), check)
    assert found.verdict in ("pass", "not_run"), f"{found.verdict}: {found.next}"


@pytest.mark.parametrize("check", [name for name in NAMES if name != "labels"])  # those are the game's own
def test_a_game_by_itself_has_no_learners(check):
    assert finding_of(Subject(stag_hunt(), "a game"), check).verdict == "not_run"


@pytest.mark.xdist_group("audit mappo_4h1s_4x4")
@pytest.mark.parametrize("check", ["starts_apart", "own_reward", "turns", "twins", "equal_terms"])
def test_what_asks_for_weights_of_ones_own_is_not_run_where_they_are_shared(check):
    assert finding_of(a_subject("mappo_4h1s_4x4"), check).verdict == "not_run"


# --- defects beside the list ---------------------------------------------------------------------


def learning(change):
    """`change(update, params, learner, trajectory, key)` in place of an update."""

    def spoil(algorithm):
        stage = algorithm.learn
        return algorithm._replace(learn=stage._replace(update=lambda *given: change(stage.update, *given)))

    return spoil


def half_rate(update, params, learner, trajectory, key):
    """Seat 1 goes half as far."""
    after, learner, metrics = update(params, learner, trajectory, key)
    return keeping(1, params, after, 0.5), learner, metrics


def everyone_is_seat_0(update, params, learner, trajectory, key):
    """Everyone learns from what the first was paid."""
    steps = trajectory.steps
    reward = jnp.broadcast_to(steps.after.reward[..., :1], steps.after.reward.shape)
    steps = dataclasses.replace(steps, after=dataclasses.replace(steps.after, reward=reward))
    return update(params, learner, dataclasses.replace(trajectory, steps=steps), key)


def other_keys(update, params, learner, trajectory, key):
    """A draw that no seed decides: another one every time the program is made."""
    return update(params, learner, trajectory, jax.random.fold_in(key, next(COUNT)))


def critic_stays(update, params, learner, trajectory, key):
    after, learner, metrics = update(params, learner, trajectory, key)

    def old_critic(old: Seated, new: Seated) -> Seated:
        group = new.own["group"] | {"critic": old.own["group"]["critic"]}
        return Seated(new.own | {"group": group}, new.common)

    return map_seated(old_critic, params, after), learner, metrics


def steps_taken_back(update, params, learner, trajectory, key):
    """Seat 1's optimiser remembers nothing of what it did."""
    after, later, metrics = update(params, learner, trajectory, key)
    return after, keeping(1, learner, later), metrics


def departed_count(update, params, learner, trajectory, key):
    """Everyone is said to be there, always."""
    steps = trajectory.steps
    before = dataclasses.replace(steps.before, active=jnp.ones_like(steps.before.active))
    steps = dataclasses.replace(steps, before=before)
    return update(params, learner, dataclasses.replace(trajectory, steps=steps), key)


def seat_0_told_otherwise(update, params, learner, trajectory, key):
    """A figure goes by the name; weights do not."""
    after, learner, metrics = update(params, learner, trajectory, key)
    return after, learner, metrics | {"policy/entropy": metrics["policy/entropy"].at[0].mul(2.0)}


def seat_0_watched_otherwise(update, params, learner, trajectory, key):
    """What is kept beside weights goes by the name; weights do not."""
    after, learner, metrics = update(params, learner, trajectory, key)

    def other(part: Seated) -> Seated:
        watch = part.own["group"]["watch"]
        watch = watch | {"explained": watch["explained"].at[0].add(1.0)}
        return Seated(part.own | {"group": part.own["group"] | {"watch": watch}}, part.common)

    return after, map_seated(other, learner), metrics


def one_begins_slower(algorithm):
    """Seat 1 is given half the rates."""

    def init(params):
        learner = algorithm.learn.init(params)
        leaves, structure = jax.tree_util.tree_flatten_with_path(learner)
        halved = [x.at[1].mul(0.5) if RATE.search(jax.tree_util.keystr(path)) else x for path, x in leaves]
        return jax.tree.unflatten(structure, halved)

    return algorithm._replace(learn=algorithm.learn._replace(init=init))


def never_first(algorithm):
    """No decision is the first of its episode."""

    def act(params, memory, timestep, *rest):
        later = dataclasses.replace(timestep, first=jnp.zeros_like(timestep.first))
        return algorithm.act(params, memory, later, *rest)

    return algorithm._replace(act=act)


def acts_for_the_neighbour(algorithm):
    def act(params, *rest):
        turned = map_seated(
            lambda part: Seated(jax.tree.map(lambda x: jnp.roll(x, 1, axis=0), part.own), part.common), params
        )
        return algorithm.act(turned, *rest)

    return algorithm._replace(act=act)


def sees_nothing(algorithm):
    def act(params, memory, timestep, *rest):
        blind = dataclasses.replace(timestep, observation=jnp.zeros_like(timestep.observation))
        return algorithm.act(params, memory, blind, *rest)

    return algorithm._replace(act=act)


BESIDE = {
    "one rate is half": (learning(half_rate), "twins", "algorithms"),
    "all learn from one reward": (learning(everyone_is_seat_0), "own_reward", "algorithms"),
    "keys that no seed decides": (learning(other_keys), "repeats", "training"),
    "a critic left out": (learning(critic_stays), "moves", "algorithms"),
    "everyone acts by its neighbour's weights": (acts_for_the_neighbour, "own_rows", "nets"),
    "nobody looks": (sees_nothing, "sight", "algorithms"),
    "steps of one seat taken back": (learning(steps_taken_back), "steps_taken", "training"),
    "the departed learn": (learning(departed_count), "departed", "algorithms"),
    "a figure that goes by the name": (learning(seat_0_told_otherwise), "renamed_training", "algorithms"),
    "a memory that goes by the name": (learning(seat_0_watched_otherwise), "renamed_training", "algorithms"),
    "one begins slower": (one_begins_slower, "equal_terms", "algorithms"),
    "episodes that never begin": (never_first, "boundaries", "nets"),
}
SHOWS_ON = {"episodes that never begin": "ppo_gru_4h1s_4x4"}  # others show on PPO without memory


@pytest.mark.sampled(3)
@pytest.mark.parametrize("planted", BESIDE)
def test_a_defect_that_is_in_no_list_is_found_where_it_is(planted):
    spoil, check, room = BESIDE[planted]
    subject = subject_of(SHOWS_ON.get(planted, "ppo_4h1s_4x4"))
    work = subject.learning_job()
    stretch = work.stretches[0]
    subject.kept["job"] = work._replace(stretches=[stretch._replace(algorithm=spoil(stretch.algorithm))])
    found = finding_of(subject, check)
    assert found.verdict == "fail", found
    assert found.room == room and found.next
