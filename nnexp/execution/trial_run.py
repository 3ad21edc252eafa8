"""A job tried for a moment, to tell what it costs. Nothing of it is kept."""

from __future__ import annotations

import time

from nnexp.base import isolated, torch_device
from nnexp.config import Job
from nnexp.registry import Registry
from nnexp.training import Lane

SECONDS = 0.3


def time_trial(job: Job, registry: Registry) -> dict[str, float]:
    """How many updates took how many seconds. Raises what building or training it raises."""
    with isolated():
        lane = Lane(job, registry, torch_device(job.options.device), lambda: False)
        most = lane.trainer.max_steps
        lane.advance(min(2, most))
        began, start = time.perf_counter(), lane.step
        while time.perf_counter() - began < SECONDS and lane.step < most:
            lane.advance(min(2 * max(1, lane.step), most))
        return {"steps": lane.step - start, "seconds": time.perf_counter() - began}
