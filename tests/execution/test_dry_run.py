"""sweep.dry_run: every job with what would become of it, and an estimate; nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.compose import jobs_of

from nnexp.base.signals import StopRequest
from nnexp.execution.dry_run import dry_run_report, makespan
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.rundir.planned_run import create_missing_runs

SHORT = ["dataset=moons", "model=mlp", "trainer.max_steps=20"]


@pytest.fixture
def cohorts(registry, tmp_path: Path):
    def make(*overrides: str, **more):
        jobs = jobs_of([*SHORT, *overrides, f"runs='{tmp_path / 'runs'}'"], registry, multirun=True)
        return plan_cohorts(jobs, registry, **more)

    return make


def states(text: str) -> list[str]:
    """What the table of jobs says of each."""
    lines = text.splitlines()
    place = lines[1].index("state")
    return [line[place:].split("  ")[0] for line in lines[2:] if len(line) > place and "/20" in line]


def test_each_job_is_listed_with_what_becomes_of_it(registry, cohorts) -> None:
    run_plan(cohorts("trainer.batch_size=32,9999"), registry, StopRequest(), quiet=True)
    (resumed,), _ = other = cohorts("trainer.batch_size=16,8")
    create_missing_runs(resumed_and := [item for cohort in other for item in cohort])
    resumed.run.write(status="interrupted", steps=7)
    resumed_and[1].run.write(status="running")
    resumed_and[1].run.lock()
    every = "trainer.batch_size=32,9999,16,8,full"
    text = dry_run_report(cohorts(every), [("seed=x", "seed: no")], registry, 2)
    resumed_and[1].run.unlock()
    assert states(text) == ["finished", "failed", "to resume", "in training elsewhere", "new"]
    assert text.startswith("5 jobs: 1 finished, 1 failed, 1 to resume, 1 in training elsewhere, 1 new, 1 invalid\n")
    assert "invalid: seed: no" in text
    assert text.splitlines()[-1].startswith("about ")
    assert text.endswith(" with 2 workers.")
    text = dry_run_report(cohorts(every, retry_statuses=("failed",), rerun=True), [], registry, 1)
    assert states(text)[:2] == ["new, beside the old run"] * 2


def test_a_finished_sweep_has_nothing_to_train(registry, cohorts, tmp_path: Path) -> None:
    run_plan(cohorts("seed=0,1"), registry, StopRequest(), quiet=True)
    before = sorted(tmp_path.rglob("*"))
    assert dry_run_report(cohorts("seed=0,1"), [], registry, 2).endswith("nothing is to be trained.")
    dry_run_report(cohorts("seed=5,6"), [], registry, 2)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("costs", "size", "seconds"), [([4, 3, 2, 1], 1, 10), ([4, 3, 2, 1], 2, 5), ([4, 1], 8, 4), ([3, 3, 3], 2, 6)]
)
def test_the_longest_of_the_workers_decides(costs: list[float], size: int, seconds: float) -> None:
    assert makespan(costs, size) == seconds


def test_a_job_that_kills_its_process_is_told_and_costs_no_more(faulty, tmp_path: Path) -> None:
    command = ["dataset=moons", "model=faulty", "model.fault=0", "trainer.max_steps=20", f"runs='{tmp_path / 'runs'}'"]
    for fault, why in ((1, "ValueError: a fault in the constructor"), (6, "its process exited during training")):
        jobs = jobs_of([*command, f"model.fault={fault}"], faulty, multirun=True)
        text = dry_run_report(plan_cohorts(jobs, faulty), [], faulty, 2)
        assert f"fails: {why}" in text
        assert states(text) == ["new"]
    assert not (tmp_path / "runs").exists()
