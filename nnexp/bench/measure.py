"""What was asked for, part by part and case by case."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import torch

from nnexp.bench.cases import CASES
from nnexp.bench.cold import cold
from nnexp.bench.doubling import doubling
from nnexp.bench.options import CASES_OF, STEPS
from nnexp.bench.planning import planning
from nnexp.bench.probes import probes
from nnexp.bench.report import Measurement
from nnexp.bench.single import single
from nnexp.bench.start import start
from nnexp.bench.sweep import sweep
from nnexp.bench.workers import workers
from nnexp.registry import Registry, discover
from nnexp.tell import tell

OF_COMMANDS: dict[str, Callable[[argparse.Namespace, Registry], Iterator[Measurement]]] = {
    "d": lambda options, _: start(options.rounds),
    "plan": lambda options, _: planning(options.plan_jobs, options.plan_composed),
    "workers": lambda options, registry: workers(options.worker_jobs, options.rounds, registry),
}
OF_CASES = {"a": single, "b": sweep, "cold": cold, "c": doubling, "probes": probes}


def measure(options: argparse.Namespace) -> Iterator[Measurement]:
    """Each quantity when it is known."""
    torch.set_num_threads(1)
    registry = discover()
    for part in options.part:
        if part in OF_COMMANDS:
            tell(f"measuring part {part}")
            yield from OF_COMMANDS[part](options, registry)
            continue
        for name in options.cases or CASES_OF[part]:
            tell(f"measuring part {part}, {name}")
            for steps in lengths(part, name, options):
                yield from OF_CASES[part](name, steps, options, registry)


def lengths(part: str, name: str, options: argparse.Namespace) -> list[int]:
    """How many updates each job makes, one after another."""
    return list(options.cold_steps) if part == "cold" else [options.steps or STEPS.get(part, CASES[name].steps)]
