"""Whether the code that is asked is the code that made the run."""

import dataclasses

import jax
import pytest

from coplay.audit.liveness import code
from coplay.audit.subject import Budget, Subject
from coplay.envs import make_game
from coplay.training.run_folder import RunFolder, collect_versions
from tests.audit.suite import finding_of, subject_of


@pytest.mark.parametrize(("written", "verdict"), [(None, "pass"), ("0.0.1", "warn")])
def test_another_version_of_an_imported_game_is_noticed(tmp_path, written, verdict):
    env = dataclasses.replace(make_game("matching_pennies"), package="jaxmarl")
    then = collect_versions(env.package) | {"dirty": False}
    then["packages"]["jaxmarl"] = written or then["packages"]["jaxmarl"]
    run = RunFolder.create(tmp_path / "x", "", then)
    found = code(Subject(env, "x", run=run), Budget(1.0), jax.random.key(0))
    assert found.verdict == verdict
    assert found.next.startswith("jaxmarl 0.0.1 then" if written else "")


def test_gains_beside_increments_that_count_for_nothing_are_no_alarm():
    by_history = {"hyper_mappo.context": "local_history", "rollout.num_steps": 80}
    assert finding_of(subject_of("hyper_mappo_4h1s_4x4", by_history), "off_is_off").verdict == "pass"
