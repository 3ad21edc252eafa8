"""Run the chosen parts of the benchmark, case by case."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import torch

from nnexp.base import print_err
from nnexp.commands.bench.cases import CASES
from nnexp.commands.bench.cold import cold
from nnexp.commands.bench.doubling import doubling
from nnexp.commands.bench.options import DEFAULT_CASES, DEFAULT_STEPS
from nnexp.commands.bench.planning import planning
from nnexp.commands.bench.probes import probes
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.single import single
from nnexp.commands.bench.start import start
from nnexp.commands.bench.sweep import sweep
from nnexp.commands.bench.workers import workers
from nnexp.registry import Registry, discover

COMMAND_PARTS: dict[str, Callable[[argparse.Namespace, Registry], Iterator[Measurement]]] = {
    "d": lambda options, _: start(options.rounds),
    "plan": lambda options, _: planning(options.plan_jobs, options.plan_composed),
    "workers": lambda options, registry: workers(options.worker_jobs, options.rounds, registry),
}
CASE_PARTS = {"a": single, "b": sweep, "cold": cold, "c": doubling, "probes": probes}


def measure(options: argparse.Namespace) -> Iterator[Measurement]:
    """Yield each measurement as soon as it is taken."""
    torch.set_num_threads(1)
    registry = discover()
    for part in options.part:
        if part in COMMAND_PARTS:
            print_err(f"measuring part {part}")
            yield from COMMAND_PARTS[part](options, registry)
            continue
        for name in options.cases or DEFAULT_CASES[part]:
            print_err(f"measuring part {part}, {name}")
            for steps in numbers_of_steps(part, name, options):
                yield from CASE_PARTS[part](name, steps, options, registry)


def numbers_of_steps(part: str, name: str, options: argparse.Namespace) -> list[int]:
    """Return the numbers of updates with which a case is measured in turn."""
    if part == "cold":
        return list(options.cold_steps)
    return [options.steps or DEFAULT_STEPS.get(part, CASES[name].steps)]
