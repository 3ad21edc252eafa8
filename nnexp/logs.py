"""What plugins print while a run is trained, kept in its log.txt."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from nnexp.record import Run

LOG = "log.txt"
_now: list[Sequence[Run]] = []  # whose turn it is, the innermost last


class Log(io.TextIOBase):
    """A stream into the log of the runs whose turn it is, or to the terminal where it is nobody's.

    Args:
        terminal: the stream that stood there before.
        echo: write to the terminal in any case.
    """

    def __init__(self, terminal: TextIO, echo: bool) -> None:
        self.terminal, self.echo = terminal, echo

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.echo and self.terminal.isatty()

    def fileno(self) -> int:
        return self.terminal.fileno()

    def write(self, text: str) -> int:
        runs = _now[-1] if _now else ()
        for run in runs:
            with contextlib.suppress(OSError):  # a full disk
                _append(run.path / LOG, text.encode(errors="replace"))
        if self.echo or not runs:
            self.terminal.write(text)
        return len(text)

    def flush(self) -> None:
        self.terminal.flush()


def _append(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, 0o666), "ab") as file:
        file.write(content)


@contextlib.contextmanager
def turn(runs: Sequence[Run]) -> Iterator[None]:
    """What is printed in the block belongs to these runs."""
    _now.append(runs)
    try:
        yield
    finally:
        _now.pop()


@contextlib.contextmanager
def logging(echo: bool) -> Iterator[None]:
    """In the block, standard output and errors go to the logs."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Log(before[0], echo), Log(before[1], echo)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
