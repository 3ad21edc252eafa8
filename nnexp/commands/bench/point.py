"""One point of part c, in a process of its own so that its peak of memory is its own."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from nnexp.base import frozen_import
from nnexp.registry import discover


def rate(marks: dict[int, float]) -> float:
    """Seconds of an update, from the end of the first chunk, which holds what is done once, to the start of the last,
    which holds the evaluation.
    """
    steps = sorted(marks)
    first, last = steps[0], steps[-2] if len(steps) > 2 else steps[-1]
    if first == last:
        raise ValueError(f"{last} updates are one chunk: give more --steps.")
    return (marks[last] - marks[first]) / (last - first)


def peak_mib() -> float:
    """The most memory that this process ever had. The system's own count of a process that was started by a large one
    begins at the size of that one, so Linux is asked for the peak of this address space.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def main(overrides: list[str], lanes: int, steps: int, seed: int) -> None:
    """Print microseconds per lane and update, the peak in MiB, weights of one model, and the paths."""
    with frozen_import("nnexp.commands.bench.ways"):
        from nnexp.commands.bench.ways import make_jobs, train

    registry = discover()
    with TemporaryDirectory() as folder:
        trained = train(make_jobs(overrides, registry, folder, steps, range(seed, seed + lanes)), registry)
    cost = 1e6 * sum(map(rate, trained.marks)) / lanes
    path = ", ".join(sorted(trained.paths))
    print(json.dumps({"us": cost, "mib": peak_mib(), "parameters": trained.parameters, "path": path}))


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
