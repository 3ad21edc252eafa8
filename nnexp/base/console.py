"""Words for a person, on stderr. That nobody reads them any more stops no training."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnexp.base.terminal import LiveDisplay


def print_err(message: str) -> None:
    """One line, on the terminal also where stderr is kept in a run's log."""
    stream = getattr(sys.stderr, "terminal", sys.stderr)
    with contextlib.suppress(OSError, ValueError):  # a closed pipe, a full disk, a closed stream
        print(f"nnexp: {message}", file=stream, flush=True)


def open_display(*, quiet: bool = False) -> LiveDisplay | None:
    """Return a display on stderr; None where that is no terminal or one that cannot redraw a line, and if quiet."""
    if quiet or not sys.stderr.isatty() or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        return None
    from nnexp.base.terminal import LiveDisplay

    return LiveDisplay()


def plural(number: int, what: str) -> str:
    """1 job, 2 jobs."""
    return f"{number} {what}{'s' if number != 1 else ''}"


def print_out(text: str) -> None:
    """What was asked for, on stdout. Where it cannot be written, the work that it tells of is done all the same."""
    try:
        print(text, flush=True)
    except OSError as error:
        print_err(f"{error.strerror} on stdout.")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_streams() -> None:
    """Put the null device where stdin, stdout or stderr is closed, so that no run file takes its number."""
    while (handle := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(handle)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # open as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a plugin's message may hold any letter


def align(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of text as a table, the first row its head; columns of numbers are aligned to the right.

    Where stdout is a terminal, the head is bold and columns of text are folded to the terminal's width. Elsewhere
    nothing is folded.

    >>> print(align([["name", "n"], ["a", "5"], ["long", "12"]]))
    name   n
    a      5
    long  12
    """
    from nnexp.base.terminal import format_table

    return format_table(rows)
