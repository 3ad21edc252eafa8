"""How far a sweep is, in one line: done, failed, left, time to go, best so far."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm

from nnexp.cost import Costs, steps_of
from nnexp.errors import cut
from nnexp.plan import Planned
from nnexp.progress import FIRST_LINE_SECONDS, LINE_SECONDS
from nnexp.task import Task
from nnexp.tell import tell

FEWEST_DONE = 0.02  # before the time to go is told
BEST = (("val/accuracy", max), ("val/loss", min))  # the first of these that a run has


class Tally:
    """Counts, and shows: one line that changes on a terminal, and elsewhere one now and then.

    Args:
        num_jobs: of the sweep.
        tasks: all that is to be trained.
        quiet: show nothing.
    """

    def __init__(self, num_jobs: int, tasks: list[Task], costs: Costs, quiet: bool) -> None:
        self.num_jobs, self.costs, self.quiet = num_jobs, costs, quiet
        self.num_done = self.num_failed = 0
        self.best: tuple[str, float, str] | None = None
        self.cost_left = sum(map(costs.of, tasks))
        self.cost_done = 0.0
        self.part: dict[Task, float] = {}
        self.began = time.monotonic()
        self._next_line = self.began + FIRST_LINE_SECONDS
        self._told = ""
        is_terminal = sys.stderr.isatty() and not quiet
        self._bar = tqdm(bar_format="{desc}", leave=False, dynamic_ncols=True) if is_terminal else None

    def step(self, task: Task, step: int) -> None:
        """A task has come so far."""
        self.part[task] = min(1.0, step / steps_of(task.cohort[0].job)) * self.costs.of(task)

    def over(self, task: Task) -> None:
        """A task is over."""
        self.part.pop(task, None)
        cost = self.costs.of(task)
        self.cost_done, self.cost_left = self.cost_done + cost, max(0.0, self.cost_left - cost)

    def count(self, planned: Planned, facts: dict[str, Any]) -> None:
        """A run has ended, now or before."""
        is_good = facts["status"] == "finished"
        self.num_done, self.num_failed = self.num_done + is_good, self.num_failed + (not is_good)
        metrics = facts.get("metrics", {})
        for name, better in BEST:
            value = metrics.get(name)
            if is_good and value is not None and (self.best is None or self.best[0] == name):
                if self.best is None or better(value, self.best[1]) != self.best[1]:
                    self.best = (name, value, planned.job.label)
                break

    @property
    def line(self) -> str:
        left = self.num_jobs - self.num_done - self.num_failed
        parts = [f"{self.num_done}/{self.num_jobs} done", f"{self.num_failed} failed", f"{left} left"]
        done = self.cost_done + sum(self.part.values())
        if left and done > FEWEST_DONE * (self.cost_done + self.cost_left):
            seconds = (time.monotonic() - self.began) * max(0.0, self.cost_left - sum(self.part.values())) / done
            parts.append(f"{duration(seconds)} to go")
        if self.best is not None:
            name, value, label = self.best
            parts.append(f"best {name} {value:.4g} ({cut(label, 40)})")
        return ", ".join(parts)

    def show(self) -> None:
        """The line, where it is time for it."""
        if self._bar is not None:
            self._bar.set_description_str(self.line)
        elif not self.quiet and time.monotonic() >= self._next_line and self.line != self._told:
            self._next_line, self._told = time.monotonic() + LINE_SECONDS, self.line
            tell(self.line)

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Something once, above the line."""
        if self.quiet and not is_error:
            return
        if self._bar is not None:
            self._bar.clear()
        tell(text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def duration(seconds: float) -> str:
    """In the two largest units: 3 h 20 min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((place for place, (number, _) in enumerate(units) if number), len(units) - 1)
    return " ".join(f"{number} {unit}" for number, unit in units[first : first + 2] if number or unit == "s")
