"""Part workers: jobs that take about a second each, on two workers, against one after another in one process."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

from nnexp.commands.bench.cases import CASES
from nnexp.commands.bench.cold import process
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.ways import make_jobs, settings, train
from nnexp.registry import Registry

NAME = "moons mlp"
TRIED = 1000  # updates from which it is told how many take a second
WAYS = {"in the command's process": 0, "1 worker": 1, "2 workers": 2}


def workers(num_jobs: int, rounds: int, registry: Registry) -> Iterator[Measurement]:
    """Seconds of whole commands, and how many times faster two workers are."""
    with TemporaryDirectory() as folder:
        jobs = make_jobs(CASES[NAME].overrides, registry, folder, TRIED, range(1))
        steps = round(TRIED / train(jobs, registry).seconds)
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, number in WAYS.items():
            taken[way].append(command(steps, num_jobs, number))

    def row(what: str, unit: str, values: list[float]) -> Measurement:
        return Measurement(
            part="workers", case=f"{NAME}, {steps} steps", what=what, unit=unit, at=num_jobs, values=values
        )

    for way, values in taken.items():
        yield row(way, "s", values)
    first, *others = taken
    for way in others:
        ratios = [one / other for one, other in zip(taken[first], taken[way], strict=True)]
        yield row(f"{first} / {way}", "x", ratios)


def command(steps: int, num_jobs: int, number: int) -> float:
    """Seconds of a command from start to exit, its jobs trained one by one on each worker."""
    with TemporaryDirectory() as folder:
        words = settings(CASES[NAME].overrides, steps, range(num_jobs))
        return process(["-m", "nnexp", "-m", *words, "stack=false", f"sweep.workers={number}"], folder)
