"""The same sweep by mushin-py, which runs a function over a grid by hydra-zen.

It trains nothing itself: what its task does is the user's. Here that is the bare loop, the fastest there is, so that
what is measured is the loop and what mushin-py adds to each job (its folder, its config, its provenance).
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
from nnexp.commands.bench.ways import bare, make_jobs
from nnexp.registry.discovery import discover

torch.set_num_threads(1)
overrides, steps, first, jobs = json.loads(sys.argv[1])
registry, trained, began = discover(), [], []
composed = make_jobs(overrides, registry, "runs", steps, range(first, first + jobs))

@mushin.sweep
def experiment(seed):
    began.append(time.perf_counter())
    trained.append(bare(composed[seed - first], registry))
    return {"seconds": trained[-1]}

experiment.run(seed=mushin.multirun(list(range(first, first + jobs))))
whole = time.perf_counter() - began[0]
print("\\n" + json.dumps({"training": sum(trained), "whole": whole}))
"""


def peer(name: str, steps: int, first: int, options: argparse.Namespace) -> float:
    """Seconds of the sweep from its first update to its dataset of results: what a job adds, and what an update costs.

    Both are measured on `loop_jobs` jobs of `loop_steps` updates.
    """
    arguments = [list(CASES[name].overrides), options.loop_steps, first, options.loop_jobs]
    took = run(options.peer_python, arguments)
    an_update = took["training"] / options.loop_jobs / options.loop_steps
    a_job = (took["whole"] - took["training"]) / options.loop_jobs
    return float(options.jobs * (a_job + steps * an_update))


def run(python: str, arguments: list[Any]) -> dict[str, float]:
    """Seconds in the loops and in all. Raises NnexpError, with its last line, where the peer cannot run."""
    with TemporaryDirectory() as folder:
        command = [python, "-c", SCRIPT, json.dumps(arguments)]
        try:
            result = subprocess.run(command, cwd=folder, env=one_thread(), capture_output=True, text=True)
        except OSError as error:
            raise NnexpError(f"--peer-python {python}: {error.strerror}.") from None
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise NnexpError(f"--peer-python {python}: mushin-py did not run: {reason}")
    answer: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return answer
