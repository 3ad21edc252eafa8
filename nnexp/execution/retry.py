"""Decides whether a failed run, or the lanes of a task whose process died, are trained again."""

from __future__ import annotations

from collections import Counter

from nnexp.base import StopRequest
from nnexp.execution.task import Task
from nnexp.execution.task_queue import TaskQueue
from nnexp.rundir import Cohort, PlannedRun


class RetryPolicy:
    """Requeues what failed.

    A failed run is retried up to `max_retries` times, from its last checkpoint. If the process of a task died, any of
    its lanes may be the cause: they are trained again in halves until a lane is alone, which then is a failed run.
    After a stop request nothing is trained again.

    Args:
        queue: receives the new tasks.
        max_retries: retries of one run (`sweep.retries`).
        stop: requested by a signal or by the sweep.
    """

    def __init__(self, queue: TaskQueue, max_retries: int, stop: StopRequest) -> None:
        self.queue, self.max_retries, self.stop = queue, max_retries, stop
        self.failures: Counter[int] = Counter()

    def retry_run(self, planned: PlannedRun) -> bool:
        """Count a failure of a run and requeue it; return False if it has used up its retries."""
        if self.stop.requested:
            return False
        self.failures[planned.number] += 1
        if self.failures[planned.number] > self.max_retries:
            return False
        planned.retry_statuses = (*planned.retry_statuses, "failed")
        self.queue.append(Task([planned]))
        return True

    def retry_in_halves(self, lanes: Cohort) -> bool:
        """Requeue the lanes of a task whose process died, as two tasks; return False for a single lane."""
        if len(lanes) < 2 or self.stop.requested:
            return False
        middle = len(lanes) // 2
        self.queue.prepend(Task(lanes[:middle]), Task(lanes[middle:]))
        return True

    def has_failed(self, planned: PlannedRun) -> bool:
        """Return True if a run has failed in this command."""
        return planned.number in self.failures
