"""sweep.dry_run: lists the jobs and cohorts that a command would train, with estimated times. Writes nothing."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from nnexp.base import align, plural, shorten
from nnexp.execution.cost_model import CostModel
from nnexp.execution.sweep_progress import format_duration
from nnexp.execution.task import Task
from nnexp.execution.task_queue import TaskQueue
from nnexp.execution.worker_executor import WorkerExecutor
from nnexp.registry import Registry
from nnexp.rundir import ENDED, Cohort, PlannedRun, done_runs, in_command_order, remaining_cohorts

START_SECONDS = 3.0  # imports
TASK_SECONDS = 1.0  # to build a cohort and check whether it can be stacked
TRY_SECONDS = 20.0


def dry_run_report(cohorts: list[Cohort], invalid: Sequence[tuple[str, str]], registry: Registry, size: int) -> str:
    """Return a table of the jobs with their states, a table of the cohorts to train, and the estimated total time.

    Args:
        cohorts: from `plan_cohorts`.
        invalid: (overrides, reason) of each job that was refused.
        registry: finds the plugins.
        size: number of workers.
    """
    planned = in_command_order(cohorts)
    states = {item.number: state(item) for item in planned}
    counts = Counter(states.values())
    said = [f"{count} {name}" for name, count in counts.items()] + ([f"{len(invalid)} invalid"] if invalid else [])
    rows = [["job", "state", "steps"], *([i.job.label, states[i.number], _steps(i)] for i in planned)]
    rows += [[point, f"invalid: {shorten(reason)}", ""] for point, reason in invalid]
    done = done_runs(planned)
    costs = CostModel(done)
    tasks = list(TaskQueue(remaining_cohorts(cohorts, done), size, costs).waiting)
    lines = [f"{plural(len(planned), 'job')}: {', '.join(said)}", align(rows)]
    if not tasks:
        return "\n".join([*lines, "nothing is to be trained."])
    wrong = _try(tasks, costs, registry, size)
    table = [["cohort", "lanes", "about", "first of them"]]
    for task in tasks:
        first = task.cohort[0].job
        about = f"fails: {wrong[task]}" if task in wrong else format_duration(costs.of(task))
        table.append([" ".join(c.name for c in first.parts), str(len(task.cohort)), about, first.label])
    total = START_SECONDS + makespan([costs.of(task) + TASK_SECONDS for task in tasks], size)
    return "\n".join([*lines, "", align(table), f"about {format_duration(total)} with {plural(size, 'worker')}."])


def state(item: PlannedRun) -> str:
    """Return the state of a job for the table: what a command would do with it."""
    if item.rerun_of is not None:
        return "new, beside the old run"
    status = item.status
    if status in ENDED:
        return f"{status}, to be tried again" if status in item.retry_statuses else status
    if item.found is None or status == "new":
        return "new"
    return "in training elsewhere" if item.found.is_locked else "to resume"


def _steps(item: PlannedRun) -> str:
    most = item.job.trainer.values.get("max_steps", 0)
    return f"{item.facts().get('steps', 0)}/{most}"


def makespan(costs: Sequence[float], size: int) -> float:
    """Return the seconds until all tasks are finished, if they are started in this order on `size` workers."""
    ends = [0.0] * size
    for cost in costs:
        heapq.heapreplace(ends, ends[0] + cost)
    return max(ends)


def _try(tasks: Sequence[Task], costs: CostModel, registry: Registry, size: int) -> dict[Task, str]:
    """Time a trial of each kind of job whose cost is not known, in worker processes, for `TRY_SECONDS` at most.

    Returns the error of each task whose trial failed.
    """
    wrong: dict[Task, str] = {}

    def on_event(task: Task, kind: str, content: Any) -> None:
        if kind == "finished" and "trial" in content:
            costs.learn(task.cohort[0], content["trial"])
        elif kind == "finished":
            wrong[task] = shorten(content["error"]["message"])

    executor = WorkerExecutor(size, on_event, registry, [])
    began, waiting = time.monotonic(), list(tasks)
    try:
        while (waiting or executor.num_busy) and time.monotonic() - began < TRY_SECONDS:
            while waiting and executor.num_busy < size:
                task = waiting.pop(0)
                if not costs.is_measured(task):
                    executor.start(task, is_trial=True)
            executor.poll(0.1)
    finally:
        executor.close()
    return wrong
