"""How many processes train at once, and on what."""

from __future__ import annotations

import os
import sys

from nnexp.command import Command
from nnexp.config import Job


def gpus_for(jobs: list[Job]) -> list[str]:
    """The GPUs that are there for these jobs. Raises NnexpError where one asks for a device that is not there."""
    names = {job.settings.device for job in jobs} - {"cpu"}
    if not names:
        return []
    import torch

    from nnexp.fit import torch_device

    if not any(torch_device(name).type == "cuda" for name in sorted(names)):
        return []
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible or [str(number) for number in range(torch.cuda.device_count())]


def num_workers(command: Command, gpus: list[str]) -> int:
    """How many processes train at once."""
    if command.workers == "auto":
        return len(gpus) or num_cores()
    return max(1, int(command.workers))


def num_cores() -> int:
    """Cores that this process may use."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
