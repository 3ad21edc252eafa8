"""Console output: messages on stderr, results on stdout, tables. A stream that cannot be written stops no training."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

if TYPE_CHECKING:
    from nnexp.base.terminal import LiveDisplay

MAX_FOLDED_ROWS = 500
NUMBER = re.compile(r"-?[\d.,]+(e[-+]?\d+)?|nan|-?inf|")


def print_err(message: str) -> None:
    """Print one line to stderr; to the terminal, even where stderr is captured in a run's log."""
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
    """Return a count with its noun: 1 job, 2 jobs."""
    return f"{number} {what}{'s' if number != 1 else ''}"


def print_out(text: str) -> None:
    """Print a result to stdout. If stdout cannot be written, say so on stderr and go on: the work itself is done."""
    try:
        print(text, flush=True)
    except OSError as error:
        print_err(f"{error.strerror} on stdout.")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_streams() -> None:
    """Open the null device in place of closed standard streams, so that no run file gets their descriptors."""
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

    On a terminal the head is bold and columns of text are folded to its width, by rich, which takes a millisecond a
    row: tables of more than `MAX_FOLDED_ROWS` rows, and all tables in a pipe, are neither folded nor coloured.

    >>> print(align([["name", "n"], ["a", "5"], ["long", "12"]]))
    name   n
    a      5
    long  12
    """
    if sys.stdout.isatty() and len(rows) <= MAX_FOLDED_ROWS:
        from nnexp.base.terminal import format_table

        return format_table(rows)
    columns = []
    for column in zip(*rows, strict=True):
        widths = list(map(_cells, column))
        full, is_right = max(widths), is_numeric(column)
        gaps = [" " * (full - width) for width in widths]
        columns.append([gap + cell if is_right else cell + gap for cell, gap in zip(column, gaps, strict=True)])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def is_numeric(column: Sequence[str]) -> bool:
    """Return whether all cells below the head of a column are numbers or empty."""
    return all(NUMBER.fullmatch(cell) for cell in column[1:])


def _cells(text: str) -> int:
    """Return how many cells of a terminal a text takes; Chinese, Japanese and Korean characters take two."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(letter) in "WF") for letter in text)
