"""The catalogue of measurements, and what each says where there is nothing to compare with."""

import numpy as np
import pytest

from coplay import experiment as experiments
from coplay.bench import ITEMS, sized_game, spread
from coplay.bench.drift import unwatched
from coplay.bench.hyper import ARMS, MEASURED, _built, whole_actors
from coplay.bench.item import seconds_of
from coplay.bench.updates import _pieces, updates_of
from coplay.cli.bench import _shown
from coplay.envs import contract
from tests.small import SMALL


def test_every_item_says_what_it_measures():
    undescribed = [name for name, measure in ITEMS.items() if not (measure.__doc__ or "").strip()]
    assert not undescribed, f"no description: {undescribed}"
    new = {"simple_spread_ippo", "simple_spread_mappo", "drift", "hyper_speed", "hyper_memory"}
    assert new <= set(ITEMS)


def test_without_a_checkout_of_jaxmarl_it_says_what_to_set(monkeypatch):
    monkeypatch.delenv(spread.CHECKOUT, raising=False)
    monkeypatch.setattr(spread, "REPEATS", 1)
    # 4 games x 5 steps, 3 updates a call: 60 joint steps.
    small = {"rollout.num_envs": 4, "rollout.num_steps": 5, "minibatches": 1, "epochs": 1, "devices": 1}
    settings = spread.OURS | small | {"algorithm": "ppo", "hidden": (8,), "activation": "tanh"}
    monkeypatch.setattr(spread, "_devices", lambda settings: 1)
    item = spread._beside("simple_spread_ippo", "IPPO/ippo_ff_mpe.py", spread.THEIRS, settings, updates=3)
    assert item.ratio is None and item.figure > 0
    assert item.against == "set COPLAY_JAXMARL to a checkout of JaxMARL, the folder that holds baselines"


def test_a_script_that_cannot_be_imported_says_why(monkeypatch, tmp_path):
    (tmp_path / "baselines" / "IPPO").mkdir(parents=True)
    (tmp_path / "baselines" / "IPPO" / "ippo_ff_mpe.py").write_text("import no_such_package_at_all\n")
    monkeypatch.setenv(spread.CHECKOUT, str(tmp_path))
    with pytest.raises(ImportError, match="no_such_package_at_all"):
        spread._import("IPPO/ippo_ff_mpe.py")


def test_our_settings_are_theirs():
    theirs, ours = spread.THEIRS, spread.OURS
    assert theirs["NUM_ENVS"] == ours["rollout.num_envs"] == 16
    assert theirs["NUM_STEPS"] == ours["rollout.num_steps"] == 128
    assert (theirs["UPDATE_EPOCHS"], theirs["NUM_MINIBATCHES"]) == (ours["epochs"], ours["minibatches"])


def test_training_without_the_watch_moves_weights_alike():
    settings = {"evaluation.every": 0, "devices": 1} | SMALL
    built = experiments.build(experiments.read_experiment("mappo_4h1s_4x4", settings))
    watched, plain = updates_of(built, 1), updates_of(built, 1, unwatched(built))
    told, untold = watched.run(), plain.run()
    assert "drift/joint_kl" in told and "drift/joint_kl" not in untold
    for name in ("policy/grad_norm", "value/loss"):
        np.testing.assert_allclose(told[name][:, 0], untold[name][:, 0], rtol=1e-5)


@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize("arm", ARMS)
def test_generated_actors_are_measured_with_mappos_actor_and_rollout(name, arm):
    plain, generated = _built(name).experiment, _built(name, ARMS[arm]).experiment
    assert generated.hyper_mappo.hidden == plain.mappo.hidden
    assert generated.hyper_mappo.epochs == plain.mappo.epochs
    assert generated.rollout.steps_per_update == plain.rollout.steps_per_update
    assert generated.hyper_mappo.made == "last_layer"


def test_whole_actors_are_made_for_25600_samples():
    experiment = whole_actors()
    env = experiments.build(experiment).env
    assert experiment.rollout.steps_per_update * env.num_agents == 25_600
    assert (env.observation_size, env.num_actions) == (136, 14)


def test_the_sized_game_keeps_the_contract():
    contract.check(sized_game.make(num_agents=2, features=3, num_actions=2, horizon=4))


def test_calls_are_cut_into_chunks():
    assert _pieces(10, 6) == [6, 4]
    assert _pieces(3, 6) == [3]


def test_small_figures_keep_a_decimal():
    assert (_shown(55_292.5), _shown(1.57)) == ("55,292", "1.6")


def test_calls_are_timed_in_turn():
    order = []
    seconds_of(lambda: order.append("a"), lambda: order.append("b"), repeats=2, warm_up=1)
    assert order == ["a", "b"] * 3
