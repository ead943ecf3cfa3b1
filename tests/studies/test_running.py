"""A study is trained arm by arm, goes on where it was stopped, and takes rates from where it says."""

import contextlib
import types

import pytest

from coplay import files, runs
from coplay.errors import BadInput
from coplay.studies import BUDGETS, findings, jobs_of, run_study, running, write_page
from coplay.studies.page import at_the_edge
from coplay.studies.running import Job
from coplay.training.run_folder import RunFolder

FULL = BUDGETS["full"]


def silent(_):
    pass


@pytest.fixture(scope="module")
def done(study, tmp_path_factory):
    out = tmp_path_factory.mktemp("studied")
    jobs = jobs_of(study, ["four", "two"], ["plain", "slow", "generated"])
    return out, run_study(study, jobs, FULL, out, runs.Watcher(), silent)


def test_arms_that_others_follow_come_first(study):
    assert [job.arm for job in jobs_of(study, ["four"], [])] == [
        "plain",
        "wide",
        "generated",
        "slow",
        "mistaken",
    ]


def test_the_best_rate_is_taken_and_followed(study, done):
    _, chosen = done
    by_job = {one.job: one for one in chosen}
    plain = by_job[Job("four", "plain")]
    assert set(plain.tried) == {1e-3, 1e-2}
    assert plain.rate == max(plain.tried, key=lambda rate: plain.tried[rate])
    assert by_job[Job("two", "plain")].rate == plain.rate
    assert by_job[Job("two", "slow")].experiment.mappo.learning_rate == plain.rate / 2


def test_rates_are_chosen_on_other_seeds_than_the_final_ones(done):
    out, _ = done
    tuned = RunFolder.open(out / "four" / "plain" / "rate-0.001").read_metrics()
    final = RunFolder.open(out / "four" / "plain" / "run").read_metrics()
    assert not set(tuned["seed"].to_pylist()) & set(final["seed"].to_pylist())


def test_what_is_trained_already_is_not_trained_again(study, done):
    out, chosen = done
    path = out / "four" / "plain" / "run" / "metrics" / "all.parquet"
    before = path.stat().st_mtime_ns
    again = run_study(study, jobs_of(study, ["four"], ["plain"]), FULL, out, runs.Watcher(), silent)
    assert path.stat().st_mtime_ns == before
    assert again[0].rate == chosen[0].rate


class Impatient(runs.Watcher):
    def wants_stop(self) -> bool:
        return True


def test_a_stopped_study_goes_on_from_there(study, tmp_path):
    jobs = jobs_of(study, ["four"], ["plain"])
    assert run_study(study, jobs, FULL, tmp_path, Impatient(), silent) == []
    assert len(run_study(study, jobs, FULL, tmp_path, runs.Watcher(), silent)) == 1


def test_an_arm_that_another_process_is_at_is_left_to_it(study, tmp_path, monkeypatch):
    """Another process is at `plain` until one looks for the second time whether it has ended."""
    jobs = jobs_of(study, ["four"], ["plain", "wide"])
    elsewhere = contextlib.ExitStack()
    (tmp_path / "four" / "plain").mkdir(parents=True)
    elsewhere.enter_context(files.locked(tmp_path / "four" / "plain"))
    looks = []

    def wait(_):
        looks.append(1)
        if len(looks) == 2:
            elsewhere.close()

    monkeypatch.setattr(running, "time", types.SimpleNamespace(sleep=wait))
    told = []
    quick = BUDGETS["quick"]._replace(share=1.0, most_seeds=1)
    done = run_study(study, jobs, quick, tmp_path, runs.Watcher(), told.append)
    assert [line.split(" (")[0] for line in told] == ["1 of 2: four, wide", "2 of 2: four, plain"]
    assert [one.job.arm for one in done] == ["plain", "wide"]  # told of in the study's order all the same
    assert len(looks) == 2


def test_who_takes_a_rate_over_waits_until_it_is_known(study, tmp_path):
    jobs = [Job("two", "plain"), Job("four", "plain")]
    told = []
    run_study(study, jobs, FULL, tmp_path, runs.Watcher(), told.append)
    assert [line.split(" (")[0] for line in told] == ["1 of 2: four, plain", "2 of 2: two, plain"]


def test_a_folder_with_other_settings_is_left_alone(study, done):
    out, _ = done
    with pytest.raises(BadInput, match="was made with other settings"):
        jobs = jobs_of(study, ["four"], ["plain"])
        run_study(study, jobs, BUDGETS["quick"]._replace(most_rates=2), out, runs.Watcher(), silent)


def test_a_rate_that_nobody_has_found_yet_is_asked_for(study, tmp_path):
    with pytest.raises(BadInput, match="takes its rate from four, plain: run that too"):
        run_study(study, jobs_of(study, ["two"], []), FULL, tmp_path, runs.Watcher(), silent)


def test_the_page_names_every_arm_and_what_may_not_be_said(study, done):
    out, chosen = done
    found = findings(study, chosen)
    page = write_page(study, chosen, found, "full", "coplay reproduce small", out)
    text = page.read_text()
    assert all(arm in text for arm in ("plain", "slow", "generated"))
    assert "What may not be said" in text
    assert "Made by `coplay reproduce small`" in text
    assert "rate tried is the best for" in text  # of two rates, each is an edge
    assert "decentralised + memory" in text
    assert page.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    assert '"claims"' in page.with_suffix(".json").read_text()


@pytest.mark.parametrize(
    ("best", "said"),
    [
        (1e-3, "smallest rate tried is the best for a,"),
        (2e-3, ""),
        (4e-3, "largest rate tried is the best for a,"),
    ],
)
def test_a_best_rate_at_the_edge_of_the_sweep_is_told(best, said, done):
    like = done[1][0]
    chosen = like._replace(job=Job("t", "a"), rate=best, tried=dict.fromkeys((1e-3, 2e-3, 4e-3), 0.0))
    assert said in " ".join(at_the_edge([chosen], "t"))
    assert bool(at_the_edge([chosen], "t")) == bool(said)
