"""Jobs -> cohorts: what is finished is left alone, what is left is grouped for training."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nnexp.base import RecordError
from nnexp.config import Job
from nnexp.rundir.create import create_run, create_runs
from nnexp.rundir.run import ENDED, Run


@dataclass(eq=False)
class PlannedRun:
    """A job and its run directory, which is made when training begins.

    Args:
        found: the newest run of this fingerprint.
        number: its place in the command.
        again: statuses that are ends, and are trained all the same.
        beside: the finished run that a new one is asked for beside.
        in_cohort: whether other jobs of the command can be trained together with it, done before or not: it gets the
            same numbers then whatever is left of them, and however many fit into a stack.
        lost: why there is no run, or none that this command could train.
        probes: what is to look into it, by name, with what decides what each sees.
    """

    job: Job
    fingerprint: str
    found: Run | None
    number: int = 0
    again: tuple[str, ...] = ()
    beside: Run | None = None
    in_cohort: bool = False
    lost: str = ""
    probes: dict[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """What run.json says; nothing where there is none, or where it has been damaged meanwhile."""
        with contextlib.suppress(RecordError):
            if self.found is not None:
                return self.found.read()
        return {}

    def ending(self) -> dict[str, Any] | None:
        """What run.json says of a run that is done; None of one that is to be trained, or looked into."""
        facts = self.facts()
        status = facts.get("status")
        is_left = status not in ENDED or status in self.again or (status == "finished" and self.unseen(facts))
        return None if is_left else facts

    def unseen(self, facts: dict[str, Any]) -> list[str]:
        """The probes that have not looked at the last step of a run, or did with other code or values."""
        looked = facts.get("looked", {})
        return [name for name, made_by in self.probes.items() if looked.get(name) != made_by]

    def note_unseen(self, reason: str) -> None:
        """Say of a finished run that probes could not look into it; it stays as it was."""
        note = f"could not be looked into again: {reason}"
        self.run.write(status="finished", notes=[*dict.fromkeys([*self.facts().get("notes", []), note])])

    @property
    def status(self) -> str:
        """As run.json has it; `unreadable` where it has been damaged meanwhile."""
        return str(self.facts().get("status", "new" if self.found is None else "unreadable"))

    @property
    def is_done(self) -> bool:
        return self.ending() is not None

    @property
    def point(self) -> dict[str, str]:
        """What the command gives for this job, by key."""
        return dict(text.split("=", 1) for text in self.job.overrides)

    @property
    def run(self) -> Run:
        """The run directory, new where there was none."""
        if self.found is None:
            self.found = create_run(self.job, self.fingerprint, self.beside)
        return self.found


Cohort = list[PlannedRun]
Done = dict[PlannedRun, dict[str, Any]]  # with what run.json says, read once


def in_order(cohorts: list[Cohort]) -> Cohort:
    """All jobs of a plan, as the command has them."""
    return sorted((item for cohort in cohorts for item in cohort), key=lambda item: item.number)


def all_done(planned: Cohort) -> Done:
    """The jobs that are done."""
    return {item: facts for item in planned if (facts := item.ending()) is not None}


def left_of(cohorts: list[Cohort], done: Done) -> list[Cohort]:
    """What is to be trained of each cohort."""
    left = [[item for item in cohort if item not in done] for cohort in cohorts]
    return [cohort for cohort in left if cohort]


def swept(planned: Sequence[PlannedRun]) -> list[str]:
    """The keys in which the jobs differ."""
    points = [item.point for item in planned]
    keys = dict.fromkeys(key for point in points for key in point)
    return [key for key in keys if len({point.get(key) for point in points}) > 1]


def make_runs(cohort: Cohort) -> None:
    """Make the run directories that are not there, all at once; `run` tries again where one cannot be made."""
    missing = [item for item in cohort if item.found is None]
    made = create_runs((item.job, item.fingerprint, item.beside) for item in missing)
    for item in missing:
        item.found = made.get(item.fingerprint)
