"""What plugins print while a run is trained, kept in its log.txt."""

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
MOST_PARTS = 1000  # of a line, before it is written
_now: list[Sequence[Run]] = []  # whose turn it is, the innermost last


class OutputLog(io.TextIOBase):
    """A stream into the log of the runs whose turn it is, or to the terminal where it is nobody's.

    Args:
        terminal: the stream that stood there before.
        echo: write to the terminal in any case.
    """

    def __init__(self, terminal: TextIO, echo: bool) -> None:
        self.terminal, self.echo = terminal, echo
        self._parts: list[str] = []

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.echo and self.terminal.isatty()

    def fileno(self) -> int:
        return self.terminal.fileno()

    @property
    def buffer(self) -> BinaryIO:
        """For plugins that write bytes."""
        return cast(BinaryIO, _Bytes(self))

    def write(self, text: str) -> int:
        """Kept until a line is whole, for each time a file is opened for each run."""
        if _now:
            self._parts.append(text)
            if "\n" in text or len(self._parts) > MOST_PARTS:
                self.settle()
        if self.echo or not _now:
            self.terminal.write(text)
        return len(text)

    def settle(self) -> None:
        """Write what waits, to those whose turn it still is."""
        if self._parts and _now:
            content = "".join(self._parts).encode(errors="replace")
            for run in _now[-1]:
                with contextlib.suppress(OSError):  # a full disk
                    _append(run.path / LOG, content)
        self._parts.clear()

    def flush(self) -> None:
        if self.echo:
            self.terminal.flush()


class _Bytes(io.RawIOBase):
    """The stream below, for bytes."""

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
def output_goes_to(runs: Sequence[Run]) -> Iterator[None]:
    """What is printed in the block belongs to these runs."""
    _settle()
    _now.append(runs)
    try:
        yield
    finally:
        _settle()
        _now.pop()


def _settle() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, OutputLog):
            stream.settle()


@contextlib.contextmanager
def capture_output(echo: bool) -> Iterator[None]:
    """In the block, standard output and errors go to the logs."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = OutputLog(before[0], echo), OutputLog(before[1], echo)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
