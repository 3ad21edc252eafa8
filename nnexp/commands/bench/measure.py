"""What was asked for, part by part and case by case."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import torch

from nnexp.base import print_err
from nnexp.commands.bench.cases import CASES
from nnexp.commands.bench.cold import cold
from nnexp.commands.bench.doubling import doubling
from nnexp.commands.bench.options import CASES_OF, STEPS
from nnexp.commands.bench.planning import planning
from nnexp.commands.bench.probes import probes
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.single import single
from nnexp.commands.bench.start import start
from nnexp.commands.bench.sweep import sweep
from nnexp.commands.bench.workers import workers
from nnexp.registry import Registry, discover

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
            print_err(f"measuring part {part}")
            yield from OF_COMMANDS[part](options, registry)
            continue
        for name in options.cases or CASES_OF[part]:
            print_err(f"measuring part {part}, {name}")
            for steps in lengths(part, name, options):
                yield from OF_CASES[part](name, steps, options, registry)


def lengths(part: str, name: str, options: argparse.Namespace) -> list[int]:
    """How many updates each job makes, one after another."""
    return list(options.cold_steps) if part == "cold" else [options.steps or STEPS.get(part, CASES[name].steps)]
