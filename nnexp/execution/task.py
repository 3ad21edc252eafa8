"""Lanes that are handed out to be trained together: what they are, as plain data, and their training under lock."""

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

STOP = b"stop"  # asks the process of a task to end at its next checkpoint


@dataclass(eq=False)
class Task:
    """Some lanes of a cohort."""

    cohort: Cohort

    def plain(self, *, with_runs: bool = True) -> dict[str, Any]:
        """Numbers, text, lists and dictionaries. The run directories must be there, unless they are not needed."""
        lanes = [
            {"job": asdict(p.job), "fingerprint": p.fingerprint, "number": p.number, "retry_statuses": p.retry_statuses}
            | {"path": str(p.run.path) if with_runs else None, "in_cohort": p.in_cohort, "probes": p.probes}
            for p in self.cohort
        ]
        return {"lanes": lanes}

    @staticmethod
    def of_plain(plain: dict[str, Any]) -> Task:
        cohort = []
        for lane in plain["lanes"]:
            run = Run(Path(lane["path"])) if lane["path"] else None
            facts = {name: lane[name] for name in ("fingerprint", "number", "retry_statuses", "in_cohort", "probes")}
            cohort.append(PlannedRun(_job(lane["job"]), found=run, **facts))
        return Task(cohort)


def _job(plain: dict[str, Any]) -> Job:
    choices = {kind: PluginConfig(**plain[kind]) for kind in PARTS}
    probes = tuple(PluginConfig(**each) for each in plain["probes"])
    return Job(**{**plain, **choices, "probes": probes, "options": JobOptions(**plain["options"])})


def train_task(
    task: Task,
    registry: Registry,
    stop: StopRequest,
    watch: ProgressListener,
    datasets: DatasetCache,
    *,
    share: float = 1.0,
    echo: bool,
) -> dict[int, tuple[bool, str]]:
    """Train the lanes that are not done, and have probes look into those that are trained.

    Gives, by number, why others were left out, and whether a process has them.

    Args:
        share: of the free memory, the part that these lanes may take.
        echo: show what plugins print, and not only keep it in log.txt.
    """
    from nnexp.fit import CohortFit

    left_out: dict[int, tuple[bool, str]] = {}
    held: Cohort = []
    try:
        for planned in task.cohort:
            try:
                planned.run.lock()
                held.append(planned)
            except (RecordError, OSError) as error:
                left_out[planned.number] = (planned.run.is_locked, str(error))
        for planned in held:
            planned.run.on_end = lambda number=planned.number: watch.ended(number)
        left = [planned for planned in held if not planned.is_done]  # another process may just have finished one
        if left and (reason := _change(left[0], registry)):
            return left_out | {planned.number: (False, reason) for planned in left}
        fit = CohortFit(registry=registry, stop=stop, progress=watch, datasets=datasets, share=share, echo=echo)
        trained = [planned for planned in left if planned.status == "finished"]
        if to_train := [planned for planned in left if planned not in trained]:
            fit.train(to_train, to_train[0].in_cohort)
        if trained:
            names = dict.fromkeys(name for planned in trained for name in planned.pending_probes(planned.facts()))
            watch.say(f"ended before; {', '.join(names)} see the last step of {plural(len(trained), 'run')}")
        for planned in trained:
            fit.observe(planned)
    finally:
        for planned in held:
            planned.run.unlock()
    return left_out


def _change(planned: PlannedRun, registry: Registry) -> str:
    """What to say where the code or a file is no longer what the command was planned with."""
    try:
        if job_fingerprint(planned.job, registry) == planned.fingerprint:
            return ""
        reason = "its code has changed since the command was given"
    except NnexpError as error:
        reason = str(error)
    return f"{reason}. Give the command again: it then is another job."
