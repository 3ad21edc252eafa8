"""What is to be trained next: the tasks of a plan, by their expected cost, and what becomes of those that failed."""

from __future__ import annotations

from collections import Counter, deque

from nnexp.execution.cost_model import CostModel
from nnexp.execution.task import Task
from nnexp.rundir import Cohort, PlannedRun

FEWEST_LANES = 8  # a stack of fewer is hardly faster than they are one by one


class TaskQueue:
    """Tasks that wait.

    Args:
        left: of each cohort of the plan, what is to be trained.
        size: how many tasks may be in work at once.
        retries: how often a run that failed is tried again.
    """

    def __init__(self, left: list[Cohort], size: int, retries: int, costs: CostModel) -> None:
        self.retries = retries
        self.tried: Counter[int] = Counter()
        self.busy: list[Task] = []
        tasks = split_large_tasks([Task(lanes) for lanes in left], size, costs)
        if size > 1:  # the longest first, so that at the end no core waits long for another
            tasks.sort(key=costs.of, reverse=True)
        self.waiting = deque(tasks)

    def next(self) -> Task | None:
        return self.waiting.popleft() if self.waiting else None

    def halve(self, lanes: Cohort) -> None:
        """What is left of a task whose process died goes on in halves, until the cause is alone."""
        middle = len(lanes) // 2
        self.waiting.extendleft(Task(half) for half in (lanes[middle:], lanes[:middle]))

    def retry(self, planned: PlannedRun) -> bool:
        """Try a run that failed once more, where it is to be tried."""
        self.tried[planned.number] += 1
        if self.tried[planned.number] > self.retries:
            return False
        planned.retry_statuses = (*planned.retry_statuses, "failed")
        self.waiting.append(Task([planned]))
        return True

    def wait_for(self, task: Task) -> None:
        """Look again later for runs that another process has now."""
        self.busy.append(task)

    def look(self) -> Cohort:
        """Those that another process has ended meanwhile; what it let go of is trained here."""
        ended: Cohort = []
        busy, self.busy = self.busy, []
        for task in busy:
            left = [item for item in task.cohort if not item.is_done]
            ended += [item for item in task.cohort if item not in left]
            held = [item for item in left if item.run.is_locked]
            free = [item for item in left if item not in held]
            self.busy += [Task(held)] if held else []
            self.waiting += [Task(free)] if free else []
        return ended


def split_large_tasks(tasks: list[Task], size: int, costs: CostModel) -> list[Task]:
    """Large cohorts in parts, which changes no number, while there are workers without a task."""
    tasks = list(tasks)
    while tasks and len(tasks) < size:
        largest = max((task for task in tasks), key=lambda task: (len(task.cohort) >= 2 * FEWEST_LANES, costs.of(task)))
        if len(largest.cohort) < 2 * FEWEST_LANES or not largest.cohort[0].job.options.stack:
            break
        at = tasks.index(largest)
        tasks[at : at + 1] = [Task(largest.cohort[part::2]) for part in (0, 1)]
    return tasks
