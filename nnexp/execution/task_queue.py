"""Queue of the tasks of a plan, longest first, and of the runs that another process holds."""

from __future__ import annotations

from collections import deque

from nnexp.execution.cost_model import CostModel
from nnexp.execution.task import Task
from nnexp.rundir import Cohort

MIN_LANES = 8  # a smaller stack is hardly faster than its lanes one by one


class TaskQueue:
    """Tasks that wait for a free worker, and tasks whose runs another process holds.

    Args:
        cohorts: the jobs to train.
        size: maximum number of tasks in training.
        costs: estimates the seconds of a task.

    Attributes:
        waiting: tasks in the order in which they are started.
        locked: tasks whose runs are locked by another process.
    """

    def __init__(self, cohorts: list[Cohort], size: int, costs: CostModel) -> None:
        self.locked: list[Task] = []
        tasks = split_large_tasks([Task(lanes) for lanes in cohorts], size, costs)
        if size > 1:  # the longest first, so that at the end no worker is idle for long
            tasks.sort(key=costs.of, reverse=True)
        self.waiting = deque(tasks)

    def next(self) -> Task | None:
        """Remove and return the first task, or None if none is waiting."""
        return self.waiting.popleft() if self.waiting else None

    def append(self, task: Task) -> None:
        """Add a task that is started last."""
        self.waiting.append(task)

    def prepend(self, *tasks: Task) -> None:
        """Add tasks that are started next, in this order."""
        self.waiting.extendleft(reversed(tasks))

    def waiting_jobs(self) -> set[int]:
        """Return the numbers of the jobs in waiting tasks."""
        return {item.number for task in self.waiting for item in task.cohort}

    def add_locked(self, task: Task) -> None:
        """Add a task whose runs another process holds; `poll_locked` checks them."""
        self.locked.append(task)

    def poll_locked(self) -> Cohort:
        """Return the runs that other processes have ended since; queue those that were unlocked before their end."""
        ended: Cohort = []
        tasks, self.locked = self.locked, []
        for task in tasks:
            remaining = [item for item in task.cohort if not item.is_done]
            ended += [item for item in task.cohort if item not in remaining]
            locked = [item for item in remaining if item.run.is_locked]
            unlocked = [item for item in remaining if item not in locked]
            self.locked += [Task(locked)] if locked else []
            self.waiting += [Task(unlocked)] if unlocked else []
        return ended


def split_large_tasks(tasks: list[Task], size: int, costs: CostModel) -> list[Task]:
    """Split large cohorts while there are fewer tasks than workers. Changes no number.

    Args:
        tasks: one for each cohort.
        size: number of workers.
        costs: estimates the seconds of a task; the most expensive is split first.
    """
    tasks = list(tasks)
    while tasks and len(tasks) < size:
        largest = max((task for task in tasks), key=lambda task: (len(task.cohort) >= 2 * MIN_LANES, costs.of(task)))
        if len(largest.cohort) < 2 * MIN_LANES or not largest.cohort[0].job.options.stack:
            break
        at = tasks.index(largest)
        tasks[at : at + 1] = [Task(largest.cohort[part::2]) for part in (0, 1)]
    return tasks
