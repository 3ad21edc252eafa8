"""Runs a plan in this process, one cohort after another: what fails costs its own run only."""

from __future__ import annotations

from nnexp.errors import RecordError
from nnexp.plan import Cohort, Planned, make_runs
from nnexp.record import refer
from nnexp.registry import Registry
from nnexp.stop import Stop
from nnexp.tell import tell


def launch(cohorts: list[Cohort], registry: Registry, stop: Stop, *, quiet: bool = False) -> list[Planned]:
    """Train what is not done; gives the jobs that have a run now, those that were done before among them.

    In a sweep the end of each run is told when it comes. After a signal nothing new is begun.
    """
    is_sweep = len(cohorts) > 1
    done = sum(all(planned.is_done for planned in cohort) for cohort in cohorts)
    if done and not quiet:
        tell(f"{done} of {len(cohorts)} jobs had ended before." if is_sweep else "this job had ended before.")
    begun: list[Planned] = []
    for number, cohort in enumerate(cohorts, 1):
        label = f"{number}/{len(cohorts)} {cohort[0].job.label}" if is_sweep else cohort[0].job.label
        try:
            if not all(planned.is_done for planned in cohort):
                if stop.requested:
                    tell(f"{len(cohorts) - number + 1} of {len(cohorts)} jobs were not begun.")
                    break
                _train(cohort, registry, stop, label, quiet)
                if is_sweep and not quiet:
                    _tell_end(cohort, label)
            begun += [planned for planned in cohort if _is_kept(planned)]
        except (RecordError, OSError) as error:  # this job's directory; the others have their own
            tell(f"{label}: left out: {error}")
    return begun


def _is_kept(planned: Planned) -> bool:
    """Whether a run is there when its training is over: a plugin may have removed it. Refers to it where it lies."""
    try:
        planned.run.read()
        refer(planned.job, planned.run)
    except (RecordError, OSError) as error:
        tell(f"left out: {error}")
        return False
    return True


def _train(cohort: Cohort, registry: Registry, stop: Stop, label: str, quiet: bool) -> None:
    """Train the jobs of a cohort that are not done, holding the locks of their directories."""
    from nnexp.fit import fit, torch_device  # imports torch and Lightning: only when something trains
    from nnexp.progress import Progress

    torch_device(cohort[0].job.settings.device)  # before a directory is made
    held: Cohort = []
    progress = Progress(label, cohort[0].job.trainer.values.get("max_steps", 0), quiet)
    try:
        make_runs(cohort)
        for planned in cohort:
            if not planned.is_done:
                try:
                    planned.run.lock()
                    held.append(planned)
                except RecordError as error:
                    tell(f"left out: {error}")
        left = [planned for planned in held if not planned.is_done]  # another process may just have finished one
        if left:
            fit(left, registry, stop, progress)
    finally:
        progress.close()
        for planned in held:
            planned.run.unlock()


def _tell_end(cohort: Cohort, label: str) -> None:
    for planned in cohort:
        facts = planned.run.read()
        error = f": {facts['error'].get('message')}" if facts.get("error") else ""
        tell(f"{label}: {facts['status']} at step {facts.get('steps', 0)}{error}")
