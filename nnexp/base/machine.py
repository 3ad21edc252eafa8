"""Cores and memory that this process may use, also within a container."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Bytes that are free for this process on the machine."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = Path("/proc/meminfo").read_text().split("MemAvailable:")[1]
        found.append(1024 * int(line.split()[0]))
    with contextlib.suppress(OSError, ValueError):
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        found.append(limit - used)
    return max(0, min(found))


def num_cores() -> int:
    """Cores that this process may use, also where a container has a part of their time only."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = len(affinity(0)) if affinity else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # "max" where the group has no limit
        quota, period = map(int, (CGROUP / "cpu.max").read_text().split())
        found = min(found, -(-quota // period))
    return max(1, found)
