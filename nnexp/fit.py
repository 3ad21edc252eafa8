"""One cohort through Lightning: each of its batches is a chunk of many updates, and the count of updates is ours."""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment

from nnexp.errors import Diverged, NnexpError
from nnexp.lane import Lane
from nnexp.metrics import Rows
from nnexp.plan import Cohort, Planned
from nnexp.progress import Progress
from nnexp.registry import Registry
from nnexp.seeding import apply, capture
from nnexp.stop import Stop
from nnexp.writer import Writer, describe, seal

CHUNK_SECONDS = 0.5
FIRST_CHUNK = 20


class Training(pl.LightningModule):
    """Trains the lanes of a cohort, each on its own, in step.

    Args:
        writers: of the lanes to train; they are at the same step.
        stop: says when a signal asks for an end.
        chunk: updates in a chunk, or None for about half a second. Changes no number.
    """

    def __init__(self, writers: list[Writer], stop: Stop, progress: Progress, chunk: int | None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.live = list(writers)
        self.stop, self.progress = stop, progress
        self.modules_of_lanes = torch.nn.ModuleList(writer.lane.module for writer in writers)
        self.fixed_chunk, self.chunk = chunk, chunk or FIRST_CHUNK
        first = writers[0].lane
        self.at, self.max_steps, self.eval_every = first.step, first.trainer.max_steps, first.trainer.eval_every
        self.checkpoint_every = first.job.settings.checkpoint_every

    def configure_optimizers(self) -> None:
        """Nothing: the lanes have their own optimisers, whose steps cost less."""

    def on_train_start(self) -> None:
        self.stop.listen()  # Lightning has put its own handler for SIGTERM in place

    def boundary(self) -> int:
        """The step at which the next chunk ends."""
        ends = [self.at + self.chunk, self.max_steps]
        ends += [(self.at // every + 1) * every for every in (self.eval_every, self.checkpoint_every)]
        return min(ends)

    def training_step(self, _batch: Any, _index: int) -> None:
        """One chunk."""
        began, start, end = time.perf_counter(), self.at, self.boundary()
        lanes = list(self.live)
        for writer in lanes:
            if not guarded(writer, self.stop, partial(self._train, writer, end)):
                self.live.remove(writer)
        seal(lanes)
        if self.live and not self.stop.requested:
            self.at = end
        if self.fixed_chunk is None and end > start:
            rate = (end - start) / max(1e-9, time.perf_counter() - began)
            self.chunk = max(1, min(int(rate * CHUNK_SECONDS), 2 * max(self.chunk, end - start)))
        if not self.live or self.at == self.max_steps or self.stop.requested:
            self.trainer.should_stop = True

    def _train(self, writer: Writer, end: int) -> bool:
        """Bring one lane to step `end`. False where the lane is at its own end."""
        lane = writer.lane
        try:
            rows = lane.advance(end)
        except Diverged as error:
            writer.rows(error.rows)
            writer.diverge(error)
            return False
        if lane.step == end and (end == self.max_steps or end % self.eval_every == 0):
            rows.last.update(lane.evaluate("val"))
            lane.observe(rows.last["val/loss"])
            if lane.is_ended:
                rows.last.update(lane.evaluate("test"))
        writer.rows(rows)
        self.progress.show(lane.step, rows)
        if lane.is_ended:
            finish(writer, rows.last)
        elif lane.step == end and end % self.checkpoint_every == 0:
            writer.checkpoint()
        return not lane.is_ended


def guarded(writer: Writer, stop: Stop, action: Callable[[], bool]) -> bool:
    """What goes wrong in one lane, `sys.exit` included, ends that lane alone: False. Only a user ends them all."""
    try:
        return action()
    except BaseException as error:
        if stop.requested and isinstance(error, KeyboardInterrupt):
            raise
        writer.fail(error)
        return False


def finish(writer: Writer, last: dict[str, float]) -> None:
    """End a lane at its last step, with the final metrics of all splits."""
    evaluated = {name: value for name, value in last.items() if name.startswith(("val/", "test/"))}
    writer.finish(writer.lane.evaluate("train") | evaluated)


def fit(
    cohort: Cohort,
    registry: Registry,
    stop: Stop,
    progress: Progress,
    *,
    chunk: int | None = None,
    training: type[Training] = Training,
) -> None:
    """Train the jobs of one cohort, each into its run directory, whose run.json says how it ended.

    Nothing global is left changed: generators, environment, logging, threads.
    """
    with undisturbed():
        device = torch_device(cohort[0].job.settings.device)
        writers = [w for planned in cohort if (w := _open(planned, registry, device, stop, progress)) is not None]
        for run in (planned.run for planned in cohort):
            run.heartbeat()
        pending = [writer for writer in writers if guarded(writer, stop, partial(_start, writer))]
        seal(writers)
        if not pending:
            return
        module = training(pending, stop, progress, chunk)
        try:
            _trainer(device, pending[0].lane.job.settings.precision).fit(module, itertools.repeat(0))
        except BaseException as error:
            _abandon(module, error, stop)
        for writer in module.live:
            writer.interrupt()


def _open(planned: Planned, registry: Registry, device: torch.device, stop: Stop, progress: Progress) -> Writer | None:
    """The lane of a job and its writer; None where it could not be made, which its run.json then says."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lane = Lane(planned.job, registry, device, lambda: stop.requested)
        notes = [str(warning.message) for warning in caught if warning.category is UserWarning]
        writer = Writer(planned.run, lane, planned.fingerprint, path="solo", notes=notes)
        if not writer.is_fresh:
            progress.say(f"goes on from step {lane.step}")
        return writer
    except BaseException as error:
        if stop.requested and isinstance(error, KeyboardInterrupt):
            raise
        with suppress(OSError):  # a full disk: the run stays as it was
            planned.run.write(status="failed", error=describe(error), steps=0)
        return None


def _start(writer: Writer) -> bool:
    """Row 0, before any training. False where the lane is already at its end."""
    lane = writer.lane
    if writer.is_fresh:
        row = lane.evaluate("val") | (lane.evaluate("test") if lane.is_ended else {})
        lane.observe(row["val/loss"])
        writer.rows(Rows(1, [], [], {0: row}))
        if lane.is_ended:
            finish(writer, row)
    return not lane.is_ended


def _abandon(training: Training, error: BaseException, stop: Stop) -> None:
    """End the lanes where they are. An update may be half done, so no checkpoint is made of it."""
    hard_stop = stop.requested and isinstance(error, KeyboardInterrupt | SystemExit)
    for writer in training.live:
        writer.halt() if hard_stop else writer.fail(error)
    training.live.clear()
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise KeyboardInterrupt from None


def torch_device(name: str) -> torch.device:
    """The device that a job asks for. Raises NnexpError where this machine has none."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, there in found.items() if there))
    if not found[name]:
        raise NnexpError(f"device={name}: there is none on this machine. Use device=cpu, or device=auto.")
    return torch.device(name)


def _trainer(device: torch.device, precision: int | str) -> pl.Trainer:
    return pl.Trainer(
        accelerator={"cuda": "gpu"}.get(device.type, device.type),
        devices=1,
        precision="64-true" if precision == 64 else "32-true",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        plugins=[LightningEnvironment()],  # one process, also inside a Slurm job of many tasks
    )


@contextmanager
def undisturbed() -> Iterator[None]:
    """What the block does to generators, environment, folder, streams, threads, defaults and logging, undone."""
    state, environment, threads = capture(), dict(os.environ), torch.get_num_threads()
    loggers = [logging.getLogger(name) for name in ("", "pytorch_lightning", "lightning.pytorch")]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    default, device, gradients = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    here, umask, streams = Path.cwd(), os.umask(0o22), (sys.stdout, sys.stderr)
    os.umask(umask)
    torch.set_num_threads(1)
    for name in [name for name in os.environ if name.startswith("PL_TRAINER_")]:
        del os.environ[name]  # they would change the Trainer's arguments behind our back
    for logger in loggers[1:]:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*configure_optimizers. returned .None.*")
            warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated")  # Lightning's own
            yield
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
        torch.set_num_threads(threads)
        torch.set_default_dtype(default)
        if torch.get_default_device() != device:  # setting it, even to the CPU, makes every operation slower
            torch.set_default_device(None if device.type == "cpu" else device)
        torch.set_grad_enabled(gradients)
        os.chdir(here)
        os.umask(umask)
        sys.stdout, sys.stderr = streams
        os.environ.clear()
        os.environ.update(environment)
        apply(state)
