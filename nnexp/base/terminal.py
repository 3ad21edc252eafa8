"""Tables and lines that are redrawn in place, by rich. Import it only when something is shown: rich takes a while."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from nnexp.base.columns import is_numeric

GAP = 2  # between columns
MIN_WIDTH = 16  # of a folded column
UNBOUNDED = 1_000_000  # columns


class PlainConsole(Console):
    """A console that shows text as it is ([x], :x: and http://x have no meaning), and never ends the process."""

    def __init__(self, file: TextIO, *, width: int | None = None) -> None:
        super().__init__(
            file=file,
            width=width,
            force_terminal=True,
            force_jupyter=False,
            soft_wrap=width is None,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def show_cursor(self, show: bool = True) -> bool:
        """Do nothing: a command that is killed or suspended would leave the cursor hidden."""
        return False

    def on_broken_pipe(self) -> None:
        """Raise the error again, where rich would exit."""
        raise


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Return the table of `align` for the terminal on stdout."""
    table, min_width = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0)), -GAP
    for column in zip(*rows, strict=True):
        width = max(map(cell_len, column))
        if is_numeric(column):
            table.add_column(column[0], justify="right", no_wrap=True)
        else:
            width = min(width, MIN_WIDTH)
            table.add_column(column[0], min_width=width, overflow="fold")
        min_width += width + GAP
    for row in rows[1:]:
        table.add_row(*row)
    columns = shutil.get_terminal_size().columns
    width = columns if min_width <= columns else UNBOUNDED  # the terminal wraps what cannot be folded into it
    console = PlainConsole(io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n"))


class LiveDisplay:
    """Content at the bottom of the terminal on stderr, redrawn only when told: no thread takes time from training.

    As long as it is open, what is printed to stderr (and to stdout, where that is a terminal too) passes through it,
    a line at a time, and appears above it. An error of the terminal closes the display and stops nothing else.
    """

    def __init__(self) -> None:
        terminal = getattr(sys.stderr, "terminal", sys.stderr)  # not the log of a run
        self.console = PlainConsole(terminal)
        is_stdout_too = sys.stdout.isatty()
        self._live = Live(console=self.console, auto_refresh=False, transient=True, redirect_stdout=is_stdout_too)
        with suppress(OSError, ValueError):
            self._live.start()

    def draw(self, content: RenderableType) -> None:
        """Show content in place of what was drawn before; text is folded to the width of the terminal."""
        if isinstance(content, str):
            content = Text(content, no_wrap=False, overflow="fold")
        if self._live.is_started:
            try:
                self._live.update(content, refresh=True)
            except (OSError, ValueError):  # the terminal is gone
                self.close()

    def close(self) -> None:
        """Remove what was drawn, and put the streams back."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()  # a last line without its end
        with suppress(OSError, ValueError):
            self._live.stop()
