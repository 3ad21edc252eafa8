"""Trial of a job: times a few updates, to estimate what the job costs. Nothing is recorded."""

from __future__ import annotations

import time

from nnexp.base import torch_device
from nnexp.config import Job
from nnexp.registry import Registry
from nnexp.training import Lane, isolated

SECONDS = 0.3


def time_trial(job: Job, registry: Registry) -> dict[str, float]:
    """Train a job for about `SECONDS` and return the number of `steps` and their `seconds`, without the first updates.

    An exception from building or training the job is raised.
    """
    with isolated():
        lane = Lane(job, registry, torch_device(job.options.device), lambda: False)
        max_steps = lane.trainer.max_steps
        lane.advance(min(2, max_steps))
        began, start = time.perf_counter(), lane.step
        while time.perf_counter() - began < SECONDS and lane.step < max_steps:
            lane.advance(min(2 * max(1, lane.step), max_steps))
        return {"steps": lane.step - start, "seconds": time.perf_counter() - began}
