"""How many processes train at once, and on what."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from nnexp.command import Command
from nnexp.config import Job

GROUP = Path("/sys/fs/cgroup")
WORKER_BYTES = 512 << 20  # of small models, with room for their data


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
        return len(gpus) or max(1, min(num_cores(), free_memory() // WORKER_BYTES))
    return max(1, int(command.workers))


def num_cores() -> int:
    """Cores that this process may use, also where a container has a part of their time only."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = len(affinity(0)) if affinity else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # "max" where the group has no limit
        quota, period = map(int, (GROUP / "cpu.max").read_text().split())
        found = min(found, -(-quota // period))
    return max(1, found)


def free_memory() -> int:
    """Bytes that are free for this process on the machine."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = Path("/proc/meminfo").read_text().split("MemAvailable:")[1]
        found.append(1024 * int(line.split()[0]))
    with contextlib.suppress(OSError, ValueError):
        limit, used = (int((GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        found.append(limit - used)
    return max(0, min(found))
