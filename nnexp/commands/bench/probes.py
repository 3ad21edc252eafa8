"""Part probes: a run with all probes against the same run without, and the time to draw."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

from nnexp.commands.bench.cases import CASES, PICTURE, PROBES
from nnexp.commands.bench.jobs import sweep_overrides
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.timed_training import train
from nnexp.config import compose_jobs
from nnexp.registry import Registry


def probes(name: str, steps: int, options: argparse.Namespace, registry: Registry) -> Iterator[Measurement]:
    """Yield the overhead of all probes, from pairs of runs that differ in nothing else."""
    _time_pair(name, 20, 0, registry)  # warm up: imports
    pairs = [_time_pair(name, steps, seed, registry) for seed in range(options.rounds)]

    def row(what: str, unit: str, values: list[float], bar: float | None = None) -> Measurement:
        return Measurement(part="probes", case=name, what=what, unit=unit, values=values, bar=bar, better="low")

    yield row("computing / training without", "x", [spent["computing"] / plain for plain, _, spent in pairs], PROBES)
    ratios = [(probed - spent["drawing"]) / plain for plain, probed, spent in pairs]
    yield row("with all probes, less drawing / without", "x", ratios)
    yield row("a picture", "ms", [1e3 * spent["drawing"] / max(1, spent["pictures"]) for *_, spent in pairs], PICTURE)
    yield row("pictures", "", [spent["pictures"] for *_, spent in pairs])


def _time_pair(name: str, steps: int, seed: int, registry: Registry) -> tuple[float, float, dict[str, Any]]:
    """Return the seconds of a run without probes and with all of them, and the latter's `probing` record of run.json.

    Which run comes first alternates with the seed.
    """
    seconds = {}
    spent: dict[str, Any] = {}
    for names in ([], registry.names("probe"))[:: 1 if seed % 2 else -1]:
        with TemporaryDirectory() as folder:
            overrides = sweep_overrides(CASES[name].overrides, steps, range(seed, seed + 1))
            more = [f"runs='{folder}'", f"probe=[{','.join(names)}]"]
            jobs, start = compose_jobs([*overrides, *more], registry, multirun=True), time.perf_counter()
            trained = train(jobs, registry)
            seconds[bool(names)] = time.perf_counter() - start  # includes the probes before the first update
            spent = trained.probing or spent
    return seconds[False], seconds[True], spent
