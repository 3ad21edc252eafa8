"""A bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from nnexp.fit import progress
from nnexp.fit.progress import ProgressBar
from nnexp.rundir.metrics_csv import Rows


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rows(step: int) -> Rows:
    return Rows(step, [0.5], [1.0])


def test_a_terminal_gets_a_bar_that_is_drawn_at_most_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    shown = ProgressBar("job", 100_000)
    for step in range(1, 2001):
        shown.show(step, rows(step))
    drawn = terminal.getvalue()
    shown.close()
    assert "job" in drawn
    assert drawn.count("\r") <= 20  # 2,000 calls take well under two seconds


def test_elsewhere_there_is_a_plain_line_now_and_then(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "FIRST_LINE_SECONDS", 0.0)
    shown = ProgressBar("job", 10)
    shown.say("goes on from step 2")
    shown.show(3, rows(3))
    shown.show(4, Rows(4, [0.25], [1.0], {4: {"val/accuracy": 0.9}}))
    shown.close()
    assert capsys.readouterr().err.splitlines() == [
        "nnexp: job: goes on from step 2",
        "nnexp: job  step 3/10  train/loss 0.5",
        "nnexp: job  step 4/10  train/loss 0.25  val/accuracy 0.9",
    ]


def test_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    shown = ProgressBar("job", 10, quiet=True)
    shown.show(3, rows(3))
    shown.close()
    assert capsys.readouterr() == ("", "")
