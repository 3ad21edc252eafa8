"""Which jobs of a command are trained together: those that differ in numbers only."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from nnexp.config import Job, PluginConfig
from nnexp.registry import Registry
from nnexp.rundir import Cohort, PlannedRun, max_locks

MOST_LANES = 512
LANE_VALUES = ("lr", "weight_decay", "clip_norm")  # of a trainer, whose update is given these and nothing else by lane


def group_into_cohorts(planned: list[PlannedRun], registry: Registry) -> list[Cohort]:
    """Jobs that differ in nothing but numbers, together."""
    cohorts: dict[str, Cohort] = {}
    for item in planned:
        key = _common(item.job, registry) if item.job.options.stack else str(item.number)
        cohorts.setdefault(key, []).append(item)
    most, cut = min(MOST_LANES, max_locks()), []
    for cohort in cohorts.values():
        for item in cohort:
            item.in_cohort = len(cohort) > 1
        parts = -(-len(cohort) // most)
        cut += [cohort[part::parts] for part in range(parts)]
    return sorted(cut, key=lambda cohort: cohort[0].number)


def _common(job: Job, registry: Registry) -> str:
    """What the lanes of a cohort have in common: all but the seeds and what is marked `PerLane`."""
    settings = {name: value for name, value in asdict(job.options).items() if name not in ("seed", "runs")}
    choices = [[choice.kind, choice.name, _shared(choice, registry)] for choice in job.parts]
    return json.dumps([settings, choices], sort_keys=True)


def _shared(choice: PluginConfig, registry: Registry) -> dict[str, Any]:
    parameters = registry.get(choice.kind, choice.name).parameters
    return {
        name: value
        for name, value in choice.values.items()
        if not parameters[name].per_lane or (choice.kind == "trainer" and name not in LANE_VALUES)
    }
