"""Train jobs with nnexp, as a command does, and record the time and how they were trained."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from nnexp.base import NnexpError, StopRequest
from nnexp.config import Job
from nnexp.data import DatasetCache
from nnexp.execution import plan_cohorts
from nnexp.fit import CohortFit, ProgressBar
from nnexp.registry import Registry
from nnexp.rundir import Cohort


class Clock(StopRequest):
    """A stop request that records when Lightning starts training: that is when `listen` is called again."""

    def __init__(self) -> None:
        super().__init__()
        self.listen_times: list[float] = []

    def listen(self) -> None:
        """Install the signal handlers and record the time."""
        super().listen()
        self.listen_times.append(time.perf_counter())


class ChunkTimes(ProgressBar):
    """A silent progress bar that records the time at the end of each chunk, by step."""

    def __init__(self) -> None:
        super().__init__("", 0, quiet=True)
        self.times: dict[int, float] = {}

    def show(self, step: int, rows: Any) -> None:
        """Record the time at which `step` was reached."""
        self.times[step] = time.perf_counter()


@dataclass
class TimedTraining:
    """The measurements of trained jobs.

    Args:
        seconds: from the first update to the last sealed run directory.
        paths: how the jobs were trained (solo, stacked, compiled), from run.json.
        parameters: number of weights of one model.
        probing: time and counts of the last job's probes, from run.json.
        chunk_times: for each cohort, the time at the end of each chunk, by step.
    """

    seconds: float
    paths: set[str] = field(default_factory=set)
    parameters: int = 0
    probing: dict[str, Any] = field(default_factory=dict)
    chunk_times: list[dict[int, float]] = field(default_factory=list)


def train(jobs: list[Job], registry: Registry) -> TimedTraining:
    """Plan the jobs and train one cohort after another in this process.

    Raises NnexpError where a run does not finish, KeyboardInterrupt where a signal stopped training.
    """
    cohorts = plan_cohorts(jobs, registry)
    result, clock, datasets = TimedTraining(0.0), Clock(), DatasetCache()
    with clock.handling():
        first = len(clock.listen_times)
        for cohort in cohorts:
            progress = ChunkTimes()
            _train(cohort, CohortFit(registry=registry, stop=clock, progress=progress, datasets=datasets))
            result.chunk_times.append(progress.times)
    result.seconds = time.perf_counter() - clock.listen_times[first]
    if clock.requested:
        raise KeyboardInterrupt
    for record in [planned.run.read() for cohort in cohorts for planned in cohort]:
        if record["status"] != "finished":
            raise NnexpError(f"a run to be timed did not finish: {record['status']}: {record['error']}")
        result.paths.add(record["path"])
        result.parameters, result.probing = record["parameters"], record.get("probing", {})
    return result


def _train(cohort: Cohort, fit: CohortFit) -> None:
    for planned in cohort:
        planned.run.lock()
    fit.train(cohort)
    for planned in cohort:
        planned.run.unlock()
