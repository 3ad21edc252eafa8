"""Part d: start-up time. First update of the main job against importing Lightning, help against importing Hydra."""

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
# The second call of `listen` comes when Lightning is about to make its first step; the first is the command's own.
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
    """Yield the seconds from process start to an event in it, those of an import, and their ratio."""
    for case, moment, code, imported in PAIRS:
        seconds(code)  # warm up: files are then cached in memory
        pairs = [(seconds(code), seconds(f"{imported}\nimport os, time; {STAMP}")) for _ in range(rounds)]

        def row(what: str, unit: str, values: list[float], bar: float | None = None, case: str = case) -> Measurement:
            return Measurement(part="d", case=case, what=what, unit=unit, values=values, bar=bar, better="low")

        yield row(f"to {moment}", "s", [ours for ours, _ in pairs])
        yield row(imported, "s", [reference for _, reference in pairs])
        yield row("ratio", "x", [ours / reference for ours, reference in pairs], START)


def seconds(code: str | None) -> float:
    """Return the seconds from process start to the time that the code prints; for None, to the exit of `--help`.

    Raises NnexpError where the process fails.
    """
    words = ["-m", "nnexp", "--help"] if code is None else ["-c", code]
    with TemporaryDirectory() as folder:
        start_time = time.time()
        result = subprocess.run([sys.executable, *words], cwd=folder, env=one_thread(), capture_output=True, text=True)
        end_time = time.time()
    if result.returncode:
        raise NnexpError(f"python {words[0]}: {(result.stderr.strip().splitlines() or [''])[-1]}")
    return (end_time if code is None else float(result.stdout.split()[-1])) - start_time
