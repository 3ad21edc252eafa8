"""python -m nnexp.bench: what a single run costs here, against a bare loop and against Lightning with its defaults.

Each round trains the same job in all three ways, one after the other in one process; ratios are taken within a round.
The bare loop is plain PyTorch: no Lightning, no DataLoader, the fused optimiser, torch's own layers, loss and gradient
norm kept on the device. It is timed from its first update to its last, imports excluded. Ours is timed from the first
update to the sealed run directory, everything written.
"""

from __future__ import annotations

import argparse
import io
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from nnexp.config import Job
from nnexp.fit import Fit, undisturbed
from nnexp.lane import Lane
from nnexp.plan import plan
from nnexp.progress import Progress
from nnexp.registry import Registry, discover
from nnexp.stop import Stop
from nnexp.sweeper import compose_jobs
from nnexp.table import align
from nnexp.training import Training

CASES = {
    "moons mlp": ["dataset=moons", "model=mlp"],
    "pattern lstm": ["dataset=pattern", "model=lstm"],
}
CPU = torch.device("cpu")


class LightningDefaults(pl.LightningModule):
    """What a user of Lightning writes first: automatic optimisation and `self.log`."""

    def __init__(self, module: nn.Module, lr: float) -> None:
        super().__init__()
        self.module, self.lr = module, lr

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.module(x), y)
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def fresh_lane(job: Job, registry: Registry) -> Lane:
    return Lane(job, registry, CPU, lambda: False)


def ours(job: Job, registry: Registry) -> float:
    """Seconds from the first update to the sealed run directory."""
    began: list[float] = []

    class Timed(Training):
        def on_train_start(self) -> None:
            super().on_train_start()
            began.append(time.perf_counter())

    for cohort in plan([job], registry):
        cohort[0].run.lock()
        Fit(registry=registry, stop=Stop(), progress=Progress("", 0, quiet=True), training=Timed).train(cohort)
        ended = time.perf_counter()
        cohort[0].run.unlock()
        assert cohort[0].run.status == "finished"
    return ended - began[0]


def bare(job: Job, registry: Registry) -> float:
    """Seconds of a plain loop over the same batches, with the same arithmetic."""
    lane = fresh_lane(job, registry)
    module, steps, size = lane.module, lane.trainer.max_steps, lane.batches.size
    x, y = lane.splits["train"]
    optimizer = torch.optim.Adam(module.parameters(), lr=lane.trainer.lr, fused=True)
    params = list(module.parameters())
    losses, norms = torch.zeros(steps), torch.zeros(steps)
    generator = torch.Generator().manual_seed(0)
    began, step = time.perf_counter(), 0
    while step < steps:
        for rows in torch.randperm(len(x), generator=generator).split(size):
            loss = nn.functional.cross_entropy(module(x[rows]), y[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norms[step] = torch.nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])
            losses[step] = loss.detach()
            optimizer.step()
            step += 1
            if step == steps:
                break
    return time.perf_counter() - began


def lightning(job: Job, registry: Registry) -> float:
    """Seconds of Lightning with its defaults: DataLoader, logger, progress bar, checkpoints."""
    lane = fresh_lane(job, registry)
    module = nn.Sequential(lane.module)
    loader = DataLoader(TensorDataset(*lane.splits["train"]), batch_size=lane.batches.size, shuffle=True)
    steps, shown = lane.trainer.max_steps, io.StringIO()  # its bar is drawn, as by default, but not among our lines
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(shown), redirect_stderr(shown):
        trainer = pl.Trainer(max_steps=steps, max_epochs=-1, default_root_dir=folder, accelerator="cpu")
        began = time.perf_counter()
        trainer.fit(LightningDefaults(module, lane.trainer.lr), loader)
        return time.perf_counter() - began


def compare(
    overrides: list[str], steps: int, lightning_steps: int, rounds: int, registry: Registry
) -> list[list[float]]:
    """For each round, microseconds per step: ours, bare, Lightning."""
    results = []
    for number in range(rounds):
        row = []
        with tempfile.TemporaryDirectory() as folder:
            for way, count in ((ours, steps), (bare, steps), (lightning, lightning_steps)):
                if count:
                    row.append(1e6 * _seconds(way, overrides, count, number, folder, registry) / count)
        results.append(row)
    return results


Way = Callable[[Job, Registry], float]


def _seconds(way: Way, overrides: list[str], steps: int, seed: int, folder: str, registry: Registry) -> float:
    """One training, its batches of 32, evaluated at its end alone, as the bare loop evaluates nothing."""
    settings = [f"trainer.max_steps={steps}", f"trainer.eval_every={max(1, steps)}", "trainer.batch_size=32"]
    job = compose_jobs([*overrides, *settings, f"seed={seed}", f"runs='{Path(folder) / 'runs'}'"], registry)[0]
    with undisturbed():
        return way(job, registry)


def spread(values: Sequence[float]) -> str:
    if not values:
        return "not run"
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def main(argv: Sequence[str] | None = None) -> int:
    """Print, for each case, microseconds per step and the ratios with their spread."""
    parser = argparse.ArgumentParser(prog="nnexp.bench", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=20_000, help="updates of ours and of the bare loop")
    parser.add_argument("--lightning-steps", type=int, default=1000, help="updates of plain Lightning; 0: none")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds")
    arguments = parser.parse_args(argv)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    registry = discover()
    rows = [["solo, one thread", "ours us/step", "bare us/step", "ours/bare", "Lightning/ours"]]
    for name, overrides in CASES.items():
        print(f"{name}: {arguments.rounds} rounds of {arguments.steps} steps", file=sys.stderr, flush=True)
        compare(overrides, 200, min(50, arguments.lightning_steps), 1, registry)  # warm up
        rounds = compare(overrides, arguments.steps, arguments.lightning_steps, arguments.rounds, registry)
        to_bare = [row[0] / row[1] for row in rounds]
        from_lightning = [row[2] / row[0] for row in rounds if len(row) > 2]
        columns = [[row[0] for row in rounds], [row[1] for row in rounds], to_bare, from_lightning]
        rows.append([name, *(spread(column) for column in columns)])
    print(f"torch {torch.__version__}; medians (smallest-largest)")
    print(align(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
