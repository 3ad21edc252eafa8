"""Progress of training: a bar on a terminal, and elsewhere a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from nnexp.base import open_display, print_err
from nnexp.rundir import Rows

if TYPE_CHECKING:
    from rich.progress import Progress

    from nnexp.base import LiveDisplay

DRAW_SECONDS = 0.25
MIN_BAR_COLUMNS = 80  # a narrower terminal has a line without a bar
LINE_SECONDS = 10.0
FIRST_LINE_SECONDS = 2.0
SHOW_SECONDS = 0.5


class ProgressListener(Protocol):
    """Receiver of progress; called at the end of a chunk, never in the hot path."""

    def show(self, step: int, rows: Rows) -> None:
        """Show the newest rows of a lane."""

    def say(self, text: str) -> None:
        """Show a message."""

    def ended(self, number: int) -> None:
        """Note that the job of this number has ended; its run.json has the status."""


class ProgressSender:
    """Sends progress to the process of the command.

    Args:
        send: is called with an event, `step`, `message` or `run_ended`, and its content.
    """

    def __init__(self, send: Callable[[str, Any], None]) -> None:
        self.send = send
        self._next_show = 0.0

    def show(self, step: int, _rows: Rows) -> None:
        """Send the step, at most every half second."""
        if time.monotonic() >= self._next_show:
            self._next_show = time.monotonic() + SHOW_SECONDS
            self.send("step", step)

    def say(self, text: str) -> None:
        """Send a message."""
        self.send("message", text)

    def ended(self, number: int) -> None:
        """Send the number of the job that has ended."""
        self.send("run_ended", number)


class ProgressBar:
    """Progress of one job: a bar on a terminal, and elsewhere a line every few seconds; redrawn at the end of a chunk.

    Args:
        label: what is trained.
        max_steps: its number of updates.
        quiet: show nothing.
    """

    def __init__(self, label: str, max_steps: int, quiet: bool = False) -> None:
        self.label, self.max_steps, self.quiet = label, max_steps, quiet
        self._last: dict[str, float] = {}
        self._display = open_display(quiet=quiet)
        self._next_show = time.monotonic() + FIRST_LINE_SECONDS
        if self._display is not None:
            self._bar = make_bar(label, max_steps)
            self._draw(self._display, 0)

    def show(self, step: int, rows: Rows) -> None:
        """Show the newest row, if it is time."""
        row = rows.row(rows.last_step)
        self._last |= {name: row[name] for name in ("train/loss", "val/accuracy") if name in row}
        if self.quiet or time.monotonic() < self._next_show:
            return
        if self._display is not None:
            self._draw(self._display, step)
        else:
            self._next_show = time.monotonic() + LINE_SECONDS
            print_err(self._line(step))

    def _draw(self, display: LiveDisplay, step: int) -> None:
        self._next_show = time.monotonic() + DRAW_SECONDS
        if display.console.width < MIN_BAR_COLUMNS:
            display.draw(self._line(step))
            return
        numbers = "  ".join(f"{name.rpartition('/')[2]} {value:.3g}" for name, value in self._last.items())
        task = self._bar.tasks[0]
        speed = f"{task.speed:,.0f}/s" if task.speed else ""
        self._bar.update(task.id, completed=step, numbers=numbers, speed=speed)
        display.draw(self._bar)

    def _line(self, step: int) -> str:
        numbers = [f"{name} {value:.3g}" for name, value in self._last.items()]
        return "  ".join([self.label, f"step {step}/{self.max_steps}", *numbers])

    def say(self, text: str) -> None:
        """Print a message above the bar."""
        if not self.quiet:
            print_err(f"{self.label}: {text}")

    def ended(self, number: int) -> None:
        """Do nothing: there is one job."""

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self._display is not None:
            self._display.close()


def make_bar(label: str, max_steps: int) -> Progress:
    """Return a bar, to be drawn by a display: it is not started itself."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    bar = Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(overflow="ellipsis")),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}", markup=False),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[numbers]}", markup=False),
    )
    bar.add_task(label, total=max_steps, numbers="", speed="")
    return bar
