"""Capture what plugins print while a run trains, and append it to the log.txt of the run."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from nnexp.rundir.run import Run

LOG = "log.txt"
MAX_PARTS = 1000  # pieces of an unfinished line that are buffered
_active: list[Sequence[Run]] = []  # the runs that output goes to, of each nested `log_output_to`, innermost last


class OutputLog(io.TextIOBase):
    """A text stream that appends to the logs of the active runs, or passes on to the terminal if there are none.

    Args:
        terminal: the stream that this one replaces.
        echo: write to the terminal in any case.
    """

    def __init__(self, terminal: TextIO, echo: bool) -> None:
        self.terminal, self.echo = terminal, echo
        self._parts: list[str] = []

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Check whether output reaches a terminal."""
        return self.echo and self.terminal.isatty()

    def fileno(self) -> int:
        """Return the file descriptor of the terminal stream."""
        return self.terminal.fileno()

    @property
    def buffer(self) -> BinaryIO:
        """Binary stream to the same logs, as `sys.stdout.buffer` is."""
        return cast(BinaryIO, _BinaryOutputLog(self))

    def write(self, text: str) -> int:
        """Write text; for the logs it is buffered up to the end of a line, since each write opens a file per run."""
        if _active:
            self._parts.append(text)
            if "\n" in text or len(self._parts) > MAX_PARTS:
                self.flush_to_logs()
        if self.echo or not _active:
            self.terminal.write(text)
        return len(text)

    def flush_to_logs(self) -> None:
        """Append buffered text to the logs of the active runs; a log that cannot be written is skipped."""
        if self._parts and _active:
            content = "".join(self._parts).encode(errors="replace")
            for run in _active[-1]:
                with contextlib.suppress(OSError):  # a full disk
                    _append(run.path / LOG, content)
        self._parts.clear()

    def flush(self) -> None:
        """Flush the terminal stream if output is echoed."""
        if self.echo:
            self.terminal.flush()


class _BinaryOutputLog(io.RawIOBase):
    def __init__(self, log: OutputLog) -> None:
        self.log = log

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.log.write(bytes(content).decode(errors="replace"))
        return len(content)


def _append(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, 0o666), "ab") as file:
        file.write(content)


@contextlib.contextmanager
def log_output_to(runs: Sequence[Run]) -> Iterator[None]:
    """Append what is printed inside the block to the logs of these runs; needs an enclosing `capture_output`.

    with capture_output(echo=False), log_output_to([run]):
        print("goes to log.txt")
    """
    _flush_to_logs()
    _active.append(runs)
    try:
        yield
    finally:
        _flush_to_logs()
        _active.pop()


def _flush_to_logs() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, OutputLog):
            stream.flush_to_logs()


@contextlib.contextmanager
def capture_output(echo: bool) -> Iterator[None]:
    """Replace standard output and standard error by `OutputLog` inside the block.

    Args:
        echo: print to the terminal as well.
    """
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = OutputLog(before[0], echo), OutputLog(before[1], echo)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
