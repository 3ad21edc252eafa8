"""The whole command of a sweep, cold, against one process that imports torch, or Lightning, and runs the loops."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from nnexp.base import NnexpError
from nnexp.commands.bench.cases import CASES, bars_of
from nnexp.commands.bench.environment import no_caches
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.sweep import Round, bare_rate, compared, lightning_rate, scaling
from nnexp.commands.bench.ways import settings
from nnexp.registry import Registry
from nnexp.rundir import Run


def cold(name: str, steps: int, options: argparse.Namespace, registry: Registry) -> Iterator[Measurement]:
    """Seconds from start to exit, and how many times ours is faster."""
    bars = bars_of(CASES[name].cold.get(steps), options.jobs)
    rounds = [measure_round(name, steps, number, options, registry) for number in range(options.cold_rounds)]
    ratio = f"{{way}} / ours, {steps} steps"

    def scaled(way: str) -> str:
        own = way == "ours"
        return ours_scaling(steps, options) if own else f"loops of {scaling(way, options)}, its import as it is"

    yield from compared(rounds, steps, ratio, bars, scaled, part="cold", case=name, at=options.jobs)


def ours_scaling(steps: int, options: argparse.Namespace) -> str:
    """From how much our own command is scaled, where it is."""
    most = options.cold_most_steps
    return f"ours, {steps} steps, from commands of {most // 2} and {most} steps" if most and steps > most else ""


def measure_round(name: str, steps: int, number: int, options: argparse.Namespace, registry: Registry) -> Round:
    """Seconds from start to exit of each way, and the paths of ours."""
    first, total = number * options.jobs, options.jobs * steps
    most = options.cold_most_steps
    if most is None or steps <= most:
        ours, paths = command(name, steps, first, options.jobs)
    else:
        half, _ = command(name, most // 2, first, options.jobs)
        ours, paths = command(name, most, first, options.jobs)
        ours += (steps - most) * (ours - half) / (most - most // 2)
    with TemporaryDirectory() as folder:
        loops = total * bare_rate(name, first, options, registry)
        seconds = {"ours": ours, "bare": process(["-c", "import torch"], folder) + loops}
        if options.lightning_steps:
            loops = total * lightning_rate(name, first, options, registry)
            seconds["Lightning"] = process(["-c", "import pytorch_lightning"], folder) + loops
    return seconds, paths


def command(name: str, steps: int, first: int, jobs: int) -> tuple[float, set[str]]:
    """Seconds of our whole command, and the paths of its runs."""
    with TemporaryDirectory() as folder:
        words = settings(CASES[name].overrides, steps, range(first, first + jobs))
        took = process(["-m", "nnexp", "-m", *words, "sweep.workers=1"], folder)
        return took, {str(Run(path.parent).read()["path"]) for path in Path(folder).glob("runs/*/*/run.json")}


def process(words: Sequence[str], folder: str) -> float:
    """Seconds of a Python process from start to exit. Raises NnexpError where it fails."""
    began = time.perf_counter()
    result = subprocess.run([sys.executable, *words], cwd=folder, env=no_caches(folder), capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if result.returncode:
        raise NnexpError(f"python {' '.join(words)}: {(result.stderr.strip().splitlines() or [''])[-1]}")
    return seconds
