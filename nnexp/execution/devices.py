"""Number of worker processes, and the GPUs they are distributed over."""

from __future__ import annotations

import os

from nnexp.base import free_memory, num_cores
from nnexp.config import Job, SweepOptions

WORKER_BYTES = 512 << 20  # a worker with small models and their data


def gpus_for(jobs: list[Job]) -> list[str]:
    """Return the GPUs available to these jobs, as CUDA_VISIBLE_DEVICES names them; none if all use the CPU.

    Raises:
        NnexpError: if a job names a device that does not exist.
    """
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
    """Return how many processes train at a time: with `workers=auto` one per GPU, or per core if memory allows."""
    if command.workers == "auto":
        return len(gpus) or max(1, min(num_cores(), free_memory() // WORKER_BYTES))
    return max(1, int(command.workers))
