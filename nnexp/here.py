"""Tasks trained in the process of the command, one after another: for a single job, and for a debugger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nnexp.heap import kept
from nnexp.pool import Heard
from nnexp.progress import Progress
from nnexp.registry import Registry
from nnexp.stop import Stop
from nnexp.task import Task, train

if TYPE_CHECKING:
    from nnexp.datasets import Datasets
    from nnexp.metrics import Rows


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
            import nnexp.fit  # noqa: F401
            from nnexp.datasets import Datasets
            from nnexp.writer import describe
        self.datasets = self.datasets or Datasets()
        watch = self.progress or _Told(self.heard, task)
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


class _Told:
    """Tells a sweep how far a task is."""

    def __init__(self, heard: Heard, task: Task) -> None:
        self.heard, self.task = heard, task

    def show(self, step: int, _rows: Rows) -> None:
        self.heard(self.task, "step", step)

    def say(self, text: str) -> None:
        self.heard(self.task, "say", text)

    def ended(self, number: int) -> None:
        self.heard(self.task, "ended", number)
