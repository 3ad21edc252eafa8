"""How far training is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from tqdm import tqdm

from nnexp.base import print_err
from nnexp.rundir import Rows

tqdm.set_lock(threading.RLock())  # its own is one of processes, which a worker that is killed leaves in the system
LINE_SECONDS = 10.0
FIRST_LINE_SECONDS = 2.0
SHOW_SECONDS = 0.5


class ProgressListener(Protocol):
    """Who is told how training goes. Nothing of it is in the hot path."""

    def show(self, step: int, rows: Rows) -> None:
        """A chunk of a lane is recorded."""

    def say(self, text: str) -> None:
        """Something worth knowing."""

    def ended(self, number: int) -> None:
        """The job of this number has ended: its run.json says how."""


class ProgressSender:
    """Passes on how far training is.

    Args:
        send: is given `step`, `say` or `ended`, with what there is to say.
    """

    def __init__(self, send: Callable[[str, Any], None]) -> None:
        self.send = send
        self._next_show = 0.0

    def show(self, step: int, _rows: Rows) -> None:
        if time.monotonic() >= self._next_show:
            self._next_show = time.monotonic() + SHOW_SECONDS
            self.send("step", step)

    def say(self, text: str) -> None:
        self.send("say", text)

    def ended(self, number: int) -> None:
        self.send("ended", number)


class ProgressBar:
    """Shown at the end of a chunk, so never more than a few times a second, and never in the hot path.

    Args:
        label: what is trained.
        max_steps: its number of updates.
        quiet: show nothing.
    """

    def __init__(self, label: str, max_steps: int, quiet: bool = False) -> None:
        self.label, self.max_steps, self.quiet = label, max_steps, quiet
        self._next_line = time.monotonic() + FIRST_LINE_SECONDS
        is_terminal = sys.stderr.isatty() and not quiet
        self._bar = None
        if is_terminal:
            self._bar = tqdm(total=max_steps, desc=label, unit="step", leave=False, mininterval=0.1)
        self._last: dict[str, float] = {}

    def show(self, step: int, rows: Rows) -> None:
        """Tell of the newest row."""
        row = rows.row(rows.last_step)
        self._last |= {name: row[name] for name in ("train/loss", "val/accuracy") if name in row}
        if self._bar is not None:
            short = {name.rpartition("/")[2]: f"{value:.3g}" for name, value in self._last.items()}
            self._bar.set_postfix(short, refresh=False)
            self._bar.update(step - self._bar.n)
        elif not self.quiet and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            numbers = "  ".join(f"{name} {value:.3g}" for name, value in self._last.items())
            print_err(f"{self.label}  step {step}/{self.max_steps}  {numbers}")

    def say(self, text: str) -> None:
        """Tell something once."""
        if not self.quiet:
            print_err(f"{self.label}: {text}")

    def ended(self, number: int) -> None:
        """Nothing: there is one job."""

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
