"""The whole command of a sweep, cold, against one process that imports torch, or Lightning, and runs the loops."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from nnexp.bench.cases import CASES, LIGHTNING
from nnexp.bench.environment import no_caches
from nnexp.bench.report import Measurement
from nnexp.bench.sweep import bare_rate, lightning_rate, scaling
from nnexp.bench.ways import settings
from nnexp.errors import NnexpError
from nnexp.record import Run
from nnexp.registry import Registry


def cold(name: str, steps: int, options: argparse.Namespace, registry: Registry) -> Iterator[Measurement]:
    """Seconds from start to exit, and how many times ours is faster."""
    rounds, paths = [], set()
    for number in range(options.cold_rounds):
        seconds, path = measure_round(name, steps, number, options, registry)
        rounds.append(seconds)
        paths |= path
    bar = CASES[name].cold.get(steps)
    bars = {"bare": bar, "Lightning": bar and LIGHTNING * bar}
    for way in rounds[0]:
        scaled = "" if way == "ours" else f"loops of {scaling(way, options)}, its import as it is"
        times = [seconds[way] for seconds in rounds]
        row = {"part": "cold", "case": name, "at": options.jobs, "path": ", ".join(sorted(paths)), "scaled": scaled}
        yield Measurement(what=f"{way}, {steps} steps", unit="s", values=times, **row)
        if way != "ours":
            ratios = [seconds[way] / seconds["ours"] for seconds in rounds]
            yield Measurement(what=f"{way} / ours, {steps} steps", unit="x", values=ratios, bar=bars[way], **row)


def measure_round(
    name: str, steps: int, number: int, options: argparse.Namespace, registry: Registry
) -> tuple[dict[str, float], set[str]]:
    """Seconds from start to exit of each way, and the paths of ours."""
    first, total = number * options.jobs, options.jobs * steps
    with TemporaryDirectory() as folder:
        words = settings(CASES[name].overrides, steps, range(first, first + options.jobs))
        ours = process(["-m", "nnexp", "-m", *words], folder)
        paths = {str(Run(path.parent).read()["path"]) for path in Path(folder).glob("runs/*/*/run.json")}
    with TemporaryDirectory() as folder:
        loops = total * bare_rate(name, first, options, registry)
        seconds = {"ours": ours, "bare": process(["-c", "import torch"], folder) + loops}
        if options.lightning_steps:
            loops = total * lightning_rate(name, first, options, registry)
            seconds["Lightning"] = process(["-c", "import pytorch_lightning"], folder) + loops
    return seconds, paths


def process(words: Sequence[str], folder: str) -> float:
    """Seconds of a Python process from start to exit. Raises NnexpError where it fails."""
    began = time.perf_counter()
    result = subprocess.run([sys.executable, *words], cwd=folder, env=no_caches(folder), capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if result.returncode:
        raise NnexpError(f"python {' '.join(words)}: {(result.stderr.strip().splitlines() or [''])[-1]}")
    return seconds
