"""How many processes train at once, and on what."""

from __future__ import annotations

import os

from nnexp.base import free_memory, num_cores
from nnexp.config import Job, SweepOptions

WORKER_BYTES = 512 << 20  # of small models, with room for their data


def gpus_for(jobs: list[Job]) -> list[str]:
    """The GPUs that are there for these jobs. Raises NnexpError where one asks for a device that is not there."""
    names = {job.options.device for job in jobs} - {"cpu"}
    if not names:
        return []
    import torch

    from nnexp.base import torch_device

    if not any(torch_device(name).type == "cuda" for name in sorted(names)):
        return []
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible or [str(number) for number in range(torch.cuda.device_count())]


def num_workers(command: SweepOptions, gpus: list[str]) -> int:
    """How many processes train at once."""
    if command.workers == "auto":
        return len(gpus) or max(1, min(num_cores(), free_memory() // WORKER_BYTES))
    return max(1, int(command.workers))
