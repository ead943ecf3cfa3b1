"""Parts of a HOP+ run on recorded play: the same figures as of a folder, seed by seed, seat by seat."""

import itertools
import json

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

import coplay
from coplay.algorithms.readers import OTHERS
from coplay.cli.main import main
from coplay.errors import BadInput
from coplay.experiment import as_toml, build, job, read_experiment, with_overrides
from coplay.offline import collect, dataset, moa, pretrain, run_parts
from coplay.runs import Weights
from coplay.training import checkpoint, loop
from coplay.training.run_folder import RunFolder
from coplay.types import stream
from tests.small import SMALL

OWN = {
    "rollout.total_steps": 160,
    "game_options.horizon": 15,
    "hop_plus.hidden": (8, 8),
    "hop_plus.minibatches": 2,
    "hop_plus.subgoal_size": 3,
    "hop_plus.pay": 1.0,
    "hop_plus.model_hidden": (8, 8),
    "hop_plus.prior_hidden": (8, 8),
    "hop_plus.world_hidden": (8,),
    "hop_plus.world_members": 2,
}
PARTS = {
    "vae": {"subgoal": "3", "hidden": "[8, 8]"},
    "moa": {"subgoal": "3", "hidden": "[8, 8]"},
    "world": {"members": "2", "hidden": "[8]"},
}


def recorded(path, players=("nearest_stag", "nearest_hare"), seed=0, **options):
    about = collect.about("4h1s_4x4", {"observation": "entities"} | options, players, True, 40, seed)
    dataset.write(path, about, collect.record(about))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("data") / "play.parquet", horizon=15)


@pytest.fixture(scope="module")
def strangers(data):
    """Play that nothing has learned from."""
    return recorded(data.parent / "strangers.parquet", ("nearest_stag", "random"), seed=1, horizon=15)


@pytest.fixture(scope="module")
def parts(data):
    """Folders of every kind, trained a little."""
    folders = {kind: data.parent / kind for kind in PARTS}
    for kind, own in PARTS.items():
        pretrain.pretrain(kind, data, own | {"epochs": "1"}, folders[kind], lambda line: None)
    return folders


def experiment(name="hop_plus_4h1s_4x4", **changes):
    return with_overrides(read_experiment(name), SMALL | OWN | changes)


def begun(path, given):
    """The folder of a run that has not learned anything yet, and its weights, [seed, ...]."""
    work = job(build(given))
    params = loop.start(work, work.stretches[0]).params
    folder = RunFolder.create(path, as_toml(given), {})
    checkpoint.save(folder.checkpoints, 0, Weights(params), {"updates": 0, "step": 0, "stretch": 0})
    return folder, params


@pytest.fixture(scope="module")
def from_parts(parts):
    """A run that begins with all of them."""
    given = {"prior": parts["vae"], "models_from": parts["moa"], "world_from": parts["world"]}
    path = parts["vae"].parent / "from_parts"
    begun(path, experiment(**{f"hop_plus.{name}": str(folder) for name, folder in given.items()}))
    return path


@pytest.fixture(scope="module")
def two_seeds(data):
    """A run of two seeds in which every model is another one, and its weights."""
    folder, params = begun(data.parent / "two_seeds", experiment(seeds=2))
    return folder.path, params["hop_plus"]


def evaluated(capsys, *arguments):
    assert main(["evaluate", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def assert_same(figures, others):
    assert figures.keys() == others.keys()
    for name, value in figures.items():
        assert_allclose(value, others[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_of_a_run_has_the_figures_of_the_folder_it_began_with(parts, from_parts, strangers, kind):
    assert_same(run_parts.evaluate(from_parts, kind, strangers), pretrain.evaluate(parts[kind], strangers))


def test_a_parts_folder_may_be_called_what_it_is_and_nothing_else(parts, strangers, capsys):
    named = evaluated(capsys, parts["world"], "--on", strangers, "--module", "world")
    assert named == evaluated(capsys, parts["world"], "--on", strangers)
    assert main(["evaluate", str(parts["world"]), "--on", str(strangers), "--module", "vae"]) == 2
    assert "holds a trained world, not a vae" in capsys.readouterr().err


def test_the_model_of_every_seat_for_every_co_player_counts_alike(two_seeds, strangers):
    path, params = two_seeds
    readers = params["policy"].own["group"][OTHERS]  # [seed, seat, model, ...]
    each = judged_one_by_one(readers, itertools.product(range(2), range(4), range(3)), strangers)
    assert len({figures["surprise"] for figures in each}) == 24, "every model is another one"
    assert_same(run_parts.evaluate(path, "moa", strangers), mean_of(each))


def test_one_model_that_all_seats_share_is_judged_once(data, strangers):
    shared = {"hop_plus.parameters": "shared", "hop_plus.model_of": "any"}
    folder, params = begun(data.parent / "shared", experiment(**shared))
    readers = params["hop_plus"]["policy"].common["group"][OTHERS]  # [seed, model, ...]
    each = judged_one_by_one(readers, [(0, 0)], strangers)
    assert_same(run_parts.evaluate(folder.path, "moa", strangers), each[0])


def judged_one_by_one(readers, places, data):
    about, play = dataset.read(data)
    part = moa.part_of(about, moa.MoaConfig(hidden=(8, 8), subgoal=3))
    rows, _ = part.rows(play, np.arange(len(play.length)))
    judge, key = jax.jit(part.judge), stream(jax.random.key(0), "judge")
    each = [judge(jax.tree.map(lambda x, at=at: x[at][None], readers), rows, key) for at in places]
    return [{name: float(x) for name, x in one.items() if x.ndim == 0} for one in each]


def mean_of(each):
    over = {name: np.median if name in pretrain.MEDIANS else np.mean for name in each[0]}
    return {name: over[name]([figures[name] for figures in each]) for name in each[0]}


def test_seeds_are_judged_together_unless_one_is_named(two_seeds, strangers, capsys):
    path, _ = two_seeds
    each = [evaluated(capsys, f"{path}@last:{seed}", "--module", "world", "--on", strangers)
            for seed in range(2)]  # fmt: skip
    assert each[0]["surprise/step"] != each[1]["surprise/step"]
    together = evaluated(capsys, path, "--module", "world", "--on", strangers)
    middle = (each[0]["surprise/step"] + each[1]["surprise/step"]) / 2
    assert_allclose(together["surprise/step"], middle, rtol=1e-5)


def test_the_best_checkpoint_is_judged_where_that_is_asked_for(data, strangers):
    good, first = begun(data.parent / "good", experiment())
    bad, second = begun(data.parent / "bad", experiment(seed=1))
    both = RunFolder.create(data.parent / "both", as_toml(experiment()), {})
    for step, params, score in ((160, first, 3.0), (320, second, 2.0)):
        meta = {"updates": 1, "step": step, "stretch": 0, "score": score}
        checkpoint.save(both.checkpoints, step, Weights(params), meta)
    best, last = (run_parts.evaluate(both.path, "world", strangers, best=best) for best in (True, False))
    assert best["surprise/step"] != last["surprise/step"]
    assert_same(best, run_parts.evaluate(good.path, "world", strangers))
    assert_same(last, run_parts.evaluate(bad.path, "world", strangers))
    with pytest.raises(BadInput, match="has no evaluated checkpoint"):
        run_parts.evaluate(good.path, "world", strangers, best=True)


def test_the_world_of_the_zoos_player_is_the_game(tmp_path, capsys):
    play = recorded(tmp_path / "play.parquet", ("nearest_stag", "nearest_hare", "random"))
    figures = evaluated(capsys, "zoo:hop_plus_4h1s_4x4", "--module", "world", "--on", play)
    assert figures["exact/likeliest"] == 1
    assert figures["exact/after 10"] > 0.99
    assert figures["reward/right"] > 0.999


def test_what_a_run_has_learned_beside_scripted_players_is_judged_and_its_prior_is_as_it_was(
    parts, strangers, tmp_path
):
    given = experiment(
        "one_hop_plus_three_nearest_stag",
        **{"hop_plus.prior": str(parts["vae"]), "hop_plus.models_from": str(parts["moa"])},
        **{"hop_plus.world": "none", "hop_plus.real_share": 1.0},
    )
    run = coplay.train(given, out=tmp_path / "run")
    assert_same(run_parts.evaluate(run.path, "vae", strangers), pretrain.evaluate(parts["vae"], strangers))
    learned = run_parts.evaluate(run.path, "moa", strangers)["surprise"]
    before = pretrain.evaluate(parts["moa"], strangers)["surprise"]
    assert 0 < abs(learned - before) < 0.5


# --- refused -------------------------------------------------------------------------------------

NO_WORLD = {"hop_plus.world": "none", "hop_plus.real_share": 1.0}
NO_READERS = {"hop_plus.subgoals": "none"}


@pytest.mark.parametrize(
    ("changes", "module", "sentence"),
    [
        (NO_WORLD, "world", "has no world to judge: it was trained with world='none'"),
        ({"hop_plus.world": "game"}, "world", "has no world to judge: it was trained with world='game'"),
        ({}, "vae", "has no vae to judge: it was trained with prior=''"),
        (NO_WORLD | NO_READERS, "moa", "has no moa to judge: it was trained with subgoals='none'"),
        ({"hop_plus.between": "average"}, "moa", "go by earlier episodes (between='average')"),
        ({}, None, "to judge: world or moa"),
        ({"hop_plus.between": "average"}, None, "to judge: world\n"),
        (NO_WORLD | NO_READERS, None, "to judge: nothing, for this run has none"),
        ({"algorithm": "ppo"}, "moa", "is no run of hop_plus"),
        ({"algorithm": "ppo"}, None, "is no run of hop_plus"),
        ({"game_options.horizon": 20}, "world", "was trained on 4h1s_4x4 {'observation': 'entities'"),
    ],
)
def test_what_a_run_does_not_have_is_refused_in_a_sentence(data, tmp_path, capsys, changes, module, sentence):
    given = with_overrides(experiment(), changes)
    RunFolder.create(tmp_path / "run", as_toml(given), {})
    named = ["--module", module] if module else []
    assert main(["evaluate", str(tmp_path / "run"), *named, "--on", str(data)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_other_slips_are_one_sentence_too(two_seeds, data, tmp_path, capsys):
    path = str(two_seeds[0])
    for arguments, sentence in [
        ([f"{path}@last:2", "--module", "world", "--on", str(data)], "has seeds 0 to 1, not 2"),
        ([path, "--module", "world"], "name recorded play to judge it on with --on"),
        ([path, "--module", "policy", "--on", str(data)], "--module policy is none of moa, vae, world"),
        ([path, "--module", "world", "--on", str(data), "--greedy"], "other options say nothing"),
        ([path, "--modul", "world", "--on", str(data)], "did you mean '--module'?"),
        ([path, "--module", "world", "--on", str(tmp_path / "none")], "there is no file"),
        ([str(tmp_path), "--module", "world", "--on", str(data)], "is neither a trained part"),
    ]:
        assert main(["evaluate", *arguments]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1
