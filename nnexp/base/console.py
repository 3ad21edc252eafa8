"""Console output: messages on stderr, results on stdout. A stream that cannot be written stops no training."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnexp.base.terminal import LiveDisplay


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and line breaks


def visible(text: str) -> str:
    """Return a text with control characters, which a terminal would obey, written as `\\x1b`."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def print_err(message: str) -> None:
    """Print one line to stderr; to the terminal, even where stderr is captured in a run's log."""
    stream = getattr(sys.stderr, "terminal", sys.stderr)
    with contextlib.suppress(OSError, ValueError):  # a closed pipe, a full disk, a closed stream
        print(f"nnexp: {visible(message)}", file=stream, flush=True)


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
