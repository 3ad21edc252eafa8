"""A bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nnexp.fit import progress
from nnexp.fit.progress import ProgressBar
from nnexp.rundir.metrics_csv import Rows
from nnexp.rundir.output_log import capture_output, log_output_to
from nnexp.rundir.run import Run


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rows(step: int) -> Rows:
    return Rows(step, [0.5], [1.0])


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Terminal]:
    """Makes stderr a terminal of some width."""

    def make(columns: int, **environment: str) -> Terminal:
        for name, value in {"COLUMNS": str(columns), "TERM": "xterm-256color", **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stderr", Terminal())
        return sys.stderr

    return make


def drawn(stream: Terminal) -> list[str]:
    """What was drawn, one after the other, without control codes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).split("\r\x1b[2K")


def test_a_terminal_gets_a_bar_that_is_drawn_a_few_times_a_second(terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = terminal(100), 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    shown = ProgressBar("job", 2000)
    for step in range(1, 2001):
        now += 0.001
        shown.show(step, Rows(step, [0.25], [1.0], {step: {"val/accuracy": 0.9}}))
    lines = drawn(stream)
    shown.close()
    assert 8 <= len(lines) <= 9, "a draw at first, and four a second in two seconds"
    assert re.fullmatch(r"job \S+ +17[5-9]\d/2000 .* loss 0.25  accuracy 0.9 *", lines[-1])
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize("columns", [20, 60])
def test_a_narrow_terminal_gets_everything_in_words(terminal, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(progress, "DRAW_SECONDS", 0.0)
    stream = terminal(columns)
    shown = ProgressBar("model=rnn-max_steps=3000", 3000)
    shown.show(1500, Rows(1500, [0.25], [1.0], {1500: {"val/accuracy": 0.9}}))
    last = stream.getvalue().replace("\x1b[1A\x1b[2K", "").rpartition("\r\x1b[2K")[2]
    shown.close()
    expected = "model=rnn-max_steps=3000  step 1500/3000  train/loss 0.25  val/accuracy 0.9"
    assert "".join(last.split()) == expected.replace(" ", "")
    assert all(len(line) <= columns for line in last.split("\n"))


def test_a_bar_has_no_colour_where_none_is_wanted(terminal) -> None:
    stream = terminal(100, NO_COLOR="1")
    ProgressBar("job", 10).close()
    assert "job" in stream.getvalue()
    assert not re.search(r"\x1b\[[0-9;]+m", stream.getvalue().replace("\x1b[0m", ""))


def test_a_terminal_that_cannot_redraw_a_line_gets_lines(terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_LINE_SECONDS", 0.0)
    stream = terminal(100, TERM="dumb")
    shown = ProgressBar("job", 10)
    shown.show(3, rows(3))
    shown.close()
    assert stream.getvalue() == "nnexp: job  step 3/10  train/loss 0.5\n"


def test_what_a_plugin_prints_is_above_the_bar_and_in_the_log(terminal, tmp_path: Path) -> None:
    stream, run = terminal(100), Run(tmp_path)
    shown = ProgressBar("job", 10)
    with capture_output(echo=True), log_output_to([run]):
        print("printed [red] by", "a plugin", file=sys.stderr)
        shown.say("goes on from step 2")
        shown.show(3, rows(3))
    shown.close()
    assert (tmp_path / "log.txt").read_text() == "printed [red] by a plugin\n"
    assert any(text.startswith("printed [red] by a plugin\n") for text in drawn(stream))
    assert any(text.startswith("nnexp: job: goes on from step 2\n") for text in drawn(stream))


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
