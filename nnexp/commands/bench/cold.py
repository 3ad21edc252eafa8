"""Part cold: the whole command of a sweep with empty caches, against a process that imports torch and runs loops."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from nnexp.base import NnexpError
from nnexp.commands.bench.cases import CASES, speed_bars
from nnexp.commands.bench.environment import no_caches
from nnexp.commands.bench.jobs import sweep_overrides
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.sweep import Round, bare_rate, compare, describe_scaling, lightning_rate
from nnexp.registry import Registry
from nnexp.rundir import Run


def cold(name: str, steps: int, options: argparse.Namespace, registry: Registry) -> Iterator[Measurement]:
    """Yield the seconds of each method from process start to exit, and the speed-ups."""
    bars = speed_bars(CASES[name].cold.get(steps), options.jobs)
    rounds = [measure_round(name, steps, number, options, registry) for number in range(options.cold_rounds)]
    ratio = f"{{method}} / ours, {steps} steps"

    def scaled(method: str) -> str:
        if method == "ours":
            return describe_command_scaling(steps, options)
        return f"loops of {describe_scaling(method, options)}, its import as it is"

    yield from compare(rounds, steps, ratio, bars, scaled, part="cold", case=name, at=options.jobs)


def describe_command_scaling(steps: int, options: argparse.Namespace) -> str:
    """Return from which commands the time of ours is extrapolated; "" where the whole command is timed."""
    limit = options.cold_most_steps
    return f"ours, {steps} steps, from commands of {limit // 2} and {limit} steps" if limit and steps > limit else ""


def measure_round(name: str, steps: int, number: int, options: argparse.Namespace, registry: Registry) -> Round:
    """Return the seconds of each method from process start to exit, and the paths of our runs."""
    first, total = number * options.jobs, options.jobs * steps
    limit = options.cold_most_steps
    if limit is None or steps <= limit:
        ours, paths = time_command(name, steps, first, options.jobs)
    else:
        half, _ = time_command(name, limit // 2, first, options.jobs)
        ours, paths = time_command(name, limit, first, options.jobs)
        ours += (steps - limit) * (ours - half) / (limit - limit // 2)
    with TemporaryDirectory() as folder:
        loops = total * bare_rate(name, first, options, registry)
        seconds = {"ours": ours, "bare": time_python(["-c", "import torch"], folder) + loops}
        if options.lightning_steps:
            loops = total * lightning_rate(name, first, options, registry)
            seconds["Lightning"] = time_python(["-c", "import pytorch_lightning"], folder) + loops
    return seconds, paths


def time_command(name: str, steps: int, first: int, jobs: int) -> tuple[float, set[str]]:
    """Return the seconds of our whole command, and the paths of its runs."""
    with TemporaryDirectory() as folder:
        overrides = sweep_overrides(CASES[name].overrides, steps, range(first, first + jobs))
        seconds = time_python(["-m", "nnexp", "-m", *overrides, "sweep.workers=1"], folder)
        return seconds, {str(Run(path.parent).read()["path"]) for path in Path(folder).glob("runs/*/*/run.json")}


def time_python(words: Sequence[str], folder: str) -> float:
    """Return the seconds of a Python process from start to exit. Raises NnexpError where it fails."""
    start = time.perf_counter()
    result = subprocess.run([sys.executable, *words], cwd=folder, env=no_caches(folder), capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if result.returncode:
        raise NnexpError(f"python {' '.join(words)}: {(result.stderr.strip().splitlines() or [''])[-1]}")
    return seconds
