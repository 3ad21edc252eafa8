"""One line: done, failed, left, time to go, best so far."""

from __future__ import annotations

import io
import sys
import time

import pytest
from contract.compose import jobs_of

from nnexp.execution.cost_model import CostModel
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.sweep_progress import SweepProgress, format_duration
from nnexp.execution.task import Task


@pytest.fixture
def tasks(registry, tmp_path) -> list[Task]:
    jobs = jobs_of(["seed=range(4)", "stack=false", f"runs='{tmp_path}'"], registry, multirun=True)
    return [Task(cohort) for cohort in plan_cohorts(jobs, registry)]


def test_a_sweep_is_told_in_one_line(tasks, capsys) -> None:
    tally = SweepProgress(4, tasks, CostModel({}), quiet=False)
    assert tally.line == "0/4 done, 0 failed, 4 left"
    tally.began = time.monotonic() - 30
    tally.count(tasks[0].cohort[0], {"status": "finished", "metrics": {"val/loss": 0.5, "val/accuracy": 0.9}})
    tally.over(tasks.pop(0))
    tally.step(tasks.pop(0), 2000)
    assert tally.line == "1/4 done, 0 failed, 3 left, 50 s to go, best val/accuracy 0.9 (seed=0)"
    tally.count(tasks[0].cohort[0], {"status": "finished", "metrics": {"val/accuracy": 0.8}})
    tally.count(tasks[1].cohort[0], {"status": "diverged", "metrics": {"val/accuracy": 1.0}})
    assert tally.line.startswith("2/4 done, 0 failed, 1 diverged, 1 left")
    assert tally.line.endswith("best val/accuracy 0.9 (seed=0)")
    tally.show()
    assert capsys.readouterr().err == ""
    tally._next_line = 0.0
    tally.show()
    tally.say("so")
    assert [line[:16] for line in capsys.readouterr().err.splitlines()] == ["nnexp: 2/4 done,", "nnexp: so"]


def test_a_terminal_gets_one_line_that_is_redrawn_below_what_is_told(tasks, monkeypatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    tally = SweepProgress(4, tasks, CostModel({}), quiet=False)
    for _ in range(100):
        tally.show()
    assert stream.getvalue() == "0/4 done, 0 failed, 4 left"
    tally.say("so [red]")
    assert stream.getvalue().endswith("\r\x1b[2Knnexp: so [red]\n0/4 done, 0 failed, 4 left")
    tally.close()
    assert sys.stderr is stream


def test_the_last_line_is_told_at_the_end_where_one_was_told_and_it_is_another(tasks, capsys) -> None:
    tally = SweepProgress(4, tasks, CostModel({}), quiet=False)
    tally.close()
    tally._next_line = 0.0
    tally.show()
    tally.close()
    tally.count(tasks[0].cohort[0], {"status": "failed"})
    tally.close()
    lines = ["nnexp: 0/4 done, 0 failed, 4 left", "nnexp: 0/4 done, 1 failed, 3 left"]
    assert capsys.readouterr().err.splitlines() == lines


def test_the_best_of_losses_is_the_lowest(tasks) -> None:
    tally = SweepProgress(4, tasks, CostModel({}), quiet=True)
    for task, loss in zip(tasks, (0.5, 0.2, 0.3, None), strict=True):
        tally.count(task.cohort[0], {"status": "finished", "metrics": {"val/loss": loss}})
    assert tally.line == "4/4 done, 0 failed, 0 left, best val/loss 0.2 (seed=1)"


def test_quiet_shows_errors_only(tasks, capsys) -> None:
    tally = SweepProgress(4, tasks, CostModel({}), quiet=True)
    tally._next_line = 0.0
    tally.show()
    tally.say("so")
    tally.say("no", is_error=True)
    assert capsys.readouterr().err == "nnexp: no\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (3600, "1 h"), (3661, "1 h 1 min"), (200_000, "2 d 7 h")],
)
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
