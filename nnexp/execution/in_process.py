"""Tasks trained in the process of the command, one after another: for a single job, and for a debugger."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from nnexp.base import StopRequest, frozen_import
from nnexp.execution.task import Task, train_task
from nnexp.execution.worker_pool import Heard
from nnexp.fit import ProgressBar, ProgressSender
from nnexp.registry import Registry, describe_error

if TYPE_CHECKING:
    from nnexp.data import DatasetCache


class InProcessExecutor:
    """What a pool is, without a process of its own for each task.

    Args:
        progress: of a single job; of a sweep `heard` is told.
    """

    def __init__(self, heard: Heard, registry: Registry, stop: StopRequest, progress: ProgressBar | None) -> None:
        self.heard, self.registry, self.stop, self.progress = heard, registry, stop, progress
        self.datasets: DatasetCache | None = None
        self.size, self.num_busy = 1, 0

    def start(self, task: Task) -> None:
        """Have a task trained, to its end."""
        with frozen_import("pytorch_lightning"):
            from nnexp.data import DatasetCache
            from nnexp.fit import CohortFit  # noqa: F401  # imported within the block, so that it is frozen
        self.datasets = self.datasets or DatasetCache()
        watch = self.progress or ProgressSender(partial(self.heard, task))
        over: dict[str, Any] = {}
        try:
            over["left_out"] = train_task(task, self.registry, self.stop, watch, self.datasets, echo=True)
        except BaseException as error:
            if self.stop.requested and isinstance(error, KeyboardInterrupt):
                raise
            over["error"] = describe_error(error)
        self.heard(task, "over", over)

    def listen(self, seconds: float) -> None:
        """Nothing: all has been said."""

    def ask(self) -> None:
        """Nothing: signals are heard here."""

    def close(self) -> None:
        """Nothing is left."""
        if self.progress is not None:
            self.progress.close()
