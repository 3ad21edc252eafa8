"""Jobs -> cohorts: finished runs are skipped, the others are grouped for training."""

from __future__ import annotations

from nnexp.base import ConfigError
from nnexp.config import Job
from nnexp.execution.cohorts import group_into_cohorts
from nnexp.registry import Registry
from nnexp.rundir import (
    ENDED,
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
    again: tuple[str, ...] = (),
    rerun: bool = False,
    invalid: list[tuple[str, str]] | None = None,
) -> list[Cohort]:
    """Cohorts in the order of their first jobs; a job given twice is trained once. Nothing is written or built.

    Raises ConfigError where a run cannot be made in the folder that its job names, or a file cannot be read that a job
    names: of such jobs `invalid`, where it is given, is told instead.

    Args:
        again: statuses that are ends, and are trained all the same.
        rerun: train what has ended once more, beside the old run.
    """
    planned: dict[str, PlannedRun] = {}
    indices: dict[str, RunIndex] = {}
    for job in jobs:
        try:
            digits, root = job_fingerprint(job, registry), job.options.runs
        except ConfigError as error:
            if invalid is None:
                raise
            invalid.append((" ".join(job.overrides), str(error)))
            continue
        if root not in indices:
            indices[root] = open_index(root)
        if digits not in planned:
            probes = {choice.name: probe_fingerprint(choice, registry) for choice in job.probes}
            planned[digits] = PlannedRun(job, digits, indices[root].find(digits), len(planned), again, probes=probes)
    for item in planned.values():
        if rerun and item.status in ENDED:
            item.found, item.rerun_of = None, item.found
    left = [item.job for item in planned.values() if not item.is_done]
    for root, folder in dict.fromkeys((job.options.runs, experiment_folder(job)) for job in left):
        check_writable(root, folder)
    return group_into_cohorts(list(planned.values()), registry)
