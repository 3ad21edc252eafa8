"""Executor that trains tasks in the main process, one after another: for a single job, and for debuggers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from nnexp.base import StopRequest, frozen_import
from nnexp.execution.executor import EventHandler, Executor
from nnexp.execution.task import Task, train_task
from nnexp.fit import ProgressBar, ProgressSender
from nnexp.registry import Registry, describe_error

if TYPE_CHECKING:
    from nnexp.data import DatasetCache


class InProcessExecutor(Executor):
    """Trains a task to its end in `start`.

    Args:
        on_event: receives the events of tasks.
        registry: finds the plugins.
        stop: requested by a signal or by the sweep.
        progress: progress bar of a single job, or None in a sweep, where steps and messages are events.
    """

    def __init__(
        self, on_event: EventHandler, registry: Registry, stop: StopRequest, progress: ProgressBar | None
    ) -> None:
        super().__init__(1, on_event)
        self.registry, self.stop, self.progress = registry, stop, progress
        self.datasets: DatasetCache | None = None

    @property
    def num_busy(self) -> int:
        """Number of tasks in training: none outside `start`."""
        return 0

    def start(self, task: Task) -> None:
        """Train a task to its end."""
        with frozen_import("pytorch_lightning"):
            from nnexp.data import DatasetCache
            from nnexp.fit import CohortFit  # noqa: F401  # imported within the block, so that it is frozen
        self.datasets = self.datasets or DatasetCache()
        progress = self.progress or ProgressSender(partial(self.on_event, task))
        result: dict[str, Any] = {}
        try:
            result["left_out"] = train_task(task, self.registry, self.stop, progress, self.datasets, echo=True)
        except BaseException as error:
            if self.stop.requested and isinstance(error, KeyboardInterrupt):
                raise
            result["error"] = describe_error(error)
        self.on_event(task, "finished", result)

    def poll(self, seconds: float) -> None:
        """Do nothing: `start` has handled all events."""

    def request_stop(self) -> None:
        """Do nothing: `stop` is shared with the main loop."""

    def close(self) -> None:
        """Close the progress bar."""
        if self.progress is not None:
            self.progress.close()
