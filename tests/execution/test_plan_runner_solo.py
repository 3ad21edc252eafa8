"""A job of a sweep is the job alone: the same bytes, whatever was trained before it, beside it, or in its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from contract.compose import jobs_of
from contract.registry import EVERY_KIND

from nnexp.base.signals import StopRequest
from nnexp.config.job import Job
from nnexp.config.sweep_options import SweepOptions
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.registry.discovery import Registry
from nnexp.rundir.planned_run import PlannedRun

FEW = ["trainer.max_steps=6", "trainer.eval_every=3", "trainer.batch_size=4"]


def results(planned: list[PlannedRun]) -> dict[str, tuple[bytes, bytes]]:
    return {
        item.fingerprint: ((item.run.path / "metrics.csv").read_bytes(), (item.run.path / "model.pt").read_bytes())
        for item in planned
    }


@pytest.mark.slow
def test_every_pair_is_the_same_in_a_sweep_and_alone(registry: Registry, tmp_path: Path) -> None:
    def run(jobs: list[Job], asked: SweepOptions) -> list[PlannedRun]:
        return run_plan(plan_cohorts(jobs, registry), registry, StopRequest(), asked, quiet=True)

    pairs = [f"dataset={','.join(EVERY_KIND)}", "model=glob(*)", "stack=false", *FEW, f"runs='{tmp_path / 'sweep'}'"]
    swept = run(jobs_of(pairs, registry, multirun=True), SweepOptions(workers=2))
    assert len(swept) == len(EVERY_KIND) * len(registry.names("model"))
    assert {(item.status, item.run.read()["path"]) for item in swept} == {("finished", "solo")}
    for item in reversed(swept):  # in this process, so that each has others before it here too
        job = replace(item.job, options=replace(item.job.options, runs=str(tmp_path / "alone"), stack=True))
        (alone,) = run([job], SweepOptions(workers=0))
        assert results([alone])[item.fingerprint] == results([item])[item.fingerprint], job.label


MANY = """
import gc, json, os, sys
from nnexp.execution.plan_runner import run_plan
from nnexp.execution.plan import plan_cohorts
from nnexp.registry.discovery import discover
from nnexp.base.signals import StopRequest
from nnexp.config.sweep_jobs import compose_jobs

registry, seen = discover(), []

def look():
    gc.collect()
    resident = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    seen.append([resident, len(os.listdir("/proc/self/fd"))])

command = ["dataset=moons", "model=mlp", "trainer.max_steps=3", "stack=false", f"runs='{sys.argv[1]}'"]
for first, last in ((0, 20), (20, int(sys.argv[2]))):
    jobs = compose_jobs([*command, f"seed=range({first},{last})"], registry, multirun=True)
    finished = run_plan(plan_cohorts(jobs, registry), registry, StopRequest(), quiet=True)
    assert all(item.status == "finished" for item in finished)
    look()
print(json.dumps(seen))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux tells a process's memory and files there")
def test_many_jobs_in_one_process_take_no_more_memory_and_no_more_files(tmp_path: Path) -> None:
    words = [sys.executable, "-c", MANY, str(tmp_path / "runs"), "80"]
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    (early, early_files), (late, late_files) = json.loads(result.stdout)
    assert late - early < 10  # MiB, of 60 jobs; what grows with each would be seen
    assert late_files == early_files
