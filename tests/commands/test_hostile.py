"""Plugins and run directories that misbehave: the others of a sweep never notice, and statuses stay true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from contract.combinations import slow_but
from contract.compose import jobs_of

from nnexp.base.signals import StopRequest
from nnexp.commands.cli import command_line
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan

SHORT = ["dataset=moons", "model=mlp", "trainer.max_steps=60", "checkpoint_every=20"]
BAD = '''"""Misbehaves. Our own."""
import os, sys, shutil, random
import numpy as np
import torch
from torch import nn
from nnexp import DataSpec, model

class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")

at_import = [torch.randn(2), np.random.rand(), random.random()]

@model
class Bad(nn.Module):
    """Does something in its constructor or in its first pass in training."""
    def __init__(self, data: DataSpec, *, where: str = "forward"):
        super().__init__()
        self.layer, self.where = nn.Linear(2, 2), where
        self.misbehave("init")

    def misbehave(self, place):
        if place == self.where:
            ACTION

    def forward(self, x, lengths=None):
        if self.training:
            self.misbehave("forward")
        return self.layer(x) + at_import[0] + at_import[1] + at_import[2]
'''
RAISES = ["raise BaseException", "raise GeneratorExit", "raise KeyboardInterrupt", "raise Unspeakable", "sys.exit(0)"]
RAISES += ["raise MemoryError", "self.misbehave(place)"]
CHANGES = ["os.chdir('/')", "torch.set_default_device('meta')", "sys.stdout = sys.stderr = None", "os.environ.clear()"]
CHANGES += ["torch.manual_seed(1)", "torch.set_grad_enabled(False)", "torch.set_default_dtype(torch.float64)"]


@pytest.fixture
def sweep(registry_of, tmp_path: Path, monkeypatch) -> Callable[..., dict[str, str]]:
    """Trains a bad model, then a good one, in one sweep with a relative folder; gives the status of each."""

    def run(action: str, where: str) -> dict[str, str]:
        monkeypatch.chdir(tmp_path)
        plugins = registry_of("bad", model=BAD.replace("ACTION", action))
        points = (["model=bad", f"model.where={where}"], ["model=mlp"])
        jobs = [jobs_of([*SHORT, *point], plugins)[0] for point in points]
        begun = run_plan(plan_cohorts(jobs, plugins), plugins, StopRequest(), quiet=True)
        return {item.job.model.name: item.run.status for item in begun}

    return run


@pytest.mark.parametrize(
    ("action", "where"),
    slow_but([(RAISES[0], "init"), (RAISES[2], "forward")], [*product(RAISES, ["init", "forward"])]),
)
def test_whatever_a_plugin_raises_costs_its_own_run_only(sweep, action: str, where: str) -> None:
    assert sweep(action, where) == {"bad": "failed", "mlp": "finished"}


@pytest.mark.slow
@pytest.mark.parametrize("action", CHANGES)
def test_whatever_a_plugin_changes_the_next_job_does_not_feel(sweep, train, action: str) -> None:
    before = Path.cwd(), torch.get_default_device(), sys.stdout, dict(os.environ)
    assert sweep(action, "init")["mlp"] == "finished"
    assert (torch.get_default_device(), sys.stdout, dict(os.environ)) == before[1:]
    (run,) = Path("runs/default").glob("*model=mlp*")
    assert (run / "model.pt").read_bytes() == (train(*SHORT, runs="alone").path / "model.pt").read_bytes()


def test_a_plugin_that_removes_the_runs_leaves_the_sweep_going(sweep) -> None:
    assert sweep("shutil.rmtree('runs')", "forward")["mlp"] == "finished"


@pytest.mark.slow
def test_what_a_module_draws_on_import_is_the_same_whichever_job_imports_it(registry_of, train) -> None:
    plugins = registry_of("bad", model=BAD.replace("ACTION", "pass"))
    outcomes = []
    for runs, first in (("a", "seed=0"), ("b", "seed=1")):
        sys.modules.pop("nnexp_plugins.model.bad", None)
        train(*SHORT, "model=bad", first, runs=runs, plugins=plugins)
        outcomes.append(
            (train(*SHORT, "model=bad", "seed=1", runs=runs, plugins=plugins).path / "model.pt").read_bytes()
        )
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"status": None},
        {"seconds": "x"},
        {"resumed_from": 3},
        {"metrics": []},
        {"error": "text"},
        {"notes": 1},
        {"parameters": "x"},
        {"fingerprint": 7},
        {"format": 2},
    ],
)
def test_a_strange_run_json_costs_its_own_job_only(registry, train, tmp_path: Path, change: dict, capsys) -> None:
    run = train(*SHORT)
    facts = json.loads((run.path / "run.json").read_text()) | change
    (run.path / "run.json").write_text(json.dumps(facts))
    jobs = jobs_of([*SHORT, "seed=0,1", f"runs='{tmp_path / 'runs'}'"], registry, multirun=True)
    begun = run_plan(plan_cohorts(jobs, registry), registry, StopRequest(), quiet=True)
    assert [item.run.status for item in begun][-1:] == ["finished"]
    assert begun[-1].job.options.seed == 1


def test_a_deeply_nested_run_json_is_an_error_and_no_crash(train) -> None:
    run = train(*SHORT)
    (run.path / "run.json").write_text("[" * 100_000)
    with pytest.raises(Exception, match=r"run\.json cannot be read"):
        run.read()


def test_metrics_are_not_written_through_a_link(train, tmp_path: Path) -> None:
    run = train(*SHORT, "trainer.batch_size=9999")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (run.path / "metrics.csv").unlink(missing_ok=True)
    (run.path / "metrics.csv").symlink_to(victim)
    train(*SHORT, "trainer.batch_size=9999")
    assert victim.read_text() == "precious"


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["<&- >&- 2>&-", ">/dev/full 2>&-"])
def test_closed_or_full_streams_stop_no_training(tmp_path: Path, streams: str) -> None:
    command = f"{sys.executable} -m nnexp {' '.join(SHORT)} probe=[] {streams}"
    assert subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True).returncode == 0
    (run,) = tmp_path.glob("runs/default/*/run.json")
    assert json.loads(run.read_text())["status"] == "finished"


@pytest.mark.slow
def test_a_slurm_job_of_many_tasks_and_trainer_variables_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "4", "SLURM_JOB_NAME": "x", "PL_TRAINER_MAX_STEPS": "1"}
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    assert command_line([*SHORT, f"runs='{tmp_path}'", "probe=[]"]) == 0
    assert "finished: 60 steps" in capsys.readouterr().out
