"""Plans run one cohort after another: complete runs are skipped, a failed job does not stop the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.compose import jobs_of

from nnexp.base.errors import NnexpError
from nnexp.base.signals import StopRequest
from nnexp.config.sweep_options import SweepOptions
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import PlanRunner, run_plan
from nnexp.execution.task import Task, train_task
from nnexp.execution.worker_executor import WorkerExecutor
from nnexp.rundir.planned_run import in_command_order
from nnexp.rundir.run import Run

SHORT = ["dataset=moons", "model=mlp", "trainer.max_steps=20"]


@pytest.fixture
def sweep(registry, tmp_path: Path):
    def run(*overrides: str, stop: StopRequest | None = None, quiet: bool = True) -> list[Run]:
        jobs = jobs_of([*SHORT, *overrides, f"runs='{tmp_path / 'runs'}'"], registry, multirun=True)
        return [
            item.run for item in run_plan(plan_cohorts(jobs, registry), registry, stop or StopRequest(), quiet=quiet)
        ]

    return run


def stamps(run: Run) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in run.path.iterdir()}


def test_a_finished_sweep_given_again_trains_and_writes_nothing(sweep) -> None:
    runs = sweep("seed=0,1")
    before = [stamps(run) for run in runs]
    again = sweep("seed=0,1")
    assert [run.path for run in again] == [run.path for run in runs]
    assert [stamps(run) for run in again] == before


def test_a_job_given_twice_is_trained_once(sweep) -> None:
    assert len(sweep("seed=1,1")) == 1


def test_a_failing_job_does_not_stop_the_others(sweep, capsys: pytest.CaptureFixture[str]) -> None:
    runs = sweep("trainer.batch_size=32,9999,full", quiet=False)
    assert [run.status for run in runs] == ["finished", "failed", "finished"]
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "failed at" in line]
    assert "job 2 batch_size=9999" in line
    assert "9999 is more than the 400 training rows" in line


def test_each_run_that_ends_is_counted_once(registry, tmp_path: Path) -> None:
    command = [*SHORT, "trainer.batch_size=32,9999,full", f"runs='{tmp_path / 'runs'}'"]
    cohorts = plan_cohorts(jobs_of(command, registry, multirun=True), registry)
    for _ in range(2):  # trained, and met again
        runner = PlanRunner(
            cohorts, in_command_order(cohorts), registry, StopRequest(), SweepOptions(workers=0), quiet=True
        )
        runner.run()
        assert runner.progress.line.startswith("2/3 done, 1 failed, 0 left, best val/accuracy ")


@pytest.mark.parametrize("quiet", [True, False])
def test_what_a_task_says_is_told_with_the_name_of_its_job(registry, tmp_path: Path, capsys, quiet: bool) -> None:
    jobs = jobs_of([*SHORT, "seed=0,1", "stack=false", f"runs='{tmp_path / 'runs'}'"], registry, multirun=True)
    cohorts = plan_cohorts(jobs, registry)
    runner = PlanRunner(cohorts, in_command_order(cohorts), registry, StopRequest(), SweepOptions(workers=0), quiet)
    runner.outcomes.on_event(Task(cohorts[1]), "message", "memory is short")
    told = "" if quiet else f"nnexp: job 2 {jobs[1].label}: memory is short\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(("workers", "settings", "share"), [(4, 2, 1 / 2), (2, 4, 1 / 2), (3, 3, 1 / 3), (4, 1, 1)])
def test_workers_share_the_memory_that_is_free(
    registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, settings: int, share: float
) -> None:
    monkeypatch.setattr("nnexp.execution.plan_runner.num_workers", lambda *_: workers)
    sizes = f"model.hidden_size={','.join(map(str, range(1, settings + 1)))}"
    jobs = jobs_of([*SHORT, sizes, f"runs='{tmp_path / 'runs'}'"], registry, multirun=True)
    cohorts = plan_cohorts(jobs, registry)
    runner = PlanRunner(
        cohorts, in_command_order(cohorts), registry, StopRequest(), SweepOptions(workers=workers), quiet=True
    )
    assert isinstance(runner.executor, WorkerExecutor)
    assert runner.executor.share == pytest.approx(share)


def test_after_a_signal_nothing_new_is_begun(sweep, tmp_path: Path) -> None:
    stop = StopRequest()
    stop.requested = True
    assert sweep("seed=0,1", stop=stop) == []
    assert not (tmp_path / "runs").exists()


def test_a_run_in_use_is_left_out_with_a_reason(sweep, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = sweep("seed=0")
    run.write(status="interrupted")
    run.lock()
    sweep("seed=0")
    run.unlock()
    assert "is being trained by process" in capsys.readouterr().err


def test_a_run_finished_by_another_process_meanwhile_is_not_trained_again(sweep, monkeypatch) -> None:
    seen = []

    def late(task, *rest, **more):
        seen.append(task)
        if len(seen) == 1:  # another process is faster, between our plan and our lock
            sweep("seed=5")
        return train_task(task, *rest, **more)

    monkeypatch.setattr("nnexp.execution.in_process_executor.train_task", late)
    (run,) = sweep("seed=5")
    assert len(seen) == 2
    assert run.read()["resumed_from"] == []


def test_a_missing_device_is_refused_before_anything_is_written(sweep, tmp_path: Path) -> None:
    with pytest.raises(NnexpError, match="device=cpu"):
        sweep("device=mps")
    assert not (tmp_path / "runs").exists()


def test_a_run_found_under_another_experiment_is_referred_to(sweep, tmp_path: Path) -> None:
    (run,) = sweep("model.hidden_size=16")
    (again,) = sweep("experiment=nonlinearity", "model.activation=tanh", "seed=0")
    assert again.path == run.path
    assert [path.suffix for path in (tmp_path / "runs" / "nonlinearity").iterdir()] == [".json"]
