"""results.csv: a row for each job of a sweep, whatever its state."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from contract.compose import jobs_of

from nnexp.execution.plan import plan_cohorts
from nnexp.rundir.planned_run import create_missing_runs
from nnexp.rundir.results_csv import ResultsCsv


@pytest.fixture
def planned(registry, tmp_path: Path):
    command = ["model=lstm,mlp", "seed=0,1", f"runs='{tmp_path / 'runs'}'", "dataset.pattern=[1,0]"]
    cohorts = plan_cohorts(jobs_of(command, registry, multirun=True), registry)
    return sorted((item for cohort in cohorts for item in cohort), key=lambda item: item.number)


def rows(results: ResultsCsv) -> list[dict[str, str]]:
    return list(csv.DictReader(results.path.read_text().splitlines()))


def column(results: ResultsCsv, name: str) -> list[str]:
    return [row[name] for row in rows(results)]


def test_every_job_has_a_row_with_its_configuration_and_its_end(planned) -> None:
    results = ResultsCsv(planned)
    results.update([])
    assert results.path.parent.parent.name == "default"
    assert results.path.parent.name.startswith("sweep-model-seed-")
    assert column(results, "status") == ["new"] * 4
    assert column(results, "model") == ["lstm", "lstm", "mlp", "mlp"]
    assert column(results, "model.forget_bias") == ["1.0", "1.0", "", ""]
    assert column(results, "dataset.pattern") == ["1_0"] * 4
    create_missing_runs(planned)
    planned[1].run.write(status="finished", steps=7, metrics={"val/loss": 0.25})
    planned[2].run.write(status="diverged", metrics={"val/accuracy": None})
    results.update(planned[1:3])
    assert column(results, "status") == ["new", "finished", "diverged", "new"]
    assert list(rows(results)[0])[-2:] == ["val/loss", "val/accuracy"]
    assert column(results, "val/loss") == ["", "0.25", "", ""]
    assert (results.path.parent / column(results, "run")[1] / "run.json").exists()


def test_what_another_process_has_written_is_seen(planned) -> None:
    one, other = ResultsCsv(planned), ResultsCsv(planned)
    one.update([])
    create_missing_runs(planned)
    planned[0].run.write(status="finished")
    one.update(planned[:1])
    planned[1].run.write(status="failed", error={"type": "E", "message": "a reason"})
    other.update(planned[1:2])
    assert column(other, "status") == ["finished", "failed", "new", "new"]
    planned[2].run.write(status="running")
    one.update(planned[2:3], 17)
    assert column(one, "status") == ["finished", "failed", "running", "new"]
    assert column(one, "steps") == ["0", "0", "17", "0"]
    assert column(one, "error") == ["", "a reason", "", ""]


def test_nothing_is_written_where_nothing_has_changed(planned) -> None:
    ResultsCsv(planned).update([])
    path = ResultsCsv(planned).path
    before = path.stat().st_mtime_ns
    again = ResultsCsv(planned)
    again.update(planned)
    again.update([])
    assert path.stat().st_mtime_ns == before
