"""What was asked for, part by part and case by case."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch

from nnexp.bench.cold import cold
from nnexp.bench.doubling import doubling
from nnexp.bench.options import CASES_OF, STEPS
from nnexp.bench.report import Measurement
from nnexp.bench.single import single
from nnexp.bench.start import start
from nnexp.bench.sweep import sweep
from nnexp.registry import discover
from nnexp.tell import tell

OF_CASES = {"a": single, "b": sweep, "cold": cold, "c": doubling}


def measure(options: argparse.Namespace) -> Iterator[Measurement]:
    """Each quantity when it is known."""
    torch.set_num_threads(1)
    registry = discover()
    for part in options.part:
        if part == "d":
            yield from start(options.rounds)
            continue
        for name in options.cases or CASES_OF[part]:
            tell(f"measuring part {part}, {name}")
            for steps in options.cold_steps if part == "cold" else [options.steps or STEPS[part]]:
                yield from OF_CASES[part](name, steps, options, registry)
