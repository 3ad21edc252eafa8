"""Cost model: estimates the seconds of a task from runs of the same kind that ended, or from sizes in its job."""

from __future__ import annotations

import math
from typing import Any

from nnexp.config import Job
from nnexp.execution.task import Task
from nnexp.rundir import DoneRuns, PlannedRun

LANES_EXPONENT = 0.75  # n lanes in a stack cost n ** 0.75 times as much as one


class CostModel:
    """Estimates seconds: measured for kinds of jobs that have ended, otherwise guessed in proportion to those.

    Jobs are of one kind if their updates cost the same: see `cost_kind`.

    Args:
        done: jobs of the plan that ended before, with their run.json.
    """

    def __init__(self, done: DoneRuns) -> None:
        self.seconds: dict[str, float] = {}  # of one update of one lane, by kind of job
        self.ratios: dict[str, float] = {}  # measured seconds / guessed seconds, by kind of job
        self._kinds: dict[str, tuple[str, float]] = {}
        for item, facts in done.items():
            self.learn(item, facts)

    def learn(self, item: PlannedRun, facts: dict[str, Any]) -> None:
        """Update the model with the `steps`, `seconds` and `lanes` of a run that ended."""
        steps, lanes = facts.get("steps", 0), facts.get("lanes", 1)
        if steps:
            name, guess = self._kind(item)
            self.seconds[name] = facts["seconds"] / steps / lanes**LANES_EXPONENT
            self.ratios[name] = self.seconds[name] / guess

    def of(self, task: Task) -> float:
        """Return the expected seconds of a task."""
        first = task.cohort[0]
        name, guess = self._kind(first)
        lanes_factor: float = len(task.cohort) ** LANES_EXPONENT
        return self.seconds.get(name, guess * self._mean_ratio) * steps_of(first.job) * lanes_factor

    @property
    def _mean_ratio(self) -> float:
        return sum(self.ratios.values()) / len(self.ratios) if self.ratios else 1.0

    def is_measured(self, task: Task) -> bool:
        """Return True if the cost of a task was measured, not guessed."""
        return self._kind(task.cohort[0])[0] in self.seconds

    def _kind(self, item: PlannedRun) -> tuple[str, float]:
        """Return the kind of a job and the guessed seconds of one update."""
        if item.fingerprint not in self._kinds:
            self._kinds[item.fingerprint] = cost_kind(item.job), guess_seconds(item.job)
        return self._kinds[item.fingerprint]


def steps_of(job: Job) -> int:
    """Return the number of updates of a job, at least 1."""
    return max(1, int(job.trainer.values.get("max_steps", 1)))


def cost_kind(job: Job) -> str:
    """Return a key that is equal for jobs whose updates cost the same: same plugins, sizes and precision."""
    values = [(c.name, _sizes(c.values)) for c in (job.dataset, job.model)]
    return repr((values, job.trainer.name, job.trainer.values.get("batch_size"), job.options.precision))


def _sizes(values: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return all values but floats, which change neither shapes nor operations."""
    return [(name, value) for name, value in values.items() if not isinstance(value, float)]


def guess_seconds(job: Job) -> float:
    """Return a rough estimate of the seconds of one update: only good to compare jobs.

    It grows with the product of the model's integer parameters and the batch size.
    """
    sizes = [*job.model.values.values(), job.trainer.values.get("batch_size")]
    product = math.prod(size for size in sizes if type(size) is int and size > 1)
    return 5e-4 * (1 + product / 1e4)
