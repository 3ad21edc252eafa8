"""Runs a plan in this process, one cohort after another: what fails costs its own run only."""

from __future__ import annotations

import sys

from nnexp.errors import RecordError
from nnexp.plan import Cohort, Planned
from nnexp.record import refer
from nnexp.registry import Registry
from nnexp.stop import Stop


def launch(cohorts: list[Cohort], registry: Registry, stop: Stop, *, quiet: bool = False) -> list[Planned]:
    """Train what is not done; gives the jobs that have a run now, those that were done before among them.

    In a sweep the end of each run is told when it comes. After a signal nothing new is begun.
    """
    is_sweep = len(cohorts) > 1
    done = sum(all(planned.is_done for planned in cohort) for cohort in cohorts)
    if done and not quiet:
        _tell(f"{done} of {len(cohorts)} jobs had ended before." if is_sweep else "this job had ended before.")
    begun: list[Planned] = []
    for number, cohort in enumerate(cohorts, 1):
        if not all(planned.is_done for planned in cohort):
            if stop.requested:
                _tell(f"{len(cohorts) - number + 1} of {len(cohorts)} jobs were not begun.")
                break
            label = cohort[0].job.label
            _train(cohort, registry, stop, f"{number}/{len(cohorts)} {label}" if is_sweep else label, quiet)
            if is_sweep and not quiet:
                _tell_end(cohort, f"{number}/{len(cohorts)}")
        for planned in cohort:
            refer(planned.job, planned.run)
            begun.append(planned)
    return begun


def _train(cohort: Cohort, registry: Registry, stop: Stop, label: str, quiet: bool) -> None:
    """Train the jobs of a cohort that are not done, holding the locks of their directories."""
    from nnexp.fit import fit, torch_device  # imports torch and Lightning: only when something trains
    from nnexp.progress import Progress

    torch_device(cohort[0].job.settings.device)  # before a directory is made
    held: Cohort = []
    progress = Progress(label, cohort[0].job.trainer.values.get("max_steps", 0), quiet)
    try:
        for planned in cohort:
            if not planned.is_done:
                try:
                    planned.run.lock()
                    held.append(planned)
                except RecordError as error:
                    _tell(f"left out: {error}")
        left = [planned for planned in held if not planned.is_done]  # another process may just have finished one
        if left:
            fit(left, registry, stop, progress)
    finally:
        progress.close()
        for planned in held:
            planned.run.unlock()


def _tell_end(cohort: Cohort, count: str) -> None:
    for planned in cohort:
        facts = planned.run.read()
        error = f": {facts['error']['message']}" if facts.get("error") else ""
        _tell(f"{count} {planned.job.label}: {facts['status']} at step {facts.get('steps', 0)}{error}")


def _tell(message: str) -> None:
    print(f"nnexp: {message}", file=sys.stderr, flush=True)
