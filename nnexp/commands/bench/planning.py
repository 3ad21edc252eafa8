"""Part plan: 2,000 jobs composed, checked, fingerprinted and grouped, against Hydra composing them, in one process."""

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
    """Seconds to plan a sweep that is new, and one that is finished; and how many times longer Hydra takes."""
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
        new, cohorts = planned(command)
        for cohort in cohorts:
            create_missing_runs(cohort)
            for item in cohort:
                item.run.write(status="finished", steps=1)
        again, cohorts = planned(command)
        assert all(item.is_done for cohort in cohorts for item in cohort)
    hydra = composed(points, num_composed, discover())
    scaled = f"Hydra, from {num_composed} jobs" if num_composed < len(points) else ""

    def row(what: str, unit: str, value: float, bar: float | None = None) -> Measurement:
        return Measurement(
            part="plan", case="a sweep", what=what, unit=unit, at=len(points), scaled=scaled, values=[value], bar=bar
        )

    yield row("ours, all new", "s", new)
    yield row("ours, all finished", "s", again)
    yield row("Hydra", "s", hydra * len(points))
    yield row("Hydra / ours, all new", "x", hydra * len(points) / new, PLANNING)
    yield row("Hydra / ours, all finished", "x", hydra * len(points) / again, PLANNING)


def planned(command: list[str]) -> tuple[float, list[Cohort]]:
    """From the command line to cohorts, with nothing known before."""
    began = time.perf_counter()
    registry = discover()
    cohorts = plan_cohorts(compose_jobs(command, registry, multirun=True), registry)
    return time.perf_counter() - began, cohorts


def composed(points: list[list[str]], count: int, registry: Registry) -> float:
    """Seconds that Hydra takes for one job, as its sweeper composes it: every job anew."""
    with Composer(registry, "config", ()).open():
        compose("config", points[0], return_hydra_config=True)
        spread = list(islice(points, 0, None, max(1, len(points) // count)))[:count]
        began = time.perf_counter()
        for point in spread:
            compose("config", point, return_hydra_config=True)
        return (time.perf_counter() - began) / len(spread)
