"""The loop: the same bits whatever the chunks, stops and resumptions; records that say what happened."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.compute as pc
import pytest

from coplay import experiment as experiments
from coplay import runs
from coplay.errors import BadInput
from coplay.experiment.building import _stretch_of
from coplay.runs import Watcher
from coplay.training import checkpoint, loop, programs
from tests.small import same_bits, small, small_job


class StopAfter(Watcher):
    """Asks for a stop once so many chunks are through."""

    def __init__(self, chunks: int):
        self.left = chunks

    def progressed(self, progress):
        self.left -= 1

    def wants_stop(self):
        return self.left <= 0


def final_state(run):
    work = small_job()
    like = loop.start(work, work.stretches[0])
    return checkpoint.load(run.folder.checkpoints, like)[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return runs.train(small(), tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """Stopped after the first save, then resumed."""
    path = tmp_path_factory.mktemp("runs") / "interrupted"
    stopped = runs.train(small(), path, StopAfter(1))
    assert stopped.finished.stopped
    assert 0 < stopped.finished.updates < 4
    return runs.resume(path)


def test_the_same_seed_gives_the_same_bits_also_when_resumed(whole, interrupted):
    assert same_bits(final_state(whole), final_state(interrupted))


def test_a_resumed_run_writes_the_same_metrics_once(whole, interrupted):
    a, b = whole.metrics(), interrupted.metrics()
    assert a.num_rows == b.num_rows
    assert a.equals(b)


def test_evaluation_leaves_training_equal_to_the_bit(whole, tmp_path):
    watched = runs.train(small(**{"evaluation.every": 2, "evaluation.episodes": 4}), tmp_path / "watched")
    assert same_bits(final_state(whole), final_state(watched))
    assert {"eval/return", "eval/outcome/hares"} <= set(pc.unique(watched.metrics()["metric"]).to_pylist())


def test_nothing_is_compiled_after_the_first_chunk(whole):
    assert whole.finished.recompiles == 0


def test_another_shape_is_compiled_again_and_counted():
    program = programs.Program(jax.jit(lambda x: x + 1.0))
    for expected, numbers in enumerate([jnp.zeros(2), jnp.zeros(3)]):
        np.testing.assert_array_equal(program.run(numbers), numbers + 1.0)
        np.testing.assert_array_equal(program.run(numbers + 1.0), numbers + 2.0)
        assert program.recompiles == expected


@pytest.mark.parametrize("devices", [1, 2])
def test_a_program_needs_arguments_results_and_what_lies_between_what_it_takes_over_once(devices):
    work = small_job(devices=devices)
    state = loop.seat(work, work.stretches[0], None, 0)
    program = programs.chunk_program(work, work.stretches[0], state).compiled_for(state, jnp.int32(0))
    told, found = program.memory_analysis(), programs.account_of(program, 1.0, devices)
    leaves = jax.tree.leaves((dataclasses.replace(state, key=()), jax.random.key_data(state.key)))
    held = sum(shard.data.nbytes for leaf in leaves for shard in leaf.addressable_shards)
    assert found.held == held + 4 * devices, "the state and the number of updates, on every device"
    metrics = jax.tree.leaves(program(state, jnp.int32(0))[1])
    results = told.output_size_in_bytes - told.alias_size_in_bytes
    pointers = 8 * (len(leaves) + len(metrics))
    assert results == sum(leaf.nbytes for leaf in metrics) + pointers, "the state takes its own place"
    assert found.need == found.held + devices * (results + told.temp_size_in_bytes)


def test_the_need_that_is_told_is_the_programs_own(whole):
    work = small_job()
    state = loop.seat(work, work.stretches[0], None, 0)
    program = programs.chunk_program(work, work.stretches[0], state).compiled_for(state, jnp.int32(0))
    assert whole.finished.program_bytes == programs.account_of(program, 0.0, 1).need


def test_a_program_that_is_too_large_at_a_switch_loses_nothing(tmp_path, monkeypatch):
    changes = {"saving.every": 4, "schedule": [{"after": 320, "lineup": ["ppo"] * 4}]}
    experiment = small("scripts_first_4h1s_4x4", **changes)
    whole = runs.train(experiment, tmp_path / "whole")
    free = iter([2**40, 1000])  # enough for the first line-up's program, not for the second's
    with monkeypatch.context() as patched:
        patched.setattr(runs, "free_memory", lambda: next(free))
        with pytest.raises(BadInput, match=r"60% of the .* that are free; lower num_envs"):
            runs.train(experiment, tmp_path / "refused")
    assert checkpoint.steps(tmp_path / "refused" / "checkpoints") == [320]
    resumed = runs.resume(tmp_path / "refused")
    assert resumed.finished.updates == 4
    assert resumed.metrics().equals(whole.metrics())


def test_metrics_have_one_value_per_update_seed_and_seat(whole):
    table = whole.metrics()
    returns = table.filter(pc.equal(table["metric"], "policy/entropy"))
    assert sorted(set(returns["step"].to_pylist())) == [0, 160, 320, 480]
    assert sorted(set(returns["seat"].to_pylist())) == [0, 1, 2, 3]
    assert returns.num_rows == 4 * 4


def test_samples_are_the_active_rows_times_the_epochs(whole):
    table = whole.metrics()
    samples = table.filter(pc.equal(table["metric"], "count/samples/policy"))["value"].to_numpy()
    assert samples.max() <= 2 * 160
    assert samples.min() > 0


def test_a_finished_run_is_not_resumed_without_a_later_end(whole):
    with pytest.raises(BadInput, match="finished"):
        runs.resume(whole.path)


def test_a_refused_resume_leaves_the_plan_as_it_was(whole):
    before = whole.folder.experiment_toml
    for steps in (100, 640):
        with pytest.raises(BadInput):
            runs.resume(whole.path, steps=steps)
    assert whole.folder.experiment_toml == before


def test_a_later_end_goes_on(tmp_path):
    run = runs.train(small(**{"rollout.total_steps": 320}), tmp_path / "short")
    longer = runs.resume(run.path, steps=640)
    assert longer.finished.updates == 4
    assert runs.load(run.path).experiment.rollout.total_steps == 640


def test_seeds_side_by_side_differ_and_are_logged_apart(tmp_path):
    run = runs.train(small(seeds=2), tmp_path / "two")
    table = run.metrics()
    entropy = table.filter(pc.equal(table["metric"], "policy/entropy"))
    by_seed = [entropy.filter(pc.equal(entropy["seed"], s))["value"].to_numpy() for s in (0, 1)]
    assert not np.array_equal(*by_seed)


def test_a_line_up_changes_between_chunks_and_nothing_is_reset(tmp_path):
    experiment = small("scripts_first_4h1s_4x4", schedule=[{"after": 320, "lineup": ["ppo"] * 4}])
    run = runs.train(experiment, tmp_path / "phases")
    table = run.metrics()
    updates = table.filter(pc.equal(table["metric"], "count/updates/policy"))
    seats = {s: set(updates.filter(pc.equal(updates["step"], s))["seat"].to_pylist()) for s in (0, 320)}
    assert seats == {0: {0}, 320: {0, 1, 2, 3}}
    assert run.finished.recompiles == 0
    # Its weights are those of the last line-up, however rounds are cut when they are opened again.
    built = experiments.build(experiments.with_overrides(run.experiment, {"rollout.num_envs": 32}))
    assert experiments.load_params(built, run.folder, best=False).stretch.lineup == ("ppo",) * 4
    # The first runs did not say which line-up a checkpoint holds: it follows from the updates made.
    built = experiments.build(run.experiment)
    assert _stretch_of(built, run.folder, {"updates": 4}).lineup == ("ppo",) * 4
    assert _stretch_of(built, run.folder, {"updates": 2}).lineup[1] == "nearest_stag"


def test_two_devices_learn_from_both_halves_and_end_with_the_same_weights():
    assert len(jax.devices()) >= 2, "conftest.py asks for two"
    work = small_job(devices=2)
    state = loop.seat(work, work.stretches[0], None, 0)
    state, metrics = programs.chunk_program(work, work.stretches[0], state).run(state, jax.numpy.int32(1))
    for leaf in jax.tree.leaves(state.params):
        first, second = (np.asarray(shard.data) for shard in leaf.addressable_shards)
        np.testing.assert_array_equal(first, second)
    # 160 rows an agent, two epochs; one device alone could count 160 at most
    assert np.asarray(metrics["count/samples/policy"])[0, 0].min() > 160
