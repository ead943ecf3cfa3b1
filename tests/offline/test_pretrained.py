"""Parts learned from recorded play as the beginning of a run of HOP+."""

import shutil

import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import coplay
from coplay.algorithms.readers import OTHERS
from coplay.errors import BadInput
from coplay.experiment import build, job, read_experiment, with_overrides
from coplay.offline import pretrain
from coplay.training import loop
from coplay.training.part_folder import PartFolder
from tests.small import same_bits

SMALL = {
    "evaluation.every": 0,
    "evaluation.final_episodes": 8,
    "saving.tensorboard": False,
    "rollout.num_envs": 16,
    "rollout.num_steps": 10,
    "rollout.sequence_length": 10,
    "rollout.total_steps": 160,
    "devices": 1,
    "game_options.horizon": 15,
    "hop_plus.hidden": (8, 8),
    "hop_plus.model_hidden": (8, 8),
    "hop_plus.prior_hidden": (8, 8),
    "hop_plus.world_hidden": (8,),
    "hop_plus.world_members": 2,
    "hop_plus.pay": 1.0,
    "hop_plus.minibatches": 2,
}


@pytest.fixture(scope="module")
def parts(data):
    """Folders of every kind, trained a little."""
    options = {
        "vae": {"subgoal": "4", "hidden": "[8, 8]"},
        "moa": {"subgoal": "4", "hidden": "[8, 8]"},
        "world": {"members": "2", "hidden": "[8]"},
    }
    folders = {kind: data.parent / kind for kind in options}
    for kind, own in options.items():
        pretrain.pretrain(kind, data, own | {"epochs": "1"}, folders[kind], lambda line: None)
    return folders


def experiment(**changes):
    named = {f"hop_plus.{name}": str(value) for name, value in changes.items()}
    return with_overrides(read_experiment("hop_plus_4h1s_4x4"), SMALL | named)


def started(given):
    work = job(build(given))
    return loop.start(work, work.stretches[0]).params["hop_plus"]  # [seed, ...]


def saved(folder, like):
    """A part's best epoch, [member, ...]."""
    return jax.tree.leaves(PartFolder.open(folder).best_weights(like))


def test_a_run_begins_with_the_parts_it_is_given(parts):
    given = experiment(prior=parts["vae"], models_from=parts["moa"], world_from=parts["world"])
    params, plain = started(given), started(experiment())
    prior, world = params["prior"].common["prior"], params["world"].common["members"]
    readers = params["policy"].own["group"][OTHERS]  # [seed, seat, other, ...]
    for own, theirs in zip(jax.tree.leaves(prior), saved(parts["vae"], prior), strict=True):
        assert_array_equal(own, theirs)
    first = jax.tree.map(lambda x: x[0], world)
    for own, theirs in zip(jax.tree.leaves(first), saved(parts["world"], first), strict=True):
        assert_array_equal(own, theirs)
    one = jax.tree.map(lambda x: x[0, 0, 0][None], readers)
    for own, theirs in zip(jax.tree.leaves(readers), saved(parts["moa"], one), strict=True):
        assert_array_equal(own, np.broadcast_to(theirs[0], own.shape))
    assert not same_bits(world, plain["world"].common["members"])
    assert not same_bits(readers, plain["policy"].own["group"][OTHERS])
    assert same_bits(params["policy"].own["group"]["policy"], plain["policy"].own["group"]["policy"]), (
        "the policy begins as ever"
    )


@pytest.mark.parametrize(
    ("setting", "kind", "sentence"),
    [
        ("prior", "nowhere", "is no trained part"),
        ("prior", "moa", "holds a trained moa, not a vae"),
        ("world_from", "vae", "holds a trained vae, not a world"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    parts, tmp_path, monkeypatch, setting, kind, sentence
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=sentence):
        coplay.train(experiment(**{setting: parts.get(kind, tmp_path / kind)}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "kind", "changes", "advice"),
    [
        ("world_from", "world", {"hop_plus.world_hidden": (16,)}, r"world_hidden=\[8\], world_members=2"),
        ("models_from", "moa", {"hop_plus.pay": 0.0}, r"subgoal_size=4, pay=1.0"),
    ],
)
def test_other_shapes_are_refused_with_the_settings_that_fit(parts, setting, kind, changes, advice):
    given = with_overrides(experiment(**{setting: parts[kind]}), changes)
    with pytest.raises(BadInput, match=f"does not fit what this experiment needs of a {kind}.*{advice}"):
        started(given)


def test_seats_that_share_weights_begin_with_models_too(parts):
    given = with_overrides(experiment(models_from=parts["moa"]), {"hop_plus.parameters": "shared"})
    readers = started(given)["policy"].common["group"][OTHERS]  # [seed, other, ...]
    one = jax.tree.map(lambda x: x[0, 0][None], readers)
    for own, theirs in zip(jax.tree.leaves(readers), saved(parts["moa"], one), strict=True):
        assert_array_equal(own, np.broadcast_to(theirs[0], own.shape))


def test_a_run_goes_on_without_the_folders_it_began_with(parts, tmp_path):
    prior = tmp_path / "vae"
    shutil.copytree(parts["vae"], prior)
    given = with_overrides(experiment(prior=prior), {"world": "none", "real_share": 1.0})
    coplay.train(given, out=tmp_path / "run")
    shutil.rmtree(prior)
    run = coplay.resume(tmp_path / "run", steps=320)
    assert run.finished is not None
    assert run.finished.updates == 2
