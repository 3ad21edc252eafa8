"""Task: lanes of a cohort that an executor trains in one process, with their locks held."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnexp.base import NnexpError, RecordError, StopRequest, plural
from nnexp.config import Job, JobOptions, PluginConfig
from nnexp.fit import ProgressListener
from nnexp.registry import PARTS, Registry
from nnexp.rundir import Cohort, PlannedRun, Run, job_fingerprint

if TYPE_CHECKING:
    from nnexp.data import DatasetCache

STOP = b"stop"  # sent to the process of a task that shall save a checkpoint and end


@dataclass(eq=False)
class Task:
    """Lanes of a cohort that are trained in one process."""

    cohort: Cohort

    def to_dict(self, *, with_runs: bool = True) -> dict[str, Any]:
        """Return the task as plain numbers, strings, lists and dictionaries, for another process.

        Args:
            with_runs: include the paths of the run directories, which must exist.
        """
        lanes = [
            {"job": asdict(p.job), "fingerprint": p.fingerprint, "number": p.number, "retry_statuses": p.retry_statuses}
            | {"path": str(p.run.path) if with_runs else None, "in_cohort": p.in_cohort, "probes": p.probes}
            for p in self.cohort
        ]
        return {"lanes": lanes}

    @staticmethod
    def from_dict(content: dict[str, Any]) -> Task:
        """Return the task that `to_dict` described."""
        cohort = []
        for lane in content["lanes"]:
            run = Run(Path(lane["path"])) if lane["path"] else None
            facts = {name: lane[name] for name in ("fingerprint", "number", "retry_statuses", "in_cohort", "probes")}
            cohort.append(PlannedRun(_job_from_dict(lane["job"]), found=run, **facts))
        return Task(cohort)


def _job_from_dict(content: dict[str, Any]) -> Job:
    choices = {kind: PluginConfig(**content[kind]) for kind in PARTS}
    probes = tuple(PluginConfig(**each) for each in content["probes"])
    return Job(**{**content, **choices, "probes": probes, "options": JobOptions(**content["options"])})


def train_task(
    task: Task,
    registry: Registry,
    stop: StopRequest,
    progress: ProgressListener,
    datasets: DatasetCache,
    *,
    share: float = 1.0,
    echo: bool,
) -> dict[int, tuple[bool, str]]:
    """Train the lanes of a task that are not done, and run missing probes on those that are finished.

    Args:
        task: its run directories exist and are locked here.
        registry: finds the plugins.
        stop: requested by a signal or by the main process.
        progress: is notified of steps, messages and ends of runs.
        datasets: cache of datasets.
        share: fraction of the free memory that these lanes may take.
        echo: show the output of plugins on the console as well as in log.txt.

    Returns:
        `(is_locked, reason)` by number for the lanes that were left out: `is_locked` if another process has the run.
    """
    left_out: dict[int, tuple[bool, str]] = {}
    locked: Cohort = []
    try:
        for planned in task.cohort:
            try:
                planned.run.lock()
                locked.append(planned)
            except (RecordError, OSError) as error:
                left_out[planned.number] = (planned.run.is_locked, str(error))
        for planned in locked:
            planned.run.on_end = lambda number=planned.number: progress.ended(number)
        remaining = [planned for planned in locked if not planned.is_done]  # another process may have finished some
        if remaining and (reason := _describe_change(remaining[0], registry)):
            return left_out | {planned.number: (False, reason) for planned in remaining}
        _train_and_observe(remaining, registry, stop, progress, datasets, share, echo)
    finally:
        for planned in locked:
            planned.run.unlock()
    return left_out


def _train_and_observe(
    cohort: Cohort,
    registry: Registry,
    stop: StopRequest,
    progress: ProgressListener,
    datasets: DatasetCache,
    share: float,
    echo: bool,
) -> None:
    from nnexp.fit import CohortFit

    fit = CohortFit(registry=registry, stop=stop, progress=progress, datasets=datasets, share=share, echo=echo)
    finished = [planned for planned in cohort if planned.status == "finished"]
    if to_train := [planned for planned in cohort if planned not in finished]:
        fit.train(to_train, to_train[0].in_cohort)
    if finished:
        names = dict.fromkeys(name for planned in finished for name in planned.pending_probes(planned.facts()))
        progress.say(f"already complete; {', '.join(names)} observe the last step of {plural(len(finished), 'run')}")
    for planned in finished:
        fit.observe(planned)


def _describe_change(planned: PlannedRun, registry: Registry) -> str:
    """Return an error message if code or files of a job have changed since it was planned, otherwise an empty text."""
    try:
        if job_fingerprint(planned.job, registry) == planned.fingerprint:
            return ""
        reason = "its code has changed since the command was given"
    except NnexpError as error:
        reason = str(error)
    return f"{reason}. Give the command again to train it as a new job."
