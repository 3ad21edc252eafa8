"""Part d: start-up. The first update of the main job against importing Lightning, help against importing Hydra."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from nnexp.base import NnexpError
from nnexp.commands.bench.cases import START
from nnexp.commands.bench.environment import one_thread
from nnexp.commands.bench.report import Measurement

STAMP = "print(time.time(), flush=True); os._exit(0)"
# Training listens for signals when Lightning is about to make its first step; the command itself did so before.
MAIN_JOB = f"""
import os, runpy, sys, time
from nnexp.base import StopRequest as Stop
listen, times = Stop.listen, []
def stamped(stop):
    times.append(0)
    if len(times) == 2: {STAMP}
    listen(stop)
Stop.listen = stamped
sys.argv = ["nnexp"]
runpy.run_module("nnexp", run_name="__main__")
"""
PAIRS = (
    ("python -m nnexp", "first step", MAIN_JOB, "import pytorch_lightning"),
    ("python -m nnexp --help", "its end", None, "import hydra"),
)


def start(rounds: int) -> Iterator[Measurement]:
    """Seconds from the start of a process to a moment in it, and their ratio to an import."""
    for case, moment, code, imported in PAIRS:
        seconds(code)  # once unmeasured: files are then in memory
        pairs = [(seconds(code), seconds(f"{imported}\nimport os, time; {STAMP}")) for _ in range(rounds)]

        def row(what: str, unit: str, values: list[float], bar: float | None = None, case: str = case) -> Measurement:
            return Measurement(part="d", case=case, what=what, unit=unit, values=values, bar=bar, better="low")

        yield row(f"to {moment}", "s", [ours for ours, _ in pairs])
        yield row(imported, "s", [theirs for _, theirs in pairs])
        yield row("ratio", "x", [ours / theirs for ours, theirs in pairs], START)


def seconds(code: str | None) -> float:
    """From the start of a Python process to the time that the code prints; of help, to its exit."""
    words = ["-m", "nnexp", "--help"] if code is None else ["-c", code]
    with TemporaryDirectory() as folder:
        began = time.time()
        result = subprocess.run([sys.executable, *words], cwd=folder, env=one_thread(), capture_output=True, text=True)
        ended = time.time()
    if result.returncode:
        raise NnexpError(f"python {words[0]}: {(result.stderr.strip().splitlines() or [''])[-1]}")
    return (ended if code is None else float(result.stdout.split()[-1])) - began
