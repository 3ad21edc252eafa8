"""Lanes through Lightning: each of its batches is a chunk of many updates, and the count of updates is ours."""

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
CHECKPOINT_TIMES = 30  # they take this part of the time at most, where there are many lanes


class Trainable(Protocol):
    """What makes the numbers of some lanes that are at the same step."""

    step: int

    def advance(self, stop: int) -> dict[Lane, Rows | Diverged]:
        """Bring the lanes up to step `stop`, or as far as they come; gives the rows of these steps."""

    def evaluate(self, split: str) -> dict[Lane, dict[str, float]]:
        """Metrics of a split, `<split>/<name>`."""

    def release(self, lane: Lane) -> None:
        """Say nothing more of a lane."""

    def compacted(self) -> Trainable:
        """The same without the lanes that were released, where that pays."""


class SoloLane:
    """One lane, trained by its own module and autograd: the path "solo"."""

    def __init__(self, lane: Lane) -> None:
        self.lane, self.step = lane, lane.step

    def advance(self, stop: int) -> dict[Lane, Rows | Diverged]:
        outcome: Rows | Diverged
        try:
            outcome = self.lane.advance(stop)
        except Diverged as error:
            outcome = error
        self.step = self.lane.step
        return {self.lane: outcome}

    def evaluate(self, split: str) -> dict[Lane, dict[str, float]]:
        return {self.lane: self.lane.evaluate(split)}

    def release(self, lane: Lane) -> None:
        pass

    def compacted(self) -> Trainable:
        return self


class CohortModule(pl.LightningModule):
    """Trains lanes in chunks, and has each recorded in its run directory.

    Args:
        engine: trains the lanes.
        writers: of these lanes.
        stop: says when a signal asks for an end.
        chunk: updates in a chunk, or None for about half a second. Changes no number.
    """

    def __init__(
        self,
        engine: Trainable,
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
        """Nothing: the lanes have their own optimisers, whose steps cost less."""

    def on_train_start(self) -> None:
        self.stop.listen()  # Lightning has put its own handler for SIGTERM in place

    def boundary(self) -> int:
        """The step at which the next chunk ends."""
        step = self.engine.step
        ends = [step + self.chunk, *(writer.next_look(step) for writer in self.writers.values())]
        ends += [(step // every + 1) * every for every in (self.eval_every, self.checkpoint_every) if every]
        return min(ends)

    def training_step(self, _batch: Any, _index: int) -> None:
        """One chunk."""
        began, start, end = time.perf_counter(), self.engine.step, self.boundary()
        try:
            outcomes = self.engine.advance(end)
            evaluated = self.engine.evaluate("val") if self._is_evaluation(end) else {}
        except BaseException as error:  # whose lane it is of, if of one, is found out after the fit
            self.error, self.trainer.should_stop = error, True
            return
        rate = (self.engine.step - start) / max(1e-9, time.perf_counter() - began)
        writers = list(self.writers.values())
        is_due, recorded = self._is_checkpoint(), time.monotonic()
        for lane, outcome in outcomes.items():
            action = partial(self._record, self.writers[lane], outcome, evaluated.get(lane), is_due)
            if not run_guarded(self.writers[lane], self.stop, action):
                del self.writers[lane]
                self.engine.release(lane)
        seal_runs(writers)
        if is_due:
            now = time.monotonic()
            self.next_checkpoint = now + max(CHECKPOINT_SECONDS, CHECKPOINT_TIMES * (now - recorded))
        if self.fixed_chunk is None:
            self.chunk = max(1, min(int(rate * CHUNK_SECONDS), 2 * max(self.chunk, end - start)))
        self.engine = self.engine.compacted()
        if not self.writers or self.stop.requested:
            self.trainer.should_stop = True

    def _is_evaluation(self, end: int) -> bool:
        return self.engine.step == end and (end == self.max_steps or end % self.eval_every == 0)

    def _is_checkpoint(self) -> bool:
        if self.checkpoint_every is None:
            return time.monotonic() >= self.next_checkpoint
        return self.engine.step % self.checkpoint_every == 0

    def _record(
        self, writer: RunWriter, outcome: Rows | Diverged, evaluated: dict[str, float] | None, is_checkpoint: bool
    ) -> bool:
        """What a lane did in a chunk. False where it is at its end."""
        lane = writer.lane
        if isinstance(outcome, Diverged):
            writer.rows(outcome.rows)
            writer.diverge(outcome)
            return False
        if evaluated is not None:
            outcome.last.update(evaluated)
            lane.update_patience(evaluated["val/loss"])
            if lane.is_ended:
                outcome.last.update(lane.evaluate("test"))
        writer.rows(outcome)
        self.progress.show(lane.step, outcome)
        writer.look(is_end=lane.is_ended)
        if lane.is_ended:
            finish_lane(writer, outcome.last)
        elif is_checkpoint and len(outcome):
            writer.checkpoint()
        return not lane.is_ended


def run_guarded(writer: RunWriter, stop: StopRequest, action: Callable[[], bool]) -> bool:
    """What goes wrong in one lane, `sys.exit` included, ends that lane alone: False. Only a user ends them all."""
    try:
        with log_output_to([writer.run]):
            return action()
    except BaseException as error:
        if stop.requested and isinstance(error, KeyboardInterrupt):
            raise
        writer.fail(error)
        return False


def finish_lane(writer: RunWriter, last: dict[str, float]) -> None:
    """End a lane at its last step, with the final metrics of all splits."""
    evaluated = {name: value for name, value in last.items() if name.startswith(("val/", "test/"))}
    writer.finish(writer.lane.evaluate("train") | evaluated)
