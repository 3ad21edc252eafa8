"""The same sweep with mushin-py, a tool that runs a function over a grid with hydra-zen.

mushin-py leaves training to the user's function. Here that is the bare loop, the fastest choice, so the measurement is
that of the loop and of what mushin-py adds to each job (its folder, config and provenance).
"""

from __future__ import annotations

import argparse
import json
import subprocess
from tempfile import TemporaryDirectory
from typing import Any

from nnexp.base import NnexpError
from nnexp.commands.bench.cases import CASES
from nnexp.commands.bench.environment import one_thread

SCRIPT = """
import json, sys, time
import mushin
import torch
from nnexp.commands.bench.jobs import make_jobs
from nnexp.commands.bench.reference_loops import bare_seconds
from nnexp.registry import discover

torch.set_num_threads(1)
overrides, steps, first, num_jobs = json.loads(sys.argv[1])
registry, seconds, starts = discover(), [], []
jobs = make_jobs(overrides, registry, "runs", steps, range(first, first + num_jobs))

@mushin.sweep
def experiment(seed):
    starts.append(time.perf_counter())
    seconds.append(bare_seconds(jobs[seed - first], registry))
    return {"seconds": seconds[-1]}

experiment.run(seed=mushin.multirun(list(range(first, first + num_jobs))))
whole = time.perf_counter() - starts[0]
print("\\n" + json.dumps({"training": sum(seconds), "whole": whole}))
"""


def peer_seconds(name: str, steps: int, first: int, options: argparse.Namespace) -> float:
    """Return the seconds of the sweep from its first update to its dataset of results.

    Extrapolated from the overhead of a job and the time of an update, both measured on `loop_jobs` jobs of
    `loop_steps` updates.
    """
    arguments = [list(CASES[name].overrides), options.loop_steps, first, options.loop_jobs]
    seconds = run(options.peer_python, arguments)
    per_update = seconds["training"] / options.loop_jobs / options.loop_steps
    per_job = (seconds["whole"] - seconds["training"]) / options.loop_jobs
    return float(options.jobs * (per_job + steps * per_update))


def run(python: str, arguments: list[Any]) -> dict[str, float]:
    """Return the seconds of the loops and of the whole sweep.

    Raises NnexpError, with the last line of its errors, where mushin-py cannot run.
    """
    with TemporaryDirectory() as folder:
        command = [python, "-c", SCRIPT, json.dumps(arguments)]
        try:
            result = subprocess.run(command, cwd=folder, env=one_thread(), capture_output=True, text=True)
        except OSError as error:
            raise NnexpError(f"--peer-python {python}: {error.strerror}.") from None
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no error message"])[-1]
        raise NnexpError(f"--peer-python {python}: mushin-py did not run: {reason}")
    seconds: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return seconds
