"""Part plan: compose, check, fingerprint and group 2,000 jobs, against Hydra composing them, in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from tempfile import TemporaryDirectory

from hydra import compose

from nnexp.commands.bench.cases import PLANNING
from nnexp.commands.bench.report import Measurement
from nnexp.config import Composer, compose_jobs
from nnexp.execution import plan_cohorts
from nnexp.registry import Registry, discover
from nnexp.rundir import Cohort, create_missing_runs

MODELS = ("rnn", "lstm", "gru", "mlp")
SEEDS = 10


def planning(num_jobs: int, num_composed: int) -> Iterator[Measurement]:
    """Yield the seconds to plan a new sweep and a finished one, those of Hydra, and the ratios.

    Args:
        num_jobs: jobs of the sweep, rounded down to full grids.
        num_composed: jobs that Hydra composes; its time is scaled up from these.
    """
    sizes = range(4, 4 + max(1, num_jobs // (len(MODELS) * SEEDS)))
    overrides = [f"model={','.join(MODELS)}", f"model.hidden_size=range(4,{sizes.stop})", f"seed=range({SEEDS})"]
    points = [
        [f"model={model}", f"model.hidden_size={size}", f"seed={seed}"]
        for model in MODELS
        for size in sizes
        for seed in range(SEEDS)
    ]
    with TemporaryDirectory() as folder:
        command = [*overrides, f"runs='{folder}'"]
        new, cohorts = time_planning(command)
        for cohort in cohorts:
            create_missing_runs(cohort)
            for item in cohort:
                item.run.write(status="finished", steps=1)
        finished, cohorts = time_planning(command)
        assert all(item.is_done for cohort in cohorts for item in cohort)
    hydra = time_hydra(points, num_composed, discover())
    scaled = f"Hydra, from {num_composed} jobs" if num_composed < len(points) else ""

    def row(what: str, unit: str, value: float, bar: float | None = None) -> Measurement:
        return Measurement(
            part="plan", case="a sweep", what=what, unit=unit, at=len(points), scaled=scaled, values=[value], bar=bar
        )

    yield row("ours, all new", "s", new)
    yield row("ours, all finished", "s", finished)
    yield row("Hydra", "s", hydra * len(points))
    yield row("Hydra / ours, all new", "x", hydra * len(points) / new, PLANNING)
    yield row("Hydra / ours, all finished", "x", hydra * len(points) / finished, PLANNING)


def time_planning(command: list[str]) -> tuple[float, list[Cohort]]:
    """Return the seconds from overrides to cohorts, plugin discovery included, and the cohorts."""
    start = time.perf_counter()
    registry = discover()
    cohorts = plan_cohorts(compose_jobs(command, registry, multirun=True), registry)
    return time.perf_counter() - start, cohorts


def time_hydra(points: list[list[str]], count: int, registry: Registry) -> float:
    """Return the mean seconds in which Hydra composes one job, as its sweeper does: each one from scratch."""
    with Composer(registry, "config", ()).open():
        compose("config", points[0], return_hydra_config=True)
        chosen = list(islice(points, 0, None, max(1, len(points) // count)))[:count]
        start = time.perf_counter()
        for point in chosen:
            compose("config", point, return_hydra_config=True)
        return (time.perf_counter() - start) / len(chosen)
