"""Plans a command: finds the runs of its jobs, skips those already complete, and groups the jobs into cohorts."""

from __future__ import annotations

from nnexp.base import ConfigError
from nnexp.config import Job
from nnexp.execution.cohorts import group_into_cohorts
from nnexp.registry import Registry
from nnexp.rundir import (
    ENDED,
    CodeHashes,
    Cohort,
    PlannedRun,
    RunIndex,
    check_writable,
    experiment_folder,
    job_fingerprint,
    open_index,
    probe_fingerprint,
)


def plan_cohorts(
    jobs: list[Job],
    registry: Registry,
    *,
    retry_statuses: tuple[str, ...] = (),
    rerun: bool = False,
    invalid: list[tuple[str, str]] | None = None,
) -> list[Cohort]:
    """Return cohorts in the order of their first jobs; a job given twice is planned once. Nothing is written or built.

    Args:
        jobs: composed jobs, in the order of the command.
        registry: finds the plugins.
        retry_statuses: statuses of ended runs that are trained again, such as "failed".
        rerun: train ended jobs once more, each in a new directory beside the old run.
        invalid: receives (overrides, reason) of each job that names a file that cannot be read; None to raise instead.

    Raises:
        ConfigError: if run directories cannot be created in the folder that a job names, or if a job names a file that
            cannot be read.
    """
    planned = _find_runs(jobs, registry, retry_statuses, invalid)
    for item in planned:
        if rerun and item.status in ENDED:
            item.found, item.rerun_of = None, item.found
    remaining = [item.job for item in planned if not item.is_done]
    for root, folder in dict.fromkeys((job.options.runs, experiment_folder(job)) for job in remaining):
        check_writable(root, folder)
    return group_into_cohorts(planned, registry)


def _find_runs(
    jobs: list[Job], registry: Registry, retry_statuses: tuple[str, ...], invalid: list[tuple[str, str]] | None
) -> list[PlannedRun]:
    """Return each distinct job with the newest run of its fingerprint, if there is one."""
    planned: dict[str, PlannedRun] = {}
    indices: dict[str, RunIndex] = {}
    code = CodeHashes(registry)
    for job in jobs:
        try:
            digits, root = job_fingerprint(job, registry, code), job.options.runs
        except ConfigError as error:
            if invalid is None:
                raise
            invalid.append((" ".join(job.overrides), str(error)))
            continue
        if root not in indices:
            indices[root] = open_index(root)
        if digits not in planned:
            probes = {choice.name: probe_fingerprint(choice, registry, code) for choice in job.probes}
            planned[digits] = PlannedRun(
                job, digits, indices[root].find(digits), len(planned), retry_statuses, probes=probes
            )
    return list(planned.values())
