"""Reference training loops: plain PyTorch, and Lightning with its defaults, timed from first to last update."""

from __future__ import annotations

import io
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from nnexp.config import Job
from nnexp.fit import pl
from nnexp.registry import Registry
from nnexp.training import Lane, isolated

CPU = torch.device("cpu")


def bare_seconds(job: Job, registry: Registry) -> float:
    """Return the seconds of a plain PyTorch loop over batches of the same size, with the same arithmetic."""
    with isolated():
        return run_bare_loop(Lane(job, registry, CPU, lambda: False))


def run_bare_loop(lane: Lane) -> float:
    """Train a lane's model in place with a plain PyTorch loop and return the seconds it took."""
    module, steps, size = lane.module, lane.trainer.max_steps, lane.batches.size
    x, y = lane.splits["train"]
    optimizer = torch.optim.Adam(module.parameters(), lr=lane.trainer.lr, fused=True)
    params = list(module.parameters())
    losses, norms = torch.zeros(steps), torch.zeros(steps)
    generator = torch.Generator().manual_seed(0)
    start, step = time.perf_counter(), 0
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
    return time.perf_counter() - start


class LightningDefaults(pl.LightningModule):
    """A minimal LightningModule: automatic optimisation and `self.log`."""

    def __init__(self, module: nn.Module, lr: float) -> None:
        super().__init__()
        self.module, self.lr, self.start = module, lr, 0.0

    def on_train_start(self) -> None:
        """Note when training starts."""
        self.start = time.perf_counter()

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:
        """Return and log the loss of a batch."""
        x, y = batch
        loss = nn.functional.cross_entropy(self.module(x), y)
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam with the job's learning rate."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def lightning_seconds(job: Job, registry: Registry) -> float:
    """Return the seconds of Lightning with its defaults: DataLoader, logger, progress bar, checkpoints."""
    with isolated(), tempfile.TemporaryDirectory() as folder:
        lane = Lane(job, registry, CPU, lambda: False)
        module = LightningDefaults(nn.Sequential(lane.module), lane.trainer.lr)
        loader = DataLoader(TensorDataset(*lane.splits["train"]), batch_size=lane.batches.size, shuffle=True)
        output = io.StringIO()  # the progress bar is drawn, as by default, but not on our terminal
        with redirect_stdout(output), redirect_stderr(output):
            trainer = pl.Trainer(
                max_steps=lane.trainer.max_steps, max_epochs=-1, default_root_dir=Path(folder), accelerator="cpu"
            )
            trainer.fit(module, loader)
        return time.perf_counter() - module.start
