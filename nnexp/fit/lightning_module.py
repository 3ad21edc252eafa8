"""LightningModule that trains a cohort in chunks: one batch of Lightning is a chunk of many optimiser updates."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch

from nnexp.base import StopRequest
from nnexp.fit.lightning_trainer import pl
from nnexp.fit.progress import ProgressListener
from nnexp.fit.run_writer import RunWriter, seal_runs
from nnexp.rundir import Rows, log_output_to
from nnexp.training import Diverged, Lane

CHUNK_SECONDS = 0.5
FIRST_CHUNK = 20
CHECKPOINT_SECONDS = 10.0
CHECKPOINT_COST_FACTOR = 30  # checkpoints of many lanes take at most a thirtieth of the time


class Engine(Protocol):
    """Computes the updates of lanes that are at the same step: `SoloLane` or `nnexp.stacking.Stack`."""

    step: int

    def advance(self, stop: int) -> dict[Lane, Rows | Diverged]:
        """Train up to step `stop`, or less after a stop request, and return the rows of these steps by lane.

        A lane whose loss is not finite has a `Diverged` error, with its rows before that step, instead.
        """

    def evaluate(self, split: str) -> dict[Lane, dict[str, float]]:
        """Return the metrics of a split by lane, named `<split>/<name>`."""

    def release(self, lane: Lane) -> None:
        """Drop a lane that has ended: it is left out of all later results."""

    def compacted(self) -> Engine:
        """Return an engine without the released lanes if that is faster, otherwise this one."""


class SoloLane:
    """Engine of one lane on the solo path: its own module and autograd."""

    def __init__(self, lane: Lane) -> None:
        self.lane, self.step = lane, lane.step

    def advance(self, stop: int) -> dict[Lane, Rows | Diverged]:
        """Train up to step `stop`; see `Engine.advance`."""
        outcome: Rows | Diverged
        try:
            outcome = self.lane.advance(stop)
        except Diverged as error:
            outcome = error
        self.step = self.lane.step
        return {self.lane: outcome}

    def evaluate(self, split: str) -> dict[Lane, dict[str, float]]:
        """Return the metrics of a split; see `Engine.evaluate`."""
        return {self.lane: self.lane.evaluate(split)}

    def release(self, lane: Lane) -> None:
        """Do nothing: without its only lane the fit ends."""

    def compacted(self) -> Engine:
        """Return this engine."""
        return self


class CohortModule(pl.LightningModule):
    """Trains lanes in chunks and records each in its run directory.

    Args:
        engine: trains the lanes.
        writers: record these lanes, one each.
        stop: requested by a signal or by the sweep.
        progress: is notified of every chunk.
        chunk: updates per chunk, or None for about half a second. Changes no number.

    Attributes:
        writers: those of the lanes still in training, by lane.
        error: exception that ended the fit and that cannot be attributed to a lane.
    """

    def __init__(
        self,
        engine: Engine,
        writers: list[RunWriter],
        stop: StopRequest,
        progress: ProgressListener,
        chunk: int | None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.engine, self.stop, self.progress = engine, stop, progress
        self.writers = {writer.lane: writer for writer in writers}
        self.error: BaseException | None = None
        self.modules_of_lanes = torch.nn.ModuleList(writer.lane.module for writer in writers)
        self.fixed_chunk, self.chunk = chunk, chunk or FIRST_CHUNK
        first = writers[0].lane
        self.max_steps, self.eval_every = first.trainer.max_steps, first.trainer.eval_every
        self.checkpoint_every = first.job.options.checkpoint_every
        self.next_checkpoint = time.monotonic() + CHECKPOINT_SECONDS

    def configure_optimizers(self) -> None:
        """Return no optimiser: lanes have their own, which cost less per step than Lightning's wrapper."""

    def on_train_start(self) -> None:
        """Install the signal handlers again: Lightning has replaced the one for SIGTERM."""
        self.stop.listen()

    def chunk_end(self) -> int:
        """Return the step at which the next chunk ends: at the latest where something else is due."""
        step = self.engine.step
        ends = [step + self.chunk, *(writer.next_probe_step(step) for writer in self.writers.values())]
        ends += [(step // every + 1) * every for every in (self.eval_every, self.checkpoint_every) if every]
        return min(ends)

    def training_step(self, _batch: Any, _index: int) -> None:
        """Train one chunk, record it, and end the fit when no lane is left or a stop is requested."""
        began, start, end = time.perf_counter(), self.engine.step, self.chunk_end()
        try:
            outcomes = self.engine.advance(end)
            evaluated = self.engine.evaluate("val") if self._is_evaluation(end) else {}
        except BaseException as error:  # CohortFit finds the lane that caused it, after the fit
            self.error, self.trainer.should_stop = error, True
            return
        rate = (self.engine.step - start) / max(1e-9, time.perf_counter() - began)
        self._record_lanes(outcomes, evaluated)
        if self.fixed_chunk is None:
            self.chunk = max(1, min(int(rate * CHUNK_SECONDS), 2 * max(self.chunk, end - start)))
        self.engine = self.engine.compacted()
        if not self.writers or self.stop.requested:
            self.trainer.should_stop = True

    def _record_lanes(self, outcomes: dict[Lane, Rows | Diverged], evaluated: dict[Lane, dict[str, float]]) -> None:
        """Record a chunk of every lane, release the lanes that have ended, and seal their runs."""
        writers = list(self.writers.values())
        is_checkpoint, began = self._is_checkpoint(), time.monotonic()
        for lane, outcome in outcomes.items():
            record = partial(self._record, self.writers[lane], outcome, evaluated.get(lane), is_checkpoint)
            if not run_or_fail(self.writers[lane], self.stop, record):
                del self.writers[lane]
                self.engine.release(lane)
        seal_runs(writers)
        if is_checkpoint:
            now = time.monotonic()
            self.next_checkpoint = now + max(CHECKPOINT_SECONDS, CHECKPOINT_COST_FACTOR * (now - began))

    def _is_evaluation(self, end: int) -> bool:
        return self.engine.step == end and (end == self.max_steps or end % self.eval_every == 0)

    def _is_checkpoint(self) -> bool:
        if self.checkpoint_every is None:
            return time.monotonic() >= self.next_checkpoint
        return self.engine.step % self.checkpoint_every == 0

    def _record(
        self, writer: RunWriter, outcome: Rows | Diverged, evaluated: dict[str, float] | None, is_checkpoint: bool
    ) -> bool:
        """Record a chunk of one lane; return False if the lane has ended."""
        lane = writer.lane
        if isinstance(outcome, Diverged):
            writer.add_rows(outcome.rows)
            writer.diverge(outcome)
            return False
        if evaluated is not None:
            outcome.last.update(evaluated)
            lane.update_patience(evaluated["val/loss"])
            if lane.is_ended:
                outcome.last.update(lane.evaluate("test"))
        writer.add_rows(outcome)
        self.progress.show(lane.step, outcome)
        writer.observe(is_end=lane.is_ended)
        if lane.is_ended:
            finish_lane(writer, outcome.last)
        elif is_checkpoint and len(outcome):
            writer.checkpoint()
        return not lane.is_ended


def run_or_fail(writer: RunWriter, stop: StopRequest, action: Callable[[], bool]) -> bool:
    """Run an action of one lane and return its result; if it raises, fail that lane's run only and return False.

    `SystemExit` in a plugin fails the run too. A KeyboardInterrupt of the user, after a stop request, is raised.
    """
    try:
        with log_output_to([writer.run]):
            return action()
    except BaseException as error:
        if stop.requested and isinstance(error, KeyboardInterrupt):
            raise
        writer.fail(error)
        return False


def finish_lane(writer: RunWriter, last: dict[str, float]) -> None:
    """Finish a lane at its last step with the final metrics of all splits.

    Args:
        writer: of the lane.
        last: the last row, which has the validation and test metrics.
    """
    evaluated = {name: value for name, value in last.items() if name.startswith(("val/", "test/"))}
    writer.finish(writer.lane.evaluate("train") | evaluated)
