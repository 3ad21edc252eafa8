"""Part workers: jobs of about a second each on two workers, against one after another in one process."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

from nnexp.commands.bench.cases import CASES
from nnexp.commands.bench.cold import time_python
from nnexp.commands.bench.jobs import make_jobs, sweep_overrides
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.timed_training import train
from nnexp.registry import Registry

NAME = "moons mlp"
CALIBRATION_STEPS = 1000  # updates that are timed to find how many take a second
NUM_WORKERS = {"in the command's process": 0, "1 worker": 1, "2 workers": 2}


def workers(num_jobs: int, rounds: int, registry: Registry) -> Iterator[Measurement]:
    """Yield the seconds of whole commands, and the speed-ups of workers."""
    with TemporaryDirectory() as folder:
        jobs = make_jobs(CASES[NAME].overrides, registry, folder, CALIBRATION_STEPS, range(1))
        steps = round(CALIBRATION_STEPS / train(jobs, registry).seconds)
    seconds: dict[str, list[float]] = {place: [] for place in NUM_WORKERS}
    for _ in range(rounds):
        for place, num_workers in NUM_WORKERS.items():
            seconds[place].append(time_command(steps, num_jobs, num_workers))

    def row(what: str, unit: str, values: list[float]) -> Measurement:
        return Measurement(
            part="workers", case=f"{NAME}, {steps} steps", what=what, unit=unit, at=num_jobs, values=values
        )

    for place, values in seconds.items():
        yield row(place, "s", values)
    first, *others = seconds
    for place in others:
        ratios = [one / other for one, other in zip(seconds[first], seconds[place], strict=True)]
        yield row(f"{first} / {place}", "x", ratios)


def time_command(steps: int, num_jobs: int, num_workers: int) -> float:
    """Return the seconds of a command from start to exit, each worker training its jobs one by one."""
    with TemporaryDirectory() as folder:
        overrides = sweep_overrides(CASES[NAME].overrides, steps, range(num_jobs))
        words = ["-m", "nnexp", "-m", *overrides, "stack=false", f"sweep.workers={num_workers}"]
        return time_python(words, folder)
