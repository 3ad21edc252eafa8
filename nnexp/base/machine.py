"""CPU cores and memory available to this process, with the limits of a container (cgroup v2) respected."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Return the bytes of memory available to this process: the smallest of what machine and container allow."""
    bounds = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = Path("/proc/meminfo").read_text().split("MemAvailable:")[1]
        bounds.append(1024 * int(line.split()[0]))
    with contextlib.suppress(OSError, ValueError):
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        bounds.append(limit - used)
    return max(0, min(bounds))


def num_cores() -> int:
    """Return the number of cores this process may use, at least 1; a container's CPU quota is rounded up."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # "max" where the group has no limit
        quota, period = map(int, (CGROUP / "cpu.max").read_text().split())
        cores = min(cores, -(-quota // period))
    return max(1, cores)
