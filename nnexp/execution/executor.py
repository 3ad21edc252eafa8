"""Executor: trains the tasks of a plan and reports their events; the interface of both implementations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from nnexp.execution.task import Task

EventHandler = Callable[[Task, str, Any], None]


class Executor(ABC):
    """Trains at most `size` tasks at a time and passes their events to a handler, `on_event(task, kind, content)`:

    - `step`: the number of updates done; not more often than twice a second.
    - `message`: a line of console output.
    - `run_ended`: the number of a job; its run.json says how the run ended.
    - `finished`: the last event of a task, a dictionary with one key: `left_out` maps the number of each job that could
      not be trained to `(is_locked, reason)`; `error` has the type and message of an exception, or of the death of the
      process; `trial` has the steps and seconds of a trial.

    Args:
        size: maximum number of tasks in training.
        on_event: called in this process, from `start` and `poll`.
    """

    def __init__(self, size: int, on_event: EventHandler) -> None:
        self.size, self.on_event = size, on_event

    @property
    @abstractmethod
    def num_busy(self) -> int:
        """Number of tasks in training."""

    @abstractmethod
    def start(self, task: Task) -> None:
        """Start training a task, whose run directories exist.

        Raises:
            OSError, EOFError: if no process can be started for it.
        """

    @abstractmethod
    def poll(self, seconds: float) -> None:
        """Handle pending events; wait up to `seconds` for the first."""

    @abstractmethod
    def request_stop(self) -> None:
        """Ask all tasks to save a checkpoint and end."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; a task that is still in training is killed."""
