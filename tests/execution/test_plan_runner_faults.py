"""Twelve jobs of one plugin, some with faults, in one sweep: each costs itself, whatever it does."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from contract.compose import jobs_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import Status
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from nnexp.answers.tables import failures
from nnexp.base.signals import StopRequest
from nnexp.config.sweep_options import SweepOptions
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.rundir.planned_run import PlannedRun

WHY = {
    1: ("failed", "ValueError: a fault in the constructor"),
    2: ("failed", "RuntimeError: a fault in forward"),
    3: ("failed", "SystemExit: 0"),
    4: ("failed", "its process was killed by signal 9 (SIGKILL"),
    5: ("diverged", "step 1: the loss is not finite"),
    6: ("failed", "its process exited during training, with exit code 0"),
}


@pytest.fixture
def sweep(faulty, tmp_path: Path):
    def run(*overrides: str, faults: str = "range(12)", stop: StopRequest | None = None, **more) -> list[PlannedRun]:
        command = ["dataset=moons", "model=faulty", f"model.fault={faults}", "trainer.max_steps=20"]
        jobs = jobs_of([*command, *overrides, f"runs='{tmp_path / 'runs'}'"], faulty, multirun=True)
        asked = SweepOptions(**{"workers": 2} | more)
        cohorts = plan_cohorts(jobs, faulty, retry_statuses=asked.retry_statuses, rerun=asked.rerun)
        return run_plan(cohorts, faulty, stop or StopRequest(), asked)

    return run


def stamps(planned: list[PlannedRun]) -> list[dict[str, int]]:
    return [{path.name: path.stat().st_mtime_ns for path in item.run.path.iterdir()} for item in planned]


def shown(folder: Path) -> tuple[str, str, float]:
    """What TensorBoard has of a run: its own status, our word in the text, the job's fault."""
    read = EventAccumulator(str(folder))
    read.Reload()
    start, end = (
        HParamsPluginData.FromString(read.summary_metadata[tag].plugin_data.content)
        for tag in (metadata.SESSION_START_INFO_TAG, metadata.SESSION_END_INFO_TAG)
    )
    (text,) = read.Tensors("status")
    word = text.tensor_proto.string_val[0].decode().split("**")[1]
    fault = start.session_start_info.hparams["model.fault"].number_value
    return Status.Name(end.session_end_info.status), word, fault


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "stack"), [(1, "false"), (2, "true")])
def test_each_fault_costs_its_own_run_and_is_told(sweep, capsys, tmp_path: Path, workers: int, stack: str) -> None:
    planned = sweep(f"stack={stack}", workers=workers)
    errors = capsys.readouterr().err
    for number, item in enumerate(planned):
        status, why = WHY.get(number, ("finished", ""))
        facts = item.run.read()
        assert facts["status"] == status, number
        assert shown(item.run.path) == ("STATUS_SUCCESS" if status == "finished" else "STATUS_FAILURE", status, number)
        if why:
            assert facts["error"]["message"].startswith(why)
            assert (item.run.path / "error.txt").read_text().startswith(why)
            assert f"job {number + 1} {item.job.label}: {status} at step 0: {why}" in errors
    assert "Traceback" in (planned[2].run.path / "error.txt").read_text()
    assert failures(planned)[0].startswith("6 of 12 jobs did not finish")
    (table,) = (tmp_path / "runs" / "default").glob("sweep-fault-*/results.csv")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["status"] for row in rows] == [item.status for item in planned]
    assert [float(row["model.fault"]) for row in rows] == list(range(12))
    assert all((table.parent / row["run"] / "run.json").exists() for row in rows)
    before = stamps(planned)
    assert stamps(sweep(f"stack={stack}", workers=workers)) == before


@pytest.mark.slow
def test_what_failed_is_tried_again_where_that_is_asked_and_only_that(sweep) -> None:
    planned = sweep(faults="0,2,5")
    before = stamps(planned)
    again = sweep(faults="0,2,5", retry="failed")
    assert [item.status for item in again] == ["finished", "failed", "diverged"]
    after = stamps(again)
    assert [after[0], after[2]] == [before[0], before[2]]
    assert after[1]["run.json"] > before[1]["run.json"]


@pytest.mark.slow
def test_a_run_that_fails_is_tried_as_often_as_is_asked(sweep, capsys) -> None:
    (_, failed) = sweep(faults="0,4", retries=2)
    assert failed.status == "failed"
    assert capsys.readouterr().err.count("Retrying") == 2


@pytest.mark.slow
def test_a_lane_that_is_tried_again_waits_until_its_stack_lets_go_of_it(sweep, capsys) -> None:
    good, bad = sweep("trainer.max_steps=4000", faults="0,2", retries=1)
    assert (good.status, bad.status) == ("finished", "failed")
    told = [line for line in capsys.readouterr().err.splitlines() if f"job 2 {bad.job.label}: failed" in line]
    assert ["Retrying" in line for line in told] == [True, False]


@pytest.mark.slow
def test_a_sweep_ends_with_the_failures_that_are_allowed(sweep, capsys) -> None:
    stop = StopRequest()
    planned = sweep("stack=false", faults="1,0,2", workers=1, on_error="stop", stop=stop)
    assert [item.status for item in planned] == ["failed"]
    assert (stop.requested, stop.signal) == (True, None)
    assert "stopping the sweep: 1 of its runs failed or diverged" in capsys.readouterr().err
    assert [item.status for item in sweep("stack=false", faults="1,0,2,3", workers=1, max_failures=1)] == [
        "failed",
        "finished",
        "failed",
    ]


def test_in_the_commands_own_process_faults_that_leave_it_alive_cost_their_run_only(sweep) -> None:
    assert [item.status for item in sweep(faults="0,1,2,3,5", workers=0)] == [
        "finished",
        "failed",
        "failed",
        "failed",
        "diverged",
    ]


@pytest.mark.slow
def test_a_rerun_lies_beside_the_old_run(sweep, tmp_path: Path) -> None:
    old = sweep(faults="0,7")
    before = stamps(old)
    new = sweep(faults="0,7", rerun=True)
    assert stamps(old) == before
    assert [item.run.path.name for item in new] == [f"{item.run.path.name}.2" for item in old]
    assert [item.run.path for item in sweep(faults="0,7")] == [item.run.path for item in new]
    for one, other in zip(old, new, strict=True):
        assert (one.run.path / "metrics.csv").read_bytes() == (other.run.path / "metrics.csv").read_bytes()


def test_code_that_changes_while_a_sweep_runs_trains_nothing(sweep, faulty, monkeypatch, change_file, capsys) -> None:
    path = faulty.get("model", "faulty").path
    changed = path.read_text().replace("scale", "size")
    monkeypatch.setattr("nnexp.execution.plan_runner.create_missing_runs", lambda cohort: change_file(path, changed))
    planned = sweep(faults="0,7")
    assert [item.status for item in planned] == ["new", "new"]
    assert "its code has changed since the command was given" in capsys.readouterr().err
