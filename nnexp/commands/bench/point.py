"""One point of part c, run as a process (`python -m`), so that its peak memory is measured separately."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from nnexp.base import frozen_import
from nnexp.registry import discover


def seconds_per_update(chunk_times: dict[int, float]) -> float:
    """Return the seconds per update, without the first chunk (one-time setup) and the last (evaluation).

    Raises ValueError where there is only one chunk.

    Args:
        chunk_times: the time at the end of each chunk, by step.
    """
    steps = sorted(chunk_times)
    first, last = steps[0], steps[-2] if len(steps) > 2 else steps[-1]
    if first == last:
        raise ValueError(f"{last} updates are one chunk: give more --steps.")
    return (chunk_times[last] - chunk_times[first]) / (last - first)


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB.

    Reads VmHWM on Linux: `ru_maxrss` of a child process starts at the size of its parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def main(overrides: list[str], lanes: int, steps: int, seed: int) -> None:
    """Train and print JSON: microseconds per lane and update, peak memory in MiB, weights of one model, paths."""
    with frozen_import("nnexp.commands.bench.timed_training"):
        from nnexp.commands.bench.jobs import make_jobs
        from nnexp.commands.bench.timed_training import train

    registry = discover()
    with TemporaryDirectory() as folder:
        trained = train(make_jobs(overrides, registry, folder, steps, range(seed, seed + lanes)), registry)
    cost = 1e6 * sum(map(seconds_per_update, trained.chunk_times)) / lanes
    path = ", ".join(sorted(trained.paths))
    print(json.dumps({"us": cost, "mib": peak_mib(), "parameters": trained.parameters, "path": path}))


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
