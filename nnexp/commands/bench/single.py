"""Part a: one run against a bare loop and against Lightning with its defaults."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from nnexp.commands.bench.cases import CASES
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.ways import bare, lightning, make_jobs, train
from nnexp.registry import Registry


def single(name: str, steps: int, options: argparse.Namespace, registry: Registry) -> Iterator[Measurement]:
    """Microseconds per update, and ratios."""
    measure_round(name, 200, min(50, options.lightning_steps), 0, registry)  # warm up
    rounds = [measure_round(name, steps, options.lightning_steps, seed, registry) for seed in range(options.rounds)]
    path = rounds[0][1]
    ours, plain, theirs = ([times[way] for times, _ in rounds if way in times] for way in ("ours", "bare", "Lightning"))

    def row(what: str, unit: str, values: list[float]) -> Measurement:
        return Measurement(part="a", case=name, what=what, unit=unit, values=values, path=path)

    yield row("ours, a step", "us", ours)
    yield row("bare, a step", "us", plain)
    yield row("ours / bare", "x", [mine / other for mine, other in zip(ours, plain, strict=True)])
    if theirs:
        yield row("Lightning / ours", "x", [other / mine for mine, other in zip(ours, theirs, strict=True)])


def measure_round(
    name: str, steps: int, lightning_steps: int, seed: int, registry: Registry
) -> tuple[dict[str, float], str]:
    """Microseconds per update of each way, and the path of ours."""
    with TemporaryDirectory() as folder:
        (job,) = make_jobs(CASES[name].overrides, registry, folder, steps, range(seed, seed + 1))
        ours = train([job], registry)
        times = {"ours": ours.seconds, "bare": bare(job, registry)}
        times = {way: 1e6 * seconds / steps for way, seconds in times.items()}
        if lightning_steps:
            (job,) = make_jobs(CASES[name].overrides, registry, folder, lightning_steps, range(seed, seed + 1))
            times["Lightning"] = 1e6 * lightning(job, registry) / lightning_steps
    return times, ", ".join(ours.paths)
