"""The ladder: what its rungs are, and what may be said of numbers worked by hand."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from coplay import runs
from coplay.algorithms import ALGORITHMS
from coplay.algorithms.ppo import Plan
from coplay.algorithms.ppo_config import PPOConfig
from coplay.audit import ladder
from coplay.audit.climbing import Climbed, climb, read, rises, skill
from coplay.audit.rungs import Rung, rungs
from coplay.audit.subject import Budget, Subject
from coplay.audit.symptoms import first_rung, sharing, spread
from coplay.errors import BadInput
from coplay.experiment import build, read_experiment, with_overrides
from coplay.training.records import metric_rows
from coplay.training.rollout import collect, start_playing
from coplay.training.run_folder import RunFolder
from tests.small import same_bits, small, small_job

# --- rungs ---------------------------------------------------------------------------------------

EXPECTED = {
    "ppo": "full full_shared",
    "mappo": "ppo full ppo_per_agent full_per_agent",
    "happo": "ppo mappo full ppo_shared full_shared",
    "hyper_mappo": "ppo mappo full ppo_per_agent full_per_agent",
    "hop": "ppo opponents beliefs full ppo_shared full_shared",
    "hop_plus": "ppo opponents subgoals world full ppo_shared full_shared",
}
REFUSED = {"happo": "full_shared", "hyper_mappo": "full_per_agent", "hop": "full_shared"}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_ladder_that_ends_with_the_whole_of_it(name):
    experiment = small(algorithm=name)
    found = rungs(experiment)
    assert [rung.name for rung in found] == EXPECTED[name].split()
    assert [rung.name for rung in found if rung.refused] == REFUSED.get(name, "").split()
    assert next(rung for rung in found if rung.name == "full").experiment == experiment
    for rung in found:
        assert rung.adds and (rung.experiment is None or build(rung.experiment).stretches)


def test_a_refusal_says_why():
    (refused,) = [rung for rung in rungs(small("hop_4h1s_4x4")) if rung.refused]
    assert "parameters='per_agent'" in refused.refused and refused.twin_of == "full"


def learned(experiment, config):
    """Policy and critic after a round of play and an update; the same draws for every algorithm."""
    env = build(experiment).env
    name = "ppo" if type(config) is PPOConfig else experiment.algorithm
    player = ALGORITHMS[name](env, (0, 1, 2, 3), config, Plan(4, 10, 16, 10))
    params = player.init(jax.random.key(0))

    def update():
        actor = start_playing(env, player, jax.random.key(1), 16)
        played = collect(env, player, params, actor, jax.random.key(2), 10, 10)[1]
        return player.learn.update(params, player.learn.init(params), played, jax.random.key(3))[0]

    after = jax.jit(update)()
    own = (after["policy"] if isinstance(after, dict) else after).own["group"]
    return {part: own[part] for part in ("policy", "critic", "scale")}


def test_the_barest_rung_of_hop_plus_is_ppo_and_the_next_but_one_is_not():
    experiment = small("hop_plus_4h1s_4x4")
    found = {rung.name: rung.experiment for rung in rungs(experiment)}
    shared = {f.name: getattr(experiment.hop_plus, f.name) for f in dataclasses.fields(PPOConfig)}
    plain = learned(experiment, PPOConfig(**shared))
    assert same_bits(learned(found["ppo"], found["ppo"].hop_plus), plain)
    assert not same_bits(learned(found["subgoals"], found["subgoals"].hop_plus), plain)


def test_another_algorithm_takes_over_the_settings_of_the_full_one():
    bare = rungs(small("happo_4h1s_4x4", learning_rate=3e-4))[0].experiment
    assert bare.algorithm == "ppo" and bare.ppo.learning_rate == 3e-4
    assert bare.ppo.max_grad_norm == 10.0  # as MAPPO has it, where PPO's own default is 0.5


def test_a_lineup_keeps_its_other_players():
    lineup = ("mappo", "nearest_stag", "mappo", "nearest_stag")
    bare = rungs(small("ppo_4h1s_4x4", lineup=lineup))[0].experiment
    assert bare.lineup == ("ppo", "nearest_stag", "ppo", "nearest_stag")


def test_rungs_that_add_nothing_are_left_out_and_the_last_says_what_it_adds():
    unused = {"hop_plus.world": "none", "hop_plus.real_share": 1.0}
    found = [rung for rung in rungs(small("hop_plus_4h1s_4x4", **unused)) if not rung.twin_of]
    assert [rung.name for rung in found] == ["ppo", "opponents", "full"]
    assert "read subgoals" in found[-1].adds
    assert [rung.name for rung in rungs(read_experiment("imagination_reference"))][:3] == [
        "ppo",
        "world",
        "full",
    ]


def test_orders_are_a_rung_of_their_own():
    found = rungs(small("hop_plus_4h1s_4x4", **{"hop_plus.ordered_games": 0.5}))
    assert [rung.name for rung in found][:3] == ["ppo", "company", "opponents"]
    assert [rung.experiment.hop_plus.ordered_games for rung in found[:3]] == [0.0, 0.5, 0.5]


def test_one_learner_has_nobody_to_share_with():
    lineup = ("ppo", "nearest_stag", "nearest_stag", "nearest_stag")
    assert "one seat learns" in rungs(small(lineup=lineup))[-1].refused


def test_several_algorithms_are_one_rung_and_none_is_refused():
    assert [rung.name for rung in rungs(small(lineup=("ppo", "ppo", "mappo", "mappo")))] == ["full"]
    with pytest.raises(BadInput, match="nobody learns"):
        rungs(small(lineup=("nearest_stag",) * 4))


# --- figures of a run ----------------------------------------------------------------------------


def test_figures_are_those_of_the_last_fifth(tmp_path):
    # 10 updates; the last fifth of the way from the first to the last holds the last two.
    late = np.array([0.0] * 8 + [1.0, 3.0], np.float32)  # mean 2
    returns = np.stack([late * scale for scale in (1.0, 1.0, 1.0, 2.0)], axis=-1)[None].repeat(2, axis=0)
    metrics = {"return": returns, "value/loss": late[None].repeat(2, axis=0)}
    for name, nats in (("even_", 1.4), ("", 1.0), ("true_", 0.6)):
        metrics[f"opponents/{name}surprise"] = np.full((2, 10), nats, np.float32)
    folder, work = RunFolder.create(tmp_path / "run", "", {}), small_job(seeds=2)
    folder.write_metrics(0, 10 * work.steps_per_update, metric_rows(work, metrics, 0, 10))
    found = read(Rung("full", "", small(seeds=2)), folder)
    assert_allclose(found.returns, [[2.0, 2.0, 2.0, 4.0]] * 2)
    assert set(found.per_seed) == {"return", "seat_order", "value_loss", "opponent_skill"}
    assert_allclose(found.per_seed["return"], [2.5, 2.5])
    assert_allclose(found.per_seed["value_loss"], [2.0, 2.0])
    assert_allclose(found.per_seed["opponent_skill"], [0.5, 0.5], rtol=1e-5)  # (1.4 - 1.0) / (1.4 - 0.6)
    # The line through 2, 2, 2, 4 rises 0.6 a seat, 1.8 in all.
    assert_allclose(found.per_seed["seat_order"], 1.8 / found.to_earn, rtol=1e-6)


def test_what_a_seed_does_not_tell_is_left_out(tmp_path):
    metrics = {"return": np.ones((2, 5, 4), np.float32), "value/loss": np.ones((2, 5), np.float32)}
    metrics["value/loss"][1, -1] = np.nan
    folder, work = RunFolder.create(tmp_path / "run", "", {}), small_job(seeds=2)
    folder.write_metrics(0, 5 * work.steps_per_update, metric_rows(work, metrics, 0, 5))
    assert set(read(Rung("full", "", small(seeds=2)), folder).per_seed) == {"return", "seat_order"}


def test_a_run_too_short_for_an_episode_is_refused(tmp_path):
    folder, work = RunFolder.create(tmp_path / "run", "", {}), small_job()
    folder.write_metrics(0, 160, metric_rows(work, {"value/loss": np.ones((1, 1), np.float32)}, 0, 1))
    with pytest.raises(BadInput, match="no episode ended"):
        read(Rung("full", "", small()), folder)


def test_seats_that_are_played_otherwise_have_no_order(tmp_path):
    lineup = ("ppo", "ppo", "ppo", "nearest_stag")
    metrics = {"return": np.ones((2, 5, 4), np.float32)}
    folder, work = RunFolder.create(tmp_path / "run", "", {}), small_job(seeds=2)
    folder.write_metrics(0, 5 * work.steps_per_update, metric_rows(work, metrics, 0, 5))
    found = read(Rung("full", "", small(seeds=2, lineup=lineup)), folder)
    assert found.returns.shape == (2, 3) and set(found.per_seed) == {"return"}


def test_a_rise_is_that_of_the_nearest_line():
    assert_allclose(rises(np.array([[0.0, 1, 2, 3], [1, 1, 1, 1], [0, 0, 0, 1]])), [3.0, 0.0, 0.9], atol=1e-9)


def test_skill_is_not_told_where_there_is_nothing_to_foresee():
    even, own, true = np.array([1.4, 1.4]), np.array([1.6, 1.4]), np.array([1.0, 1.395])
    assert_allclose(skill(even, own, true), [-0.5, np.nan])


def test_an_interval_over_seeds_is_students():
    # 1 to 6: mean 3.5, deviation 1.871, error 0.7638; t of 5 degrees is 2.571.
    found = spread(np.arange(1.0, 7.0))
    assert_allclose(found[:3], [3.5, 1.537, 5.463], atol=1e-3)
    assert np.isnan(spread(np.array([2.0])).low)


# --- where it starts -----------------------------------------------------------------------------

SEEDS = 6
NOISE = np.array([-2.0, -1.0, 0.0, 0.0, 1.0, 2.0]) / 100
EVEN = np.array([[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3], [3, 1, 4, 2], [1, 3, 4, 2], [4, 2, 1, 3]]) / 1000


def rung(name, seeds=SEEDS, slope=0.0, parameters="per_agent", twin_of="", **levels) -> Climbed:
    """Returns near 2 that rise by `slope` a seat; other figures at their levels, each with the same noise."""
    returns = (levels.pop("earned", 2.0) + NOISE[:, None] + EVEN + slope * np.arange(4))[:seeds]
    per_seed = {name: (level + NOISE)[:seeds] for name, level in levels.items()}
    per_seed |= {"return": returns.mean(axis=1), "seat_order": rises(returns) / 2.0}
    return Climbed(Rung(name, "", None, "", twin_of, parameters), returns, 2.0, per_seed)


def test_an_order_is_named_at_the_rung_that_brings_it():
    climbed = [rung("ppo"), rung("opponents"), rung("world", slope=0.2), rung("full", slope=0.2)]
    found = first_rung(climbed, "seat_order")
    assert (found.rung, found.below) == ("world", "opponents")
    # 0.2 a seat are 0.6 from the first to the last, of 2 there are to earn; seed by seed exactly so.
    assert_allclose(found.difference[:3], [0.3, 0.3, 0.3], atol=1e-9)
    assert "cannot be told apart" not in found.says


def test_an_order_too_small_to_matter_is_on_no_rung():
    # 0.02 a seat are 0.03 of what there is to earn, below 0.05, however sure.
    assert first_rung([rung("ppo"), rung("full", slope=0.02)], "seat_order").says == "on no rung"


def test_a_loss_of_return_is_judged_against_the_first_rung():
    climbed = [rung("ppo"), rung("subgoals", earned=1.95), rung("full", earned=1.8)]
    found = first_rung(climbed, "return")
    # 0.05 is less than a twentieth of 2; 0.2 is more. Against the rung below: 0.15.
    assert (found.rung, found.below) == ("full", "subgoals")
    assert_allclose(found.difference.value, -0.15)


def test_the_critics_loss_is_compared_by_division():
    climbed = [rung("ppo"), rung("world"), rung("full")]
    losses = [1.0 + NOISE, 1.2 * (1.0 + NOISE), 1.8 * (1.0 + NOISE)]
    climbed = [
        dataclasses.replace(one, per_seed=one.per_seed | {"value_loss": loss})
        for one, loss in zip(climbed, losses, strict=True)
    ]
    found = first_rung(climbed, "value_loss")
    assert (found.rung, found.below) == ("full", "world")
    assert_allclose(found.difference[:3], [1.5, 1.5, 1.5])


def test_a_symptom_of_the_first_rung_is_brought_by_no_part():
    climbed = [rung(name, value_explained_variance=-0.5) for name in ("ppo", "full")]
    found = first_rung(climbed, "explained_variance")
    assert (found.rung, found.below) == ("ppo", None) and "no part brings it" in found.says


def test_a_figure_that_the_first_rung_lacks_is_named_where_it_is_told():
    climbed = [rung("ppo"), rung("opponents", opponent_skill=0.1), rung("full", opponent_skill=0.1)]
    found = first_rung(climbed, "opponent_skill")
    assert found.rung == "opponents" and "the first rung that tells" in found.says
    better = [rung("ppo"), rung("opponents", opponent_skill=0.8), rung("full", opponent_skill=0.1)]
    found = first_rung(better, "opponent_skill")
    assert (found.rung, found.below) == ("full", "opponents")
    assert_allclose(found.difference.value, -0.7)


def test_neighbours_that_differ_by_chance_are_said_to():
    # Intervals reach 0.0149 either way: from -0.01 beyond 0, from -0.02 not; their difference's twice as far.
    first, second = (rung(name, value_explained_variance=-0.01) for name in ("ppo", "full"))
    second.per_seed["value_explained_variance"] = -0.02 - NOISE
    found = first_rung([first, second], "explained_variance")
    assert found.rung == "full" and "cannot be told apart" in found.says


def test_few_seeds_are_not_judged():
    climbed = [rung("ppo", seeds=4), rung("full", seeds=4, slope=0.5)]
    found = first_rung(climbed, "seat_order")
    assert found.rung is None and "not enough seeds: 4" in found.says
    assert first_rung(climbed, "opponent_skill").says == "no rung tells"


@pytest.mark.parametrize(
    ("own", "shared", "says"),
    [
        (0.2, 0.2, "stays under shared weights: look at envs and book-keeping"),
        (0.2, 0.0, "goes with sharing: look at data and keys per seat"),
        (0.0, 0.0, "no order of seats, shared or not"),
        (0.0, 0.2, "is there under shared weights only"),
    ],
)
def test_shared_weights_tell_where_an_order_comes_from(own, shared, says):
    twin = rung("full_shared", slope=shared, parameters="shared", twin_of="full")
    (found,) = sharing([rung("ppo"), rung("full", slope=own), twin])
    assert found.rung == "full" and says in found.says
    assert_allclose(found.difference.value, 1.5 * (shared - own), atol=1e-9)


def test_the_difference_is_shared_less_own_whichever_was_asked_for():
    full = rung("full", slope=0.2, parameters="shared_with_id")
    (found,) = sharing([full, rung("full_per_agent", parameters="per_agent", twin_of="full")])
    assert_allclose(found.difference.value, 0.3)
    assert "only" in found.says


def test_sharing_is_not_judged_by_few_seeds():
    (found,) = sharing([rung("full", seeds=3), rung("full_shared", 3, 0.0, "shared", "full")])
    assert "not enough seeds: 3" in found.says


# --- climbing, and the check ---------------------------------------------------------------------

TINY = {"rollout.num_envs": 4, "rollout.num_steps": 4, "rollout.sequence_length": 4, "minibatches": 2}


def tiny():
    sizes = TINY | {"hidden": (4,), "epochs": 1, "saving.every": 2, "devices": 1}
    return with_overrides(read_experiment("matrix_chicken"), sizes)


class StopsAtOnce(runs.Watcher):
    def wants_stop(self) -> bool:
        return True


def test_a_stopped_rung_is_gone_on_with_and_a_finished_one_is_read(tmp_path, monkeypatch):
    full = rungs(tiny())[:1]
    (whole,) = climb(full, 2, 64, tmp_path / "whole")
    assert climb(full, 2, 64, tmp_path / "parts", StopsAtOnce()) == []
    monkeypatch.setattr(runs, "train", lambda *_, **__: pytest.fail("trained again"))
    (resumed,) = climb(full, 2, 64, tmp_path / "parts")
    monkeypatch.setattr(runs, "resume", lambda *_, **__: pytest.fail("gone on with again"))
    (again,) = climb(full, 2, 64, tmp_path / "parts")
    for one in (resumed, again):
        assert one.per_seed.keys() == whole.per_seed.keys() >= {"return", "value_loss"}
        for name, values in whole.per_seed.items():
            assert_allclose(one.per_seed[name], values)
    with pytest.raises(BadInput, match="other settings"):
        climb(full, 3, 64, tmp_path / "parts")


def subject(experiment) -> Subject:
    built = build(experiment)
    return Subject(built.env, "mine", built.stretches[-1].lineup, None, experiment)


def found(given: Subject, budget: Budget):
    return ladder.LADDER[0].call(given, budget, jax.random.key(0))


def test_the_check_needs_time_a_learner_and_two_rungs():
    short = found(subject(tiny()), Budget(239.0))
    assert short.verdict == "not_run" and "coplay ablate" in short.next
    given = subject(tiny())
    assert "nobody learns" in found(dataclasses.replace(given, experiment=None), Budget()).next
    lineup = ("ppo", "nearest_stag", "nearest_stag", "nearest_stag")
    assert "one rung" in found(subject(small(lineup=lineup)), Budget()).next


def test_the_check_tells_and_never_alarms(monkeypatch):
    monkeypatch.setattr(ladder, "UPDATES", 2)
    told = found(subject(tiny()), Budget(1.0, is_full=True, seeds=2))
    assert told.verdict == "pass" and told.figure == 2.0
    assert [one["name"] for one in told.drawing["rungs"]] == ["full", "full_shared"]
    assert json.loads(json.dumps(told.drawing))["kind"] == "ladder"
    assert "not enough seeds" in told.next


def pretended(monkeypatch, seconds: float) -> list[str]:
    """Rungs that take so long each, without training; an order of seats at the last. The names climbed."""
    seen: list[str] = []

    def pretend(given, *_):
        (one,) = given
        seen.append(one.name)
        made = rung(one.name, slope=0.3 if one.name == "full" else 0.0)
        return [dataclasses.replace(made, seconds=seconds)]

    monkeypatch.setattr(ladder, "climb", pretend)
    return seen


def test_where_time_is_short_the_two_ends_are_climbed(monkeypatch):
    seen = pretended(monkeypatch, 1000.0)
    told = found(subject(small("hop_plus_4h1s_4x4")), Budget())
    assert seen == ["ppo", "full"]
    assert "first at full" in told.next and "ppo's" in told.next
    assert told.drawing["first"] == {"seat_order": "full"}
    left_out = [one["name"] for one in told.drawing["rungs"] if one["not_run"]]
    assert left_out == ["opponents", "subgoals", "world", "ppo_shared", "full_shared"]


def test_with_time_all_are_climbed_and_told_in_order(monkeypatch):
    seen = pretended(monkeypatch, 1.0)
    told = found(subject(small("hop_plus_4h1s_4x4")), Budget())
    assert seen == ["ppo", "full", "ppo_shared", "full_shared", "opponents", "subgoals", "world"]
    assert "first at full: " in told.next and "world's" in told.next
    assert not any(one["not_run"] for one in told.drawing["rungs"])
