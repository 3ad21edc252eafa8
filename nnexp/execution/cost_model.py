"""What jobs are expected to cost: from runs of the same kind that ended before, or else guessed from their sizes."""

from __future__ import annotations

import math
from typing import Any

from nnexp.config import Job
from nnexp.execution.task import Task
from nnexp.rundir import DoneRuns, PlannedRun

MANY_LANES = 0.75  # twice the lanes cost two to this power times as much


class CostModel:
    """Expected seconds: known where runs of a kind have ended, and otherwise guessed in proportion to those.

    Args:
        done: the jobs of the plan that ended before, which are what is known.
    """

    def __init__(self, done: DoneRuns) -> None:
        self.seconds: dict[str, float] = {}  # of one update of one lane, by the kind of job
        self.ratios: dict[str, float] = {}  # of what is known to what would have been guessed
        self._kinds: dict[str, tuple[str, float]] = {}
        for item, facts in done.items():
            self.learn(item, facts)

    def learn(self, item: PlannedRun, facts: dict[str, Any]) -> None:
        """Take note of a run that ended."""
        steps, lanes = facts.get("steps", 0), facts.get("lanes", 1)
        if steps:
            name, guessed = self._kind(item)
            self.seconds[name] = facts["seconds"] / steps / lanes**MANY_LANES
            self.ratios[name] = self.seconds[name] / guessed

    def of(self, task: Task) -> float:
        """Expected seconds of a task."""
        first = task.cohort[0]
        name, guessed = self._kind(first)
        stacked: float = len(task.cohort) ** MANY_LANES
        return self.seconds.get(name, guessed * self._ratio) * steps_of(first.job) * stacked

    @property
    def _ratio(self) -> float:
        return sum(self.ratios.values()) / len(self.ratios) if self.ratios else 1.0

    def is_known(self, task: Task) -> bool:
        """Whether its cost is no guess."""
        return self._kind(task.cohort[0])[0] in self.seconds

    def _kind(self, item: PlannedRun) -> tuple[str, float]:
        if item.fingerprint not in self._kinds:
            self._kinds[item.fingerprint] = cost_kind(item.job), guess_seconds(item.job)
        return self._kinds[item.fingerprint]


def steps_of(job: Job) -> int:
    return max(1, int(job.trainer.values.get("max_steps", 1)))


def cost_kind(job: Job) -> str:
    """What jobs have in common that cost the same for an update."""
    values = [(c.name, _sizes(c.values)) for c in (job.dataset, job.model)]
    return repr((values, job.trainer.name, job.trainer.values.get("batch_size"), job.options.precision))


def _sizes(values: dict[str, Any]) -> list[tuple[str, Any]]:
    """What is no real number decides shapes and operations."""
    return [(name, value) for name, value in values.items() if not isinstance(value, float)]


def guess_seconds(job: Job) -> float:
    """Seconds of one update by the numbers that the model and the batch are made with; only good to compare."""
    sizes = [*job.model.values.values(), job.trainer.values.get("batch_size")]
    product = math.prod(size for size in sizes if type(size) is int and size > 1)
    return 5e-4 * (1 + product / 1e4)
