"""Runs a plan in this process, one cohort after another: what fails costs its own run only."""

from __future__ import annotations

import sys

from nnexp.errors import RecordError
from nnexp.plan import Cohort
from nnexp.record import Run
from nnexp.registry import Registry
from nnexp.stop import Stop

FAILURES = ("failed", "diverged")


def launch(cohorts: list[Cohort], registry: Registry, stop: Stop, *, quiet: bool = False) -> list[Run]:
    """Train what is not done; gives the runs in the order of the plan, those that were done among them.

    Failures are shown when they happen. After a signal nothing new is begun.
    """
    runs = []
    for number, cohort in enumerate(cohorts, 1):
        if not all(planned.is_done for planned in cohort):
            if stop.requested:
                break
            label = cohort[0].job.label
            _train(cohort, registry, stop, f"{number}/{len(cohorts)} {label}" if len(cohorts) > 1 else label, quiet)
        runs += [planned.found for planned in cohort if planned.found is not None]
    return runs


def _train(cohort: Cohort, registry: Registry, stop: Stop, label: str, quiet: bool) -> None:
    """Train the jobs of a cohort that are not done, holding the locks of their directories."""
    from nnexp.fit import fit  # imports torch and Lightning: only when something trains
    from nnexp.progress import Progress

    held: Cohort = []
    progress = Progress(label, cohort[0].job.trainer.values.get("max_steps", 0), quiet)
    try:
        for planned in cohort:
            if not planned.is_done:
                try:
                    planned.run.lock()
                    held.append(planned)
                except RecordError as error:
                    _tell(f"skipped: {error}")
        if held:
            fit(held, registry, stop, progress)
    finally:
        progress.close()
        for planned in held:
            planned.run.unlock()
    for planned in held:
        facts = planned.run.read()
        if facts["status"] in FAILURES:
            _tell(f"{facts['status']}: {planned.run.path}: {facts['error']['message']}")


def _tell(message: str) -> None:
    print(f"nnexp: {message}", file=sys.stderr, flush=True)
