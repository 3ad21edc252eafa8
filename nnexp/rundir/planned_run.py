"""Jobs with their run directories: which are done, which remain to be trained, in which cohorts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nnexp.base import RecordError
from nnexp.config import Job
from nnexp.rundir.create_run_dir import create_run, create_runs
from nnexp.rundir.run import ENDED, Run


@dataclass(eq=False)
class PlannedRun:
    """A job and its run directory, which is created when training begins.

        for item in in_command_order(plan_cohorts(jobs, registry)):
            print(item.job.label, item.status)

    Args:
        job: the job.
        fingerprint: its fingerprint, 64 hexadecimal digits.
        found: the newest run of this fingerprint, or None.
        number: index of the job in the command.
        retry_statuses: statuses in `ENDED` that do not count as done: such a run is trained again.
        rerun_of: the ended run that `rerun=true` creates a second run for.
        in_cohort: whether the command has other jobs of the same cohort, done or not. Decides solo or stacked, so that
            numbers depend neither on how many jobs remain nor on how many lanes fit into a stack.
        failure: the reason why this command could not train the job at all; empty if there is none.
        probes: fingerprints of the probes that the finished run must have, by name.
    """

    job: Job
    fingerprint: str
    found: Run | None
    number: int = 0
    retry_statuses: tuple[str, ...] = ()
    rerun_of: Run | None = None
    in_cohort: bool = False
    failure: str = ""
    probes: dict[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return the content of run.json, or an empty dictionary if it is missing or damaged."""
        with contextlib.suppress(RecordError):
            if self.found is not None:
                return self.found.read()
        return {}

    def final_facts(self) -> dict[str, Any] | None:
        """Return the content of run.json if the run is done, or None if training or probing remains."""
        facts = self.facts()
        status = facts.get("status")
        remains = status not in ENDED or status in self.retry_statuses
        remains = remains or (status == "finished" and bool(self.pending_probes(facts)))
        return None if remains else facts

    def pending_probes(self, facts: dict[str, Any]) -> list[str]:
        """Return the probes without an observation of the last step by their present code and values.

        Args:
            facts: content of run.json.
        """
        looked = facts.get("looked", {})
        return [name for name, made_by in self.probes.items() if looked.get(name) != made_by]

    def note_probe_failure(self, reason: str) -> None:
        """Add a note to a finished run that its pending probes could not run; its status stays `finished`."""
        note = f"probes could not be run on the finished run: {reason}"
        self.run.write(status="finished", notes=[*dict.fromkeys([*self.facts().get("notes", []), note])])

    @property
    def status(self) -> str:
        """Status in run.json; `new` without a run directory, `unreadable` if run.json is damaged."""
        return str(self.facts().get("status", "new" if self.found is None else "unreadable"))

    @property
    def is_done(self) -> bool:
        """True if neither training nor probing remains."""
        return self.final_facts() is not None

    @property
    def point(self) -> dict[str, str]:
        """The job's overrides, by key."""
        return dict(text.split("=", 1) for text in self.job.overrides)

    @property
    def run(self) -> Run:
        """The run directory, created at first access.

        Raises:
            RecordError: another job occupies the name.
            OSError: the directory cannot be written.
        """
        if self.found is None:
            self.found = create_run(self.job, self.fingerprint, self.rerun_of)
        return self.found


Cohort = list[PlannedRun]
DoneRuns = dict[PlannedRun, dict[str, Any]]  # each with the content of its run.json, which is read only once


def in_command_order(cohorts: list[Cohort]) -> Cohort:
    """Return all jobs of a plan in the order of the command."""
    return sorted((item for cohort in cohorts for item in cohort), key=lambda item: item.number)


def done_runs(planned: Cohort) -> DoneRuns:
    """Return the jobs that are done, with the content of their run.json."""
    return {item: facts for item in planned if (facts := item.final_facts()) is not None}


def remaining_cohorts(cohorts: list[Cohort], done: DoneRuns) -> list[Cohort]:
    """Return the cohorts without jobs that are done, and without empty cohorts."""
    remaining = [[item for item in cohort if item not in done] for cohort in cohorts]
    return [cohort for cohort in remaining if cohort]


def swept_keys(planned: Sequence[PlannedRun]) -> list[str]:
    """Return the override keys in which the jobs differ, in the order of the command."""
    points = [item.point for item in planned]
    keys = dict.fromkeys(key for point in points for key in point)
    return [key for key in keys if len({point.get(key) for point in points}) > 1]


def create_missing_runs(cohort: Cohort) -> None:
    """Create all missing run directories under one lock.

    A directory that cannot be created stays missing; `PlannedRun.run` tries again and raises the error.
    """
    missing = [item for item in cohort if item.found is None]
    runs = create_runs((item.job, item.fingerprint, item.rerun_of) for item in missing)
    for item in missing:
        item.found = runs.get(item.fingerprint)
