"""A generator that begins with another run's: what is kept, what is as on the first day, and what it cost."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from coplay.algorithms.hyper_pretrained import STEPS
from coplay.cli.main import main
from coplay.errors import BadInput
from coplay.experiment import as_toml, build, job, with_overrides
from coplay.plan import plan
from coplay.training import checkpoint, loop, programs
from coplay.training.run_folder import RunFolder
from coplay.types import begun
from tests.small import same_bits, small

WHERE = "hyper_mappo"
LOCAL = {
    f"{WHERE}.{name}": value
    for name, value in {
        "context": "joint", "history_reads": ("reward",), "encoder_width": 8, "attention_heads": 2,
        "history_width": 8, "trunk": (8,),
    }.items()
}  # fmt: skip


def tasks(num_agents=4, **changes):
    """The specialisation game, whose players read nothing but rewards."""
    given = LOCAL | {"game_options.num_agents": num_agents} | {f"{WHERE}.{k}": v for k, v in changes.items()}
    return with_overrides(small("hyper_specialisation"), given)


def written(path, experiment, step=5000, change=lambda x: x + 1.0):
    """A run folder whose weights are not those of any fresh run."""
    work = job(build(experiment))
    state = loop.start(work, work.stretches[0], begins=False)
    params = jax.tree.map(lambda x: change(x) if x.dtype == jnp.float32 else x, state.params)
    folder = RunFolder.create(path, as_toml(experiment), {})
    checkpoint.save(folder.checkpoints, step, dataclasses.replace(state, params=params), {"step": step})
    return str(path)


def generator(params):
    return params[WHERE].common["group"]["generator"]


def started(experiment):
    """Weights before and after what is begun with is put in."""
    algorithm = build(experiment).stretches[0].algorithm
    fresh = algorithm.init(jax.random.key(3))
    return fresh, begun(algorithm, fresh)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "four", with_overrides(tasks(), {"seeds": 2}))


def test_what_reads_is_kept_and_heads_and_names_are_as_on_the_first_day(run):
    fresh, now = started(tasks(num_agents=6, pretrain=run, pretrain_seed=1))
    old = checkpoint.arrays(
        RunFolder.open(run).checkpoints, f".params['{WHERE}'].common['group']['generator']"
    )[0]
    for name in ("encoder", "attention", "history"):
        kept = jax.tree_util.tree_flatten_with_path(getattr(generator(now).context, name))[0]
        for path, leaf in kept:
            assert_array_equal(leaf, old[f".context.{name}{jax.tree_util.keystr(path)}"][1])
    assert_array_equal(generator(now).trunk[0].weight, old[".trunk[0].weight"][1])
    assert same_bits(generator(now).heads, generator(fresh).heads)
    assert same_bits(generator(now).context.names, generator(fresh).context.names)
    for name in ("policy", "critic"):
        assert same_bits(now[WHERE].common["group"][name], fresh[WHERE].common["group"][name])
    assert not same_bits(generator(now).trunk, generator(fresh).trunk)


def test_play_starts_as_undecided_as_without(run):
    built = build(tasks(num_agents=6, pretrain=run))
    algorithm = built.stretches[0].algorithm
    params = begun(algorithm, algorithm.init(jax.random.key(3)))
    timestep = jax.vmap(built.env.reset)(jax.random.split(jax.random.key(0), 8))[1]
    policy = algorithm.act(params, algorithm.remember(8), timestep, None, jax.random.key(0))[1].policy
    entropy = -np.sum(policy * np.log(policy), axis=-1)
    assert entropy.mean() >= 0.98 * np.log(built.env.num_actions)


def test_a_copy_is_of_what_was_begun_with(run):
    _, now = started(tasks(pretrain=run, target="act", target_every=2))
    group = now[WHERE].common["group"]
    assert same_bits(group["target"]["generator"], group["generator"])


def test_the_steps_of_all_runs_before_are_counted(run, tmp_path, capsys):
    _, now = started(tasks(pretrain=run))
    assert_array_equal(now[WHERE].own["seat"][STEPS], [5000] * 4)

    # a run that itself began with 5,000 steps and went on for 700
    second = tasks(pretrain=run)
    state = loop.start(job(build(second)), build(second).stretches[0])
    folder = RunFolder.create(tmp_path / "second", as_toml(second), {})
    checkpoint.save(folder.checkpoints, 700, state, {"step": 700})
    third = tasks(pretrain=str(tmp_path / "second"))
    assert_array_equal(started(third)[1][WHERE].own["seat"][STEPS], [5700] * 4)
    assert plan(build(third)).modules[0]["begun_with"] == f"5,700 steps of {tmp_path / 'second'}"
    assert plan(build(third), starts=False).modules[0]["begun_with"] is None

    (tmp_path / "third.toml").write_text(as_toml(third))
    assert main(["train", str(tmp_path / "third.toml"), "--dry-run"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "began with 5,700 steps of" in told


def test_steps_begun_with_are_in_the_figures(run):
    work = job(build(tasks(pretrain=run)))
    state = loop.seat(work, work.stretches[0], None, 0)
    program = programs.chunk_program(work, work.stretches[0], state)
    figures = program.run(state, jnp.int32(1))[1]
    assert_array_equal(np.asarray(figures["count/steps/pretrain"])[0, 0], [5000.0] * 4)


def test_without_it_nothing_is_begun_with():
    built = build(tasks(pretrain=None))
    assert STEPS not in built.stretches[0].algorithm.init(jax.random.key(0))[WHERE].own["seat"]
    assert plan(built).modules[0]["begun_with"] is None


def test_a_run_that_has_begun_needs_the_other_folder_no_more():
    algorithm = build(tasks(pretrain="runs/that_is_gone")).stretches[0].algorithm
    params = algorithm.init(jax.random.key(0))  # as a checkpoint is read into
    with pytest.raises(BadInput, match="is not a run folder"):
        begun(algorithm, params)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"history_reads": ("reward", "action")}, "reads rows of 1 numbers and this one rows of 5"),
        ({"encoder_width": 16, "history_width": 16, "trunk": (16,)}, "has the shape this experiment needs"),
        ({"pretrain_seed": 2}, "has seeds 0 to 1, not pretrain_seed=2"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(run, changes, sentence):
    with pytest.raises(BadInput, match=sentence):
        started(tasks(pretrain=run, **changes))


def test_a_part_that_does_not_fit_is_left_as_it_is(run):
    # a trunk of other widths: what reads is kept, the trunk is fresh
    fresh, now = started(tasks(pretrain=run, trunk=(16,)))
    assert same_bits(generator(now).trunk, generator(fresh).trunk)
    assert not same_bits(generator(now).context.encoder, generator(fresh).context.encoder)


def boards(**changes):
    """The stag hunt on a board that convolutions read, and nothing else."""
    given = LOCAL | {f"{WHERE}.encoder": "conv", f"{WHERE}.history_reads": ("observation",)}
    given |= {"game_options.observation": "board", "game_options.size": changes.pop("size", 4)}
    return with_overrides(
        small("hyper_mappo_4h1s_4x4"), given | {f"{WHERE}.{k}": v for k, v in changes.items()}
    )


@pytest.fixture(scope="module")
def board_run(tmp_path_factory):
    return written(tmp_path_factory.mktemp("runs") / "board", boards())


def test_convolutions_are_kept_with_what_reads_them(board_run):
    fresh, now = started(boards(pretrain=board_run))
    reader = generator(now).context.encoder
    old = checkpoint.arrays(
        RunFolder.open(board_run).checkpoints, f".params['{WHERE}'].common['group']['generator']"
    )[0]
    for path, leaf in jax.tree_util.tree_flatten_with_path(reader)[0]:
        assert_array_equal(leaf, old[f".context.encoder{jax.tree_util.keystr(path)}"][0])
    assert not same_bits(reader.kernels, generator(fresh).context.encoder.kernels)
    assert same_bits(generator(now).heads, generator(fresh).heads)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        # 16 channels of 16 or 25 cells, and 30 numbers beside the board; 7 planes of 16 cells and those 30
        ({"size": 5}, "7 planes that come to 286 numbers after convolutions and this one .* to 430 numbers"),
        ({"encoder": "mlp"}, "after convolutions and this one rows of 142 numbers; choose the same encoder"),
    ],
)
def test_boards_that_convolutions_were_not_made_for_are_refused(board_run, changes, sentence):
    with pytest.raises(BadInput, match=sentence):
        started(boards(pretrain=board_run, **changes))


def test_another_algorithms_run_is_refused(tmp_path):
    other = written(tmp_path / "plain", small("ppo_4h1s_4x4"))
    with pytest.raises(BadInput, match="is no run of hyper_mappo with a generator"):
        started(tasks(pretrain=other))


def test_plain_mappo_has_nothing_to_begin_with():
    with pytest.raises(BadInput, match="context='none' has none"):
        build(tasks(pretrain="runs/x", context="none"))
