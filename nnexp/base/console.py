"""Words for a person, on stderr. That nobody reads them any more stops no training."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence


def print_err(message: str) -> None:
    """One line, on the terminal also where stderr is kept in a run's log."""
    stream = getattr(sys.stderr, "terminal", sys.stderr)
    with contextlib.suppress(OSError, ValueError):  # a closed pipe, a full disk, a closed stream
        print(f"nnexp: {message}", file=stream, flush=True)


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


NUMBER = re.compile(r"-?[\d.,]+(e[-+]?\d+)?|nan|-?inf|")


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text in columns, the first row the head; columns of numbers to the right."""
    columns = []
    for column in zip(*rows, strict=True):
        width = max(map(len, column))
        is_number = all(NUMBER.fullmatch(cell) for cell in column[1:])
        columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in column])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))
