"""The report tells the truth about a run folder, needs nothing else, and copes with what is missing."""

import re
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

from coplay.errors import BadInput
from coplay.reports.curves import Curve, at_the_end, curves_of, thinned
from coplay.reports.episodes import save_episode
from coplay.reports.report import write_report
from coplay.training.run_folder import RunFolder

TOML = """
name = "four hunters"
description = "Do they find the stag?"
[rollout]
total_steps = 1000000
widths = [64, 64]
[ppo]
clip = true
"""


def rows(metric: str, values: dict[tuple[int, int, int], float]):
    """values: (step, seed, seat) -> value."""
    return {
        "step": [key[0] for key in values],
        "seed": [key[1] for key in values],
        "seat": [key[2] for key in values],
        "metric": [metric] * len(values),
        "value": list(values.values()),
    }


def table(metric: str, values) -> pa.Table:
    return pa.table(rows(metric, values))


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "x", TOML, {"coplay": "0.1.0", "packages": {"jax": "0.10.2"}})


@pytest.fixture
def full_run(run, three_hunters):
    levels = {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 3.0, (1, 1): 4.0}  # seed, seat
    values = {(step, *who): level for who, level in levels.items() for step in (0, 400, 900, 1000)}
    groups = [rows(metric, values) for metric in ("eval/return", "return", "policy/entropy")]
    run.write_metrics(0, 1000, {name: np.concatenate([g[name] for g in groups]) for name in groups[0]})
    run.write_timing({"step": [1000], "phase": ["collect"], "seconds": [50.0]})
    save_episode(run.episodes / "step-000000001000-seed0.npz", three_hunters())
    return run


class Tags(HTMLParser):
    """Collects what a browser would fetch, and whether elements are closed in order."""

    def __init__(self, page: str):
        super().__init__()
        self.open, self.fetched, self.text = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.fetched += [v for k, v in attributes if k in ("src", "href", "xlink:href") and v[:1] != "#"]
        if tag not in ("meta", "input", "br", "img", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_headline_is_the_mean_of_the_last_fifth_by_hand(full_run):
    page = write_report(full_run.path).read_text()
    # seeds: (1 + 2) / 2 = 1.5 and (3 + 4) / 2 = 3.5; together 2.5; seats 2 and 3
    text = " ".join("".join(Tags(page).text).split())
    assert "Mean return at the end, evaluated 2.5 seeds from 1.5 to 3.5" in text
    assert "seat 0 (player 1) 2" in text and "seat 1 (player 2) 3" in text
    assert "Steps of each seed1,000" in text and "Time0:00:50" in text
    assert "Steps per second40" in text  # 2 seeds x 1000 steps in 50 s


def test_the_last_update_counts_although_only_its_checkpoint_shows_it(full_run):
    full_run.checkpoints.mkdir()
    (full_run.checkpoints / "step-000000001250.json").write_text("{}")
    page = write_report(full_run.path).read_text()
    assert "<b>1,250</b>" in page and "<b>50</b>" in page  # 2 seeds x 1250 steps in 50 s


def test_what_play_needs_is_told_where_the_folder_says_it(full_run, tmp_path):
    assert "To play" not in write_report(full_run.path).read_text()
    said = RunFolder.create(tmp_path / "said", TOML, {"needs": "decentralised + memory"})
    said.write_metrics(0, 1000, rows("return", {(1000, 0, 0): 1.0}))
    assert "<span>To play</span><b>decentralised + memory</b>" in write_report(said.path).read_text()


def test_the_page_is_whole_and_fetches_nothing(full_run):
    page = write_report(full_run.path).read_text()
    tags = Tags(page)
    assert tags.open == [] and tags.fetched == []
    assert not re.search(r"@import|url\((?!#)", page)
    assert not re.findall(r"https?://(?!www\.w3\.org/)", page)
    assert "prefers-color-scheme: dark" in page


def test_ids_of_drawings_and_replay_are_unique_and_found(full_run):
    page = write_report(full_run.path).read_text()
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) | set(re.findall(r"url\(#([^)]+)\)", page)) <= set(ids)


def test_settings_and_versions_are_shown_as_they_are_written(full_run):
    page = write_report(full_run.path).read_text()
    assert '<p class="faint">Do they find the stag?</p>' in page
    for name, value in (
        ("name", "four hunters"),
        ("rollout.total_steps", "1_000_000"),
        ("rollout.widths", "64, 64"),
        ("ppo.clip", "true"),
        ("packages.jax", "0.10.2"),
    ):
        assert f"<td>{name}</td><td>{value}</td>" in page


def test_what_was_not_recorded_is_left_out_with_a_sentence(run):
    run.write_metrics(0, 10, rows("return", {(10, 0, 0): 1.0}))
    page = write_report(run.path).read_text()
    assert "No episode was saved with this run." in page
    assert "Not recorded in this run: Return when evaluated (eval/return), Entropy" in page
    assert "Mean return at the end, while training" in page
    assert "one seed: nothing is known about its spread" in page
    assert "coplay-replay" not in page


def test_an_empty_run_still_has_a_report(run):
    page = write_report(run.path).read_text()
    assert "four hunters" in page and "<svg" not in page


def test_a_damaged_episode_does_not_cost_the_report(full_run):
    (full_run.episodes / "step-000000002000-seed0.npz").write_bytes(b"half")
    page = write_report(full_run.path).read_text()
    assert "The newest episode cannot be shown" in page and "Return when evaluated" in page


def test_settings_that_cannot_be_parsed_are_shown_as_text(run):
    (run.path / "experiment.toml").write_text("a = <b>")
    assert "<pre>a = &lt;b&gt;</pre>" in write_report(run.path).read_text()


def test_settings_cannot_break_out_of_the_page(run):
    (run.path / "experiment.toml").write_text('name = "</title><script>alert(1)</script>"')
    assert "<script>" not in write_report(run.path).read_text()


def test_the_same_folder_gives_the_same_report_byte_for_byte(full_run):
    first = write_report(full_run.path).read_bytes()
    assert write_report(full_run.path).read_bytes() == first


def test_what_is_no_run_folder_is_refused(tmp_path):
    with pytest.raises(BadInput, match="is not a run folder"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- curves ----------------------------------------------------------------------------------------


def test_curves_are_sorted_by_seat_seed_and_step_with_gaps_where_nothing_was_measured():
    values = {(20, 1, 0): 4.0, (10, 0, 0): 1.0, (20, 0, 0): 2.0, (10, 0, 1): 7.0}
    first, second = curves_of(table("return", values), "return")
    assert (first.seat, second.seat) == (0, 1)
    assert_allclose(first.values, [[1.0, 2.0], [np.nan, 4.0]])
    assert_allclose(second.values, [[7.0], [np.nan]])
    assert curves_of(table("return", values), "other") == []
    assert curves_of(table("return", {(1, 0, 0): np.nan}), "return") == []


def test_the_end_is_the_last_fifth_of_the_steps():
    curve = Curve(0, np.array([0, 50, 80, 100]), np.array([[1.0, 2.0, 3.0, 5.0], [0.0, 0.0, np.nan, 6.0]]))
    assert_allclose(at_the_end(curve), [4.0, 6.0])


def test_a_long_curve_is_thinned_by_averaging_neighbours():
    curve = Curve(0, np.arange(5), np.array([[0.0, 2.0, 4.0, np.nan, 9.0]]))
    short = thinned(curve, most=3)
    assert short.steps.tolist() == [1, 3, 4]
    assert_allclose(short.values, [[1.0, 4.0, 9.0]])


def test_tick_labels_are_not_rounded_away(run):
    run.write_metrics(0, 10, rows("policy/kl", {(s, 0, 0): 0.001 * s for s in range(11)}))
    page = write_report(run.path).read_text()
    assert ">0.0025<" in page or ">0.002<" in page
