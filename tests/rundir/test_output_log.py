"""What plugins print goes to the runs whose turn it is."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from nnexp.base.console import print_err
from nnexp.rundir.output_log import capture_output, log_output_to
from nnexp.rundir.run import Run


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    made = [Run(tmp_path / name) for name in "ab"]
    for run in made:
        run.path.mkdir()
    return made


def logs(runs: list[Run]) -> list[str]:
    paths = [run.path / "log.txt" for run in runs]
    return [path.read_text() if path.exists() else "" for path in paths]


def test_a_print_is_in_the_log_of_each_run_whose_turn_it_is(runs, capsys) -> None:
    with capture_output(echo=False):
        print("nobody's")
        with log_output_to(runs):
            print("both")
            with log_output_to(runs[:1]):
                print("one", file=sys.stderr)
                print_err("a word of the harness")
    print("after")
    one, other = logs(runs)
    assert one == "both\none\n"
    assert other == "both\n"
    assert capsys.readouterr() == ("nobody's\nafter\n", "nnexp: a word of the harness\n")


def test_with_an_echo_it_is_on_the_terminal_too(runs, capsys) -> None:
    with capture_output(echo=True), log_output_to(runs):
        print("both")
        assert not sys.stdout.isatty()
        sys.stdout.flush()
    assert logs(runs) == ["both\n", "both\n"]
    assert capsys.readouterr().out == "both\n"


def test_what_is_printed_in_pieces_and_in_bytes_is_whole(runs) -> None:
    with capture_output(echo=False), log_output_to(runs):
        print("a", end="")
        print("b", end="")
        with log_output_to(runs[:1]):
            sys.stdout.buffer.write(b"bytes")
        for _ in range(3000):
            print(".", end="")
    assert logs(runs) == ["abbytes" + "." * 3000, "ab" + "." * 3000]


def test_a_log_that_cannot_be_written_stops_nothing(runs) -> None:
    (runs[0].path / "log.txt").symlink_to(runs[1].path / "elsewhere")
    with capture_output(echo=False), log_output_to(runs):
        print("x")
    assert not (runs[1].path / "elsewhere").exists()
    assert logs(runs)[1] == "x\n"


def test_the_streams_are_put_back_whatever_a_plugin_puts_there() -> None:
    before = sys.stdout, sys.stderr
    with capture_output(echo=False):
        sys.stdout = io.StringIO()
    assert (sys.stdout, sys.stderr) == before
