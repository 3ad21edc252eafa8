"""Tables whole in a pipe and folded on a terminal; redrawn lines that keep prints apart and survive the terminal."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nnexp.base.console import open_display, print_err
from nnexp.base.tables import align
from nnexp.base.terminal import LiveDisplay

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ROWS = [
    ["key", "value", "meaning"],
    ["probe=[gradient_norm]", "0.5", "a long sentence about [red]gradients[/red] that a narrow terminal has to fold"],
    ["model=rnn-seed=0-max_steps=3000-hidden_size=128", "-1e-05", ":smile: http://x.y/z 12:30 'text' None"],
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Terminal]:
    """Makes stderr, or both streams, a terminal of some width."""

    def make(columns: int, *, stdout: bool = False, **environment: str) -> Terminal:
        stream = Terminal()
        for name, value in {"COLUMNS": str(columns), "TERM": "xterm-256color", **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stderr", stream)
        if stdout:
            monkeypatch.setattr(sys, "stdout", stream)
        return stream

    return make


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    assert align([["name", "n"], ["a", "5"], ["long", "12"]]) == "name   n\na      5\nlong  12"


def test_words_that_end_in_a_digit_are_no_numbers() -> None:
    assert align([["run", "x"], ["a1", "nan"], ["abc22", "1e-05"]]) == "run        x\na1       nan\nabc22  1e-05"


def test_columns_are_aligned_by_what_a_character_takes_on_the_screen() -> None:
    assert align([["word", "n"], ["日本", "1"], ["four", "2"]]) == "word  n\n日本  1\nfour  2"


def test_a_table_that_is_too_long_to_be_folded_quickly_is_shown_as_in_a_pipe(terminal) -> None:
    rows = [["name", "meaning"], *[["a", "word " * 30]] * 500]
    in_a_pipe = align(rows)
    terminal(60, stdout=True)
    assert align(rows) == in_a_pipe
    assert align(rows[:-1]) != in_a_pipe.rpartition("\n")[0]


def test_in_a_pipe_every_row_is_a_line_with_its_values_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "20", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    wide = [*ROWS, ["x" * 5000, "1", "y" * 5000]]
    lines = align(wide).split("\n")
    assert [re.split(r" {2,}", line) for line in lines] == wide
    assert "\x1b" not in "".join(lines)


def test_on_a_terminal_words_are_folded_and_numbers_are_not(terminal) -> None:
    terminal(60, stdout=True)
    text = align(ROWS)
    lines = ESCAPE.sub("", text).split("\n")
    assert text.startswith("\x1b[1m")
    assert max(map(len, lines)) <= 60
    start = lines[0].index("value") - 1
    assert "".join(line[: start - 2].rstrip() for line in lines[1:]) == "".join(row[0] for row in ROWS[1:])
    assert [line[start:][:6] for line in lines if line[start:][:6].strip()] == [" value", "   0.5", "-1e-05"]
    assert "[red]" in "".join(lines)
    assert ":smile:" in "".join(lines)


def test_a_number_stays_whole_beside_words_that_are_shorter(terminal) -> None:
    terminal(45, stdout=True)
    lines = align([["number", "words"], ["1.234567890123456789012345", "words of 18 letters"]]).split("\n")
    assert lines[1:] == ["1.234567890123456789012345  words of 18", "                            letters"]


def test_a_table_too_wide_to_be_folded_is_left_to_the_terminal(terminal) -> None:
    terminal(30, stdout=True)
    assert len(align(ROWS).split("\n")) == len(ROWS)


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_terminals_without_colours_get_none(terminal, environment: dict[str, str]) -> None:
    terminal(200, stdout=True, **environment)
    assert set(re.findall(r"\x1b\[([0-9;]*)m", align(ROWS))) <= {"0", "1"}


def test_where_nothing_can_be_redrawn_there_is_no_display(terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_display() is None
    terminal(80, TERM="dumb")
    assert open_display() is None
    terminal(80)
    assert open_display(quiet=True) is None


def test_what_is_printed_meanwhile_stands_above_in_whole_lines(terminal) -> None:
    stream = terminal(40, stdout=True)
    before, threads = (sys.stdout, sys.stderr), threading.active_count()
    display = LiveDisplay()
    display.draw("1/2 done")
    print("a [red]plugin[/red] :smile:")
    print("half", end="")
    display.draw("2/2 done")
    print(" a line", file=sys.stdout)
    long = "the harness tells of a path: /" + "x" * 100
    print_err(long)
    print("no end of 'x' = 12", end="", file=sys.stderr)
    assert threading.active_count() == threads
    display.close()
    assert (sys.stdout, sys.stderr) == before
    text = stream.getvalue()
    lines = [ESCAPE.sub("", line).rpartition("\r")[2] for line in text.split("\n")]
    printed = ["a [red]plugin[/red] :smile:", "half a line", f"nnexp: {long}", "no end of 'x' = 12"]
    assert [line for line in lines if line in printed] == printed
    assert "\x1b[2Kno end of 'x' = 12\n" in text, "no colours"
    assert "\x1b[?25l" not in text, "a command that is killed would leave the cursor hidden"
    assert text.endswith("\x1b[2K"), "nothing of what was drawn is left"


def test_stdout_that_is_no_terminal_is_left_alone(terminal, capsys: pytest.CaptureFixture[str]) -> None:
    stream = terminal(40)
    display = LiveDisplay()
    display.draw("1/2 done")
    print("a result")
    display.close()
    assert capsys.readouterr().out == "a result\n"
    assert "a result" not in stream.getvalue()


@pytest.mark.parametrize("columns", [1, 20, 300])
def test_text_is_drawn_whole_at_any_width(terminal, columns: int) -> None:
    stream = terminal(columns)
    display = LiveDisplay()
    display.draw("12/300 done, 1 failed")
    drawn = ESCAPE.sub("", stream.getvalue())
    display.close()
    assert "".join(drawn.split()) == "12/300done,1failed"
    assert max(map(len, drawn.split("\n"))) <= columns


def test_a_terminal_that_is_gone_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.openpty()
    stream = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    display = open_display()
    assert display is not None
    display.draw("1/2 done")
    os.close(reader)
    display.draw("2/2 done")
    print_err("nobody reads this")
    assert sys.stderr is stream
    display.draw("3/2 done")
    display.close()
    with contextlib.suppress(OSError):
        stream.close()


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed")])
def test_an_error_of_the_stream_stops_nothing(terminal, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    stream = terminal(40)
    display = LiveDisplay()
    monkeypatch.setattr(stream, "write", lambda _: (_ for _ in ()).throw(error))
    display.draw("1/2 done")
    display.close()
    assert sys.stderr is stream


@pytest.mark.slow
def test_neither_rich_nor_tqdm_is_imported_by_help_errors_and_tables_in_a_pipe(tmp_path: Path) -> None:
    code = """
import contextlib, io, sys
from nnexp.commands.cli import command_line
def imported(): return sorted({"rich", "tqdm", "torch"} & set(sys.modules))
commands = [["--help"], ["--version"], ["--cfg", "job"], ["model.forget_bais=3"], ["plugins", "lstmm"], ["list"]]
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        command_line(command)
    assert not imported(), (command, imported())
command_line(["plugins", "lstm"])
print(imported())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
