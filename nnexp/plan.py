"""Jobs -> cohorts: what is finished is left alone, what is left is grouped for training."""

from __future__ import annotations

from dataclasses import dataclass

from nnexp.config import Job
from nnexp.fingerprint import fingerprint
from nnexp.place import check_writable, index
from nnexp.record import ENDED, Index, Run, create, create_all, experiment_folder
from nnexp.registry import Registry


@dataclass
class Planned:
    """A job and its run directory, which is made when training begins."""

    job: Job
    fingerprint: str
    found: Run | None

    @property
    def is_done(self) -> bool:
        return self.found is not None and self.found.status in ENDED

    @property
    def run(self) -> Run:
        """The run directory, new where there was none."""
        if self.found is None:
            self.found = create(self.job, self.fingerprint)
        return self.found


Cohort = list[Planned]


def make_runs(cohort: Cohort) -> None:
    """Make the run directories that are not there, all at once; `run` tries again where one cannot be made."""
    missing = [item for item in cohort if item.found is None]
    made = create_all((item.job, item.fingerprint) for item in missing)
    for item in missing:
        item.found = made.get(item.fingerprint)


def plan(jobs: list[Job], registry: Registry) -> list[Cohort]:
    """Cohorts in the order of the jobs; a job given twice is trained once. Nothing is written or built.

    Raises ConfigError where a run cannot be made in the folder that its job names.
    """
    planned: dict[str, Planned] = {}
    indices: dict[str, Index] = {}
    for job in jobs:
        digits, root = fingerprint(job, registry), job.settings.runs
        if root not in indices:
            indices[root] = index(root)
        if digits not in planned:
            planned[digits] = Planned(job, digits, indices[root].find(digits))
    left = [item.job for item in planned.values() if not item.is_done]
    for root, folder in dict.fromkeys((job.settings.runs, experiment_folder(job)) for job in left):
        check_writable(root, folder)
    return [[item] for item in planned.values()]
