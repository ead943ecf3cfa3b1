"""Whether the code that is asked is the code that made the run."""

import dataclasses

import jax
import pytest

from coplay.audit.liveness import code
from coplay.audit.subject import Budget, Subject
from coplay.envs import make_game
from coplay.training.run_folder import RunFolder, collect_versions


@pytest.mark.parametrize(("written", "verdict"), [(None, "pass"), ("0.0.1", "warn")])
def test_another_version_of_an_imported_game_is_noticed(tmp_path, written, verdict):
    env = dataclasses.replace(make_game("matching_pennies"), package="jaxmarl")
    then = collect_versions(env.package) | {"dirty": False}
    then["packages"]["jaxmarl"] = written or then["packages"]["jaxmarl"]
    run = RunFolder.create(tmp_path / "x", "", then)
    found = code(Subject(env, "x", run=run), Budget(1.0), jax.random.key(0))
    assert found.verdict == verdict
    assert found.next.startswith("jaxmarl 0.0.1 then" if written else "")
