"""What the docs say is what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from coplay.cli.settings_page import page
from coplay.cli.verbs import VERBS
from coplay.experiment import build, experiment_names, read_experiment

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_the_settings_page_is_made_from_the_settings():
    assert (ROOT / "docs" / "settings.md").read_text() == page(), "run `make docs`"


@pytest.mark.parametrize("name", experiment_names())
def test_a_shipped_experiment_reads_and_builds(name):
    experiment = read_experiment(name)
    assert experiment.description.endswith((".", "?"))
    assert build(experiment).stretches


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_readme_names_both_commands_and_every_verb(readme):
    text = (ROOT / readme).read_text()
    for words in ("make quickstart", "make test", *(verb.name for verb in VERBS)):
        assert words in text, words


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_runs(path, tmp_path):
    command = [sys.executable, str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
