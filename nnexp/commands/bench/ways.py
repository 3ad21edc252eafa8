"""The ways to train that are compared, each timed from its first update to its last."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from nnexp.base import NnexpError, StopRequest, isolated
from nnexp.config import Job, compose_jobs
from nnexp.data import DatasetCache
from nnexp.execution import plan_cohorts
from nnexp.fit import CohortFit, ProgressBar, pl
from nnexp.registry import Registry
from nnexp.rundir import Cohort
from nnexp.training import Lane

CPU = torch.device("cpu")


def make_jobs(
    overrides: Sequence[str], registry: Registry, folder: str, steps: int, seeds: range, eval_every: int | None = None
) -> list[Job]:
    """The same job for each seed: batches of 32, evaluated at the end alone, as a bare loop evaluates nothing."""
    return compose_jobs([*settings(overrides, steps, seeds, eval_every), f"runs='{folder}'"], registry, multirun=True)


def settings(overrides: Sequence[str], steps: int, seeds: range, eval_every: int | None = None) -> list[str]:
    """The overrides of such a sweep."""
    lengths = [f"trainer.max_steps={steps}", f"trainer.eval_every={eval_every or max(1, steps)}"]
    return [*overrides, *lengths, "trainer.batch_size=32", f"seed=range({seeds.start},{seeds.stop})"]


class Clock(StopRequest):
    """Notes when Lightning begins to train: Training listens for signals then."""

    def __init__(self) -> None:
        super().__init__()
        self.listened: list[float] = []

    def listen(self) -> None:
        super().listen()
        self.listened.append(time.perf_counter())


class Marks(ProgressBar):
    """Notes when each chunk ends."""

    def __init__(self) -> None:
        super().__init__("", 0, quiet=True)
        self.times: dict[int, float] = {}

    def show(self, step: int, rows: Any) -> None:
        self.times[step] = time.perf_counter()


@dataclass
class Trained:
    """What is known of jobs that were trained.

    Args:
        seconds: from the first update to the last sealed run directory.
        paths: how they were trained, as run.json says.
        parameters: of one model.
        probing: what the probes of the last job took.
        marks: for each cohort, when it was at which step.
    """

    seconds: float
    paths: set[str] = field(default_factory=set)
    parameters: int = 0
    probing: dict[str, Any] = field(default_factory=dict)
    marks: list[dict[int, float]] = field(default_factory=list)


def train(jobs: list[Job], registry: Registry) -> Trained:
    """Our own way, as a command does it: the jobs planned, then one cohort after another."""
    cohorts = plan_cohorts(jobs, registry)
    result, clock, datasets = Trained(0.0), Clock(), DatasetCache()
    with clock.handling():
        handled = len(clock.listened)
        for cohort in cohorts:
            marks = Marks()
            _train(cohort, CohortFit(registry=registry, stop=clock, progress=marks, datasets=datasets))
            result.marks.append(marks.times)
    result.seconds = time.perf_counter() - clock.listened[handled]
    if clock.requested:
        raise KeyboardInterrupt
    for facts in [planned.run.read() for cohort in cohorts for planned in cohort]:
        if facts["status"] != "finished":
            raise NnexpError(f"a run that was to be timed: {facts['status']}: {facts['error']}")
        result.paths.add(facts["path"])
        result.parameters, result.probing = facts["parameters"], facts.get("probing", {})
    return result


def _train(cohort: Cohort, fit: CohortFit) -> None:
    for planned in cohort:
        planned.run.lock()
    fit.train(cohort)
    for planned in cohort:
        planned.run.unlock()


def bare(job: Job, registry: Registry) -> float:
    """Seconds of a plain loop over the same batches, with the same arithmetic."""
    with isolated():
        return _bare(Lane(job, registry, CPU, lambda: False))


def _bare(lane: Lane) -> float:
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


class LightningDefaults(pl.LightningModule):
    """What a user of Lightning writes first: automatic optimisation and `self.log`."""

    def __init__(self, module: nn.Module, lr: float) -> None:
        super().__init__()
        self.module, self.lr, self.began = module, lr, 0.0

    def on_train_start(self) -> None:
        self.began = time.perf_counter()

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.module(x), y)
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def lightning(job: Job, registry: Registry) -> float:
    """Seconds of Lightning with its defaults: DataLoader, logger, progress bar, checkpoints."""
    with isolated(), tempfile.TemporaryDirectory() as folder:
        lane = Lane(job, registry, CPU, lambda: False)
        module = LightningDefaults(nn.Sequential(lane.module), lane.trainer.lr)
        loader = DataLoader(TensorDataset(*lane.splits["train"]), batch_size=lane.batches.size, shuffle=True)
        shown = io.StringIO()  # its bar is drawn, as by default, but not among our lines
        with redirect_stdout(shown), redirect_stderr(shown):
            trainer = pl.Trainer(
                max_steps=lane.trainer.max_steps, max_epochs=-1, default_root_dir=Path(folder), accelerator="cpu"
            )
            trainer.fit(module, loader)
        return time.perf_counter() - module.began
