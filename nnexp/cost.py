"""What jobs are expected to cost: from runs of the same kind that ended before, or else guessed from their numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from nnexp.config import Job
from nnexp.plan import Planned
from nnexp.task import Task

MANY_LANES = 0.75  # twice the lanes cost two to this power times as much


class Costs:
    """Seconds, where runs of a kind are known, and otherwise numbers that are larger for larger jobs.

    Args:
        planned: the jobs of the plan; those that ended before are what is known.
    """

    def __init__(self, planned: Iterable[Planned]) -> None:
        self.seconds: dict[str, float] = {}  # of one update of one lane, by the kind of job
        for item in planned:
            if item.found is not None and item.is_done:
                self.learn(item.job, item.found.read())

    def learn(self, job: Job, facts: dict[str, Any]) -> None:
        """Take note of a run that ended."""
        steps, lanes = facts.get("steps", 0), facts.get("lanes", 1)
        if steps:
            self.seconds[kind(job)] = facts["seconds"] / steps / lanes**MANY_LANES

    def of(self, task: Task) -> float:
        """Expected seconds of a task, or a guess of how they compare."""
        job = task.cohort[0].job
        update = self.seconds.get(kind(job))
        stacked: float = len(task.cohort) ** MANY_LANES
        return (guess(job) if update is None else update) * steps_of(job) * stacked

    def is_known(self, task: Task) -> bool:
        return kind(task.cohort[0].job) in self.seconds


def steps_of(job: Job) -> int:
    return max(1, int(job.trainer.values.get("max_steps", 1)))


def kind(job: Job) -> str:
    """What jobs have in common that cost the same for an update."""
    values = [(c.name, _sizes(c.values)) for c in (job.dataset, job.model)]
    return repr((values, job.trainer.name, job.trainer.values.get("batch_size"), job.settings.precision))


def _sizes(values: dict[str, Any]) -> list[tuple[str, Any]]:
    """What is no real number decides shapes and operations."""
    return [(name, value) for name, value in values.items() if not isinstance(value, float)]


def guess(job: Job) -> float:
    """Seconds of one update by the numbers that the model and the batch are made with; only good to compare."""
    sizes = [*job.model.values.values(), job.trainer.values.get("batch_size")]
    product = math.prod(size for size in sizes if type(size) is int and size > 1)
    return 5e-4 * (1 + product / 1e4)
