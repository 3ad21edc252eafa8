"""Part a: one run against a bare loop and against Lightning with its defaults."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from nnexp.commands.bench.cases import CASES
from nnexp.commands.bench.jobs import make_jobs
from nnexp.commands.bench.reference_loops import bare_seconds, lightning_seconds
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.timed_training import train
from nnexp.registry import Registry


def single(name: str, steps: int, options: argparse.Namespace, registry: Registry) -> Iterator[Measurement]:
    """Yield the microseconds per update of each method, and the ratios."""
    measure_round(name, 200, min(50, options.lightning_steps), 0, registry)  # warm up
    rounds = [measure_round(name, steps, options.lightning_steps, seed, registry) for seed in range(options.rounds)]
    path = rounds[0][1]
    ours, bare, lightning = (
        [times[method] for times, _ in rounds if method in times] for method in ("ours", "bare", "Lightning")
    )

    def row(what: str, unit: str, values: list[float]) -> Measurement:
        return Measurement(part="a", case=name, what=what, unit=unit, values=values, path=path)

    yield row("ours, a step", "us", ours)
    yield row("bare, a step", "us", bare)
    yield row("ours / bare", "x", [mine / other for mine, other in zip(ours, bare, strict=True)])
    if lightning:
        yield row("Lightning / ours", "x", [other / mine for mine, other in zip(ours, lightning, strict=True)])


def measure_round(
    name: str, steps: int, lightning_steps: int, seed: int, registry: Registry
) -> tuple[dict[str, float], str]:
    """Return the microseconds per update of each method, and the path of our run."""
    with TemporaryDirectory() as folder:
        (job,) = make_jobs(CASES[name].overrides, registry, folder, steps, range(seed, seed + 1))
        ours = train([job], registry)
        times = {"ours": ours.seconds, "bare": bare_seconds(job, registry)}
        times = {method: 1e6 * seconds / steps for method, seconds in times.items()}
        if lightning_steps:
            (job,) = make_jobs(CASES[name].overrides, registry, folder, lightning_steps, range(seed, seed + 1))
            times["Lightning"] = 1e6 * lightning_seconds(job, registry) / lightning_steps
    return times, ", ".join(ours.paths)
