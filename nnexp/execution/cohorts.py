"""Groups jobs into cohorts: jobs that differ only in seeds and in values marked `PerLane`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from nnexp.config import Job, PluginConfig
from nnexp.registry import Registry
from nnexp.rundir import Cohort, PlannedRun, max_locks
from nnexp.training import LANE_VALUES

MAX_LANES = 512


def group_into_cohorts(planned: list[PlannedRun], registry: Registry) -> list[Cohort]:
    """Return the cohorts of a plan in the order of their first jobs, and set `in_cohort` of each job.

    A cohort of more than `MAX_LANES` jobs, or more than the process can lock, is split evenly. With `stack=false` each
    job is a cohort.
    """
    cohorts: dict[str, Cohort] = {}
    for item in planned:
        key = _cohort_key(item.job, registry) if item.job.options.stack else str(item.number)
        cohorts.setdefault(key, []).append(item)
    max_lanes, split = min(MAX_LANES, max_locks()), []
    for cohort in cohorts.values():
        for item in cohort:
            item.in_cohort = len(cohort) > 1
        parts = -(-len(cohort) // max_lanes)
        split += [cohort[part::parts] for part in range(parts)]
    return sorted(split, key=lambda cohort: cohort[0].number)


def _cohort_key(job: Job, registry: Registry) -> str:
    """Return all values that are equal in the lanes of a cohort, as JSON."""
    options = {name: value for name, value in asdict(job.options).items() if name not in ("seed", "runs")}
    choices = [[choice.kind, choice.name, _shared_values(choice, registry)] for choice in job.parts]
    return json.dumps([options, choices], sort_keys=True)


def _shared_values(choice: PluginConfig, registry: Registry) -> dict[str, Any]:
    parameters = registry.get(choice.kind, choice.name).parameters
    return {
        name: value
        for name, value in choice.values.items()
        if not parameters[name].per_lane or (choice.kind == "trainer" and name not in LANE_VALUES)
    }
