"""Progress of a sweep in one line: done, failed, left, time to go, best so far."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from nnexp.base import open_display, print_err, shorten
from nnexp.execution.cost_model import CostModel, steps_of
from nnexp.execution.task import Task
from nnexp.fit import DRAW_SECONDS, FIRST_LINE_SECONDS, LINE_SECONDS
from nnexp.rundir import PlannedRun

FEWEST_DONE = 0.02  # before the time to go is told
BEST = (("val/accuracy", max), ("val/loss", min))  # the first of these that a run has


class SweepProgress:
    """Counts runs and shows them: a line that is redrawn on a terminal, and elsewhere a line every few seconds.

    Args:
        num_jobs: of the sweep.
        waiting: what is still to be trained, and not in training.
        quiet: show nothing.
    """

    def __init__(self, num_jobs: int, waiting: Collection[Task], costs: CostModel, quiet: bool) -> None:
        self.num_jobs, self.waiting, self.costs, self.quiet = num_jobs, waiting, costs, quiet
        self.num_done = self.num_failed = self.num_diverged = 0
        self.best: tuple[str, float, str] | None = None
        self.tasks_done: list[Task] = []
        self.parts: dict[Task, float] = {}  # of tasks in training, how much of each is done
        self.began = time.monotonic()
        self._next_line = self.began + FIRST_LINE_SECONDS
        self._told = ""
        self._display = open_display(quiet=quiet)
        if self._display is not None:
            self._next_line = self.began

    def step(self, task: Task, step: int) -> None:
        """Record the step that a task has reached."""
        if not self.parts and not self.tasks_done:  # what comes before, imports above all, is no measure of the rest
            self.began = time.monotonic()
        self.parts[task] = min(1.0, step / steps_of(task.cohort[0].job))

    def over(self, task: Task, *, is_done: bool = True) -> None:
        """Record that a task has finished."""
        self.parts.pop(task, None)
        if is_done:
            self.tasks_done.append(task)

    def count(self, planned: PlannedRun, facts: dict[str, Any]) -> None:
        """Count a run that has ended, in this command or before it."""
        status = facts["status"]
        is_good = status == "finished"
        self.num_done += is_good
        self.num_failed += status == "failed"
        self.num_diverged += status == "diverged"
        metrics = facts.get("metrics", {})
        for name, better in BEST:
            value = metrics.get(name)
            if is_good and value is not None and (self.best is None or self.best[0] == name):
                if self.best is None or better(value, self.best[1]) != self.best[1]:
                    self.best = (name, value, planned.job.label)
                break

    @property
    def line(self) -> str:
        """The counts of jobs by how they ended, the time to go and the best result, as one line."""
        left = self.num_jobs - self.num_done - self.num_failed - self.num_diverged
        parts = [f"{self.num_done}/{self.num_jobs} done", f"{self.num_failed} failed"]
        parts += [f"{self.num_diverged} diverged"] if self.num_diverged else []
        parts.append(f"{left} left")
        seconds = self._seconds_left()
        if left and seconds is not None:
            parts.append(f"{format_duration(seconds)} to go")
        if self.best is not None:
            name, value, label = self.best
            parts.append(f"best {name} {value:.4g} ({shorten(label, 40)})")
        return ", ".join(parts)

    def _seconds_left(self) -> float | None:
        """Estimate from the share of expected cost that is done; None while too little is done to tell."""
        in_work = [(self.costs.of(task), part) for task, part in self.parts.items()]
        done = sum(map(self.costs.of, self.tasks_done)) + sum(cost * part for cost, part in in_work)
        left = sum(map(self.costs.of, self.waiting)) + sum(cost * (1 - part) for cost, part in in_work)
        if done <= FEWEST_DONE * (done + left):
            return None
        return (time.monotonic() - self.began) * left / done

    def show(self) -> None:
        """Show the line, if it is time for it."""
        if self.quiet or time.monotonic() < self._next_line:
            return
        self._next_line = time.monotonic() + (LINE_SECONDS if self._display is None else DRAW_SECONDS)
        line = self.line
        if self._display is not None:
            self._display.draw(line)
        elif line != self._told:
            print_err(line)
        self._told = line

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Print a message above the line."""
        if not self.quiet or is_error:
            print_err(text)

    def close(self) -> None:
        """Close the display; where lines are printed one by one, print the last."""
        if self._display is not None:
            self._display.close()
        elif self._told and self.line != self._told:
            self.say(self.line)


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units: 3 h 20 min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((place for place, (number, _) in enumerate(units) if number), len(units) - 1)
    return " ".join(f"{number} {unit}" for number, unit in units[first : first + 2] if number or unit == "s")
