"""Jobs -> cohorts."""

from __future__ import annotations

from pathlib import Path

from nnexp.plan import plan
from nnexp.sweeper import compose_jobs


def test_planning_writes_nothing_and_keeps_the_order(registry, tmp_path: Path) -> None:
    jobs = compose_jobs([f"runs='{tmp_path / 'runs'}'", "seed=3,1,2,1"], registry, multirun=True)
    cohorts = plan(jobs, registry)
    assert [planned.job.settings.seed for (planned,) in cohorts] == [3, 1, 2]
    assert not any(planned.is_done for (planned,) in cohorts)
    assert not (tmp_path / "runs").exists()


def test_a_finished_run_is_found_again_wherever_it_lies(registry, train, tmp_path: Path) -> None:
    run = train("dataset=moons", "trainer.max_steps=2")
    moved = run.path.rename(tmp_path / "runs" / "default" / f"other-name-{run.path.name[-8:]}")
    jobs = compose_jobs(["dataset=moons", "trainer.max_steps=2", f"runs='{tmp_path / 'runs'}'"], registry)
    ((planned,),) = plan(jobs, registry)
    assert planned.is_done
    assert planned.run.path == moved
