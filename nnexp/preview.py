"""sweep.dry_run: what a command would train, and about how long that takes. Nothing is written."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Sequence

from nnexp.cost import Costs
from nnexp.errors import cut
from nnexp.plan import Cohort, Planned
from nnexp.record import ENDED
from nnexp.registry import Registry
from nnexp.schedule import Schedule
from nnexp.table import align
from nnexp.tally import duration
from nnexp.task import Task

START_SECONDS = 3.0  # to import everything, once
TASK_SECONDS = 1.0  # to build and look at a cohort
TRY_SECONDS, ALL_TRIES_SECONDS = 0.3, 20.0


def preview(
    cohorts: list[Cohort], invalid: Sequence[tuple[str, str]], registry: Registry, size: int, *, timed: bool = True
) -> str:
    """A line for each job, one for each cohort that is to be trained, and the estimate.

    Args:
        size: workers.
        timed: try some updates of every kind of job of which no run is known.
    """
    planned = sorted((item for cohort in cohorts for item in cohort), key=lambda item: item.number)
    states = {item.number: state(item) for item in planned}
    counts = Counter(states.values())
    said = [f"{count} {name}" for name, count in counts.items()] + ([f"{len(invalid)} invalid"] if invalid else [])
    rows = [["job", "state", "steps"], *([i.job.label, states[i.number], _steps(i)] for i in planned)]
    rows += [[point, f"invalid: {cut(reason)}", ""] for point, reason in invalid]
    costs = Costs(planned)
    schedule = Schedule(cohorts, size, 0, costs)
    tasks = list(schedule.waiting)
    lines = [f"{len(planned)} jobs: {', '.join(said)}", align(rows)]
    if not tasks:
        return "\n".join([*lines, "nothing is to be trained."])
    if timed:
        _try(tasks, costs, registry)
    heads = ["cohort", "lanes", "about"]
    names = [" ".join(choice.name for choice in task.cohort[0].job.choices) for task in tasks]
    table = [[n, str(len(t.cohort)), duration(costs.of(t))] for n, t in zip(names, tasks, strict=True)]
    total = START_SECONDS + makespan([costs.of(task) + TASK_SECONDS for task in tasks], size)
    workers = f"{size} worker{'s'[: size > 1]}"
    return "\n".join([*lines, "", align([heads, *table]), f"about {duration(total)} with {workers}."])


def state(item: Planned) -> str:
    """What a command does with a job, in words."""
    if item.beside is not None:
        return "new, beside the old run"
    if item.status in ENDED:
        return item.status if item.is_done else f"{item.status}, to be tried again"
    if item.found is None or item.status == "new":
        return "new"
    return "in training elsewhere" if item.found.is_locked else "to resume"


def _steps(item: Planned) -> str:
    most = item.job.trainer.values.get("max_steps", 0)
    return f"{0 if item.found is None else item.found.read().get('steps', 0)}/{most}"


def makespan(costs: Sequence[float], size: int) -> float:
    """Seconds until tasks, handed out in this order, are all done."""
    ends = [0.0] * size
    for cost in costs:
        heapq.heapreplace(ends, ends[0] + cost)
    return max(ends)


def _try(tasks: Sequence[Task], costs: Costs, registry: Registry) -> None:
    """Time some updates of each kind of which no run is known, for as long as that is no work of its own."""
    began = time.monotonic()
    for task in tasks:
        if not costs.is_known(task) and time.monotonic() - began < ALL_TRIES_SECONDS:
            _time(task, costs, registry)


def _time(task: Task, costs: Costs, registry: Registry) -> None:
    from nnexp.fit import torch_device
    from nnexp.lane import Lane
    from nnexp.undisturbed import undisturbed

    item = task.cohort[0]
    job = item.job
    try:
        with undisturbed():
            lane = Lane(job, registry, torch_device(job.settings.device), lambda: False)
            lane.advance(min(2, lane.trainer.max_steps))
            began, start = time.perf_counter(), lane.step
            while time.perf_counter() - began < TRY_SECONDS and lane.step < lane.trainer.max_steps:
                lane.advance(min(lane.step + max(1, lane.step), lane.trainer.max_steps))
            facts = {"steps": lane.step - start, "seconds": time.perf_counter() - began}
    except Exception:  # what is wrong with it is told when it is trained
        return
    costs.learn(item, facts)
