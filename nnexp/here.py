"""Tasks trained in the process of the command, one after another: for a single job, and for a debugger."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from nnexp.describe import describe
from nnexp.heap import kept
from nnexp.pool import Heard
from nnexp.progress import Progress, Told
from nnexp.registry import Registry
from nnexp.stop import Stop
from nnexp.task import Task, train

if TYPE_CHECKING:
    from nnexp.datasets import Datasets


class Here:
    """What a pool is, without a process of its own for each task.

    Args:
        progress: of a single job; of a sweep `heard` is told.
    """

    def __init__(self, heard: Heard, registry: Registry, stop: Stop, progress: Progress | None) -> None:
        self.heard, self.registry, self.stop, self.progress = heard, registry, stop, progress
        self.datasets: Datasets | None = None
        self.size, self.num_busy = 1, 0

    def start(self, task: Task) -> None:
        """Have a task trained, to its end."""
        with kept("nnexp.fit"):
            import nnexp.fit  # noqa: F401  # it is imported here, where what it makes is kept
            from nnexp.datasets import Datasets
        self.datasets = self.datasets or Datasets()
        watch = self.progress or Told(partial(self.heard, task))
        over: dict[str, Any] = {}
        try:
            over["left_out"] = train(task, self.registry, self.stop, watch, self.datasets, echo=True)
        except BaseException as error:
            if self.stop.requested and isinstance(error, KeyboardInterrupt):
                raise
            over["error"] = describe(error)
        self.heard(task, "over", over)

    def listen(self, seconds: float) -> None:
        """Nothing: all has been said."""

    def ask(self) -> None:
        """Nothing: signals are heard here."""

    def close(self) -> None:
        """Nothing is left."""
        if self.progress is not None:
            self.progress.close()
