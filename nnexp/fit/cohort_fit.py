"""One cohort, from its jobs to their sealed run directories, and a process left as it was."""

from __future__ import annotations

import itertools
import warnings
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch

from nnexp.base import StopRequest, isolated, keep_freed_memory, torch_device
from nnexp.config import Job
from nnexp.data import DatasetCache
from nnexp.fit.lightning_module import CohortModule, finish_lane, run_guarded
from nnexp.fit.lightning_trainer import make_trainer
from nnexp.fit.probe_recorder import observe_finished_run
from nnexp.fit.progress import ProgressListener
from nnexp.fit.run_writer import RunWriter, seal_runs
from nnexp.fit.stack_or_solo import FitGroup, StackOrSolo
from nnexp.probing import ProbeLanes, ProbeRunner
from nnexp.registry import Registry, describe_error
from nnexp.rundir import Cohort, PlannedRun, Rows, capture_output, log_output_to
from nnexp.stacking import lanes_that_fit
from nnexp.tensorboard import write_session_end
from nnexp.training import Lane


@dataclass(kw_only=True)
class CohortFit:
    """How cohorts are trained.

    Args:
        stop: says when a signal asks for an end.
        chunk: updates in a chunk, or None for about half a second. Changes no number.
        datasets: data that were made before, for they may be needed again.
        share: of the free memory, the part that the lanes may take.
        echo: show what plugins print, and not only keep it in log.txt.
    """

    registry: Registry
    stop: StopRequest
    progress: ProgressListener
    chunk: int | None = None
    training: type[CohortModule] = CohortModule
    datasets: DatasetCache = field(default_factory=DatasetCache)
    share: float = 1.0
    echo: bool = True

    def train(self, cohort: Cohort, is_cohort: bool = False) -> None:
        """Train the jobs of one cohort, each into its run directory, whose run.json says how it ended.

        Nothing global is left changed: generators, environment, logging, threads.

        Args:
            is_cohort: whether they were more than one before some of them ended, so that a sweep gives a job the same
                numbers whatever is left of it to be trained.
        """
        with isolated(), capture_output(self.echo), log_output_to([planned.run for planned in cohort]):
            pieces = self._pieces(cohort)
            for number, piece in enumerate(pieces):
                if number and self.stop.requested:
                    break
                self._train(piece, len(piece) > 1 or (is_cohort and len(pieces) == 1))

    def look(self, planned: PlannedRun) -> None:
        """Have the probes look into a finished run that have not. What goes wrong leaves it as it was, with a note."""
        if self.stop.requested:
            return
        with isolated(), capture_output(self.echo), log_output_to([planned.run]):
            names = planned.pending_probes(planned.facts())
            job = replace(planned.job, probes=tuple(c for c in planned.job.probes if c.name in names))
            try:
                lane = self._unwarned(job)
                observe_finished_run(planned.run, lane, planned.fingerprint, self._probing(job, is_reopened=True))
            except Exception as error:
                with suppress(OSError):  # a full disk
                    planned.note_probe_failure(describe_error(error)["message"])

    def _pieces(self, cohort: Cohort) -> list[Cohort]:
        """As few as memory allows, of even sizes."""
        if len(cohort) == 1 or not cohort[0].job.options.stack:
            return [cohort]
        try:
            lane = self._lane(cohort[0].job)
        except Exception:  # which is told where it is built to be trained
            return [cohort]
        own_data = len({repr(planned.job.dataset) for planned in cohort}) > 1
        count = -(-len(cohort) // lanes_that_fit(lane, own_data, self.share))
        if count > 1:
            self.progress.say(f"memory for {len(cohort)} lanes is not there: they train in {count} parts")
        return [cohort[number::count] for number in range(count)]

    def _lane(self, job: Job) -> Lane:
        device = torch_device(job.options.device)
        return Lane(job, self.registry, device, lambda: self.stop.requested, self.datasets)

    def _renewed(self, lane: Lane) -> Lane:
        """The lane as it was built, at the same step."""
        fresh = self._unwarned(lane.job)
        fresh.restore(lane.state())
        return fresh

    def _probing(self, job: Job, *, is_reopened: bool = False) -> ProbeRunner:
        return ProbeRunner(job, self.registry, self._own, lambda: self.stop.requested, is_reopened=is_reopened)

    @cached_property
    def _own(self) -> ProbeLanes:
        return ProbeLanes(self._unwarned)

    def _unwarned(self, job: Job) -> Lane:
        """A lane of a job of which one was built before, and its warnings told."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._lane(job)

    def _train(self, cohort: Cohort, is_cohort: bool) -> None:
        self.datasets.retain(planned.job for planned in cohort)
        device = torch_device(cohort[0].job.options.device)
        opened = {writer: planned for planned in cohort if (writer := self._open(planned)) is not None}
        for planned in cohort:
            planned.run.heartbeat()
        pending = [writer for writer in opened if run_guarded(writer, self.stop, partial(_start, writer))]
        seal_runs(list(opened))
        self._tell_resumed(pending)
        with log_output_to([writer.run for writer in pending]):
            together = self._fit_parts(pending, is_cohort, device)
        for failed in together:
            self._halve([opened[writer] for writer in failed])

    def _fit_parts(self, writers: list[RunWriter], is_cohort: bool, device: torch.device) -> list[list[RunWriter]]:
        """Train the lanes, part by part. Gives those that an error ended which may be of any of them, together."""
        left, failed = set(writers), []
        for part in StackOrSolo(writers, is_cohort, self._renewed, self.stop, self.progress).parts():
            left -= set(part.writers)
            if together := self._fit(part, device):
                failed.append(together)
            if self.stop.requested:
                break
        for writer in left:
            if writer.is_open:
                writer.interrupt()
        return failed

    def _tell_resumed(self, writers: list[RunWriter]) -> None:
        steps = sorted({writer.lane.step for writer in writers if not writer.is_fresh})
        if steps:
            self.progress.say(f"goes on from step {', '.join(map(str, steps))}")

    def _halve(self, cohort: Cohort) -> None:
        """After an error that no lane owns: go on from the checkpoints in halves, until its cause is alone.

        By now the stack is gone from memory, of which there may have been too little.
        """
        self.progress.say(f"an error that may be of any of {len(cohort)} lanes: they go on in halves")
        middle = len(cohort) // 2
        for half in (cohort[:middle], cohort[middle:]):
            self._train(half, is_cohort=True)

    def _fit(self, part: FitGroup, device: torch.device) -> list[RunWriter]:
        """One Lightning fit. Gives the lanes that an error ended which may be of any of them."""
        settings = part.writers[0].lane.job.options
        module = self.training(part.engine, part.writers, self.stop, self.progress, self.chunk)
        try:
            runs = [writer.run for writer in part.writers]
            with log_output_to(runs), keep_freed_memory() if len(part.writers) > 1 else nullcontext():
                make_trainer(device, settings.precision).fit(module, itertools.repeat(0))
        except BaseException as error:
            module.error = error
        live = list(module.writers.values())
        if module.error is None:
            for writer in live:
                writer.interrupt()
            return []
        return self._abandon(live, module.error)

    def _abandon(self, live: list[RunWriter], error: BaseException) -> list[RunWriter]:
        """End the lanes where they are. An update may be half done, so no checkpoint is made of it."""
        is_hard_stop = self.stop.requested and isinstance(error, KeyboardInterrupt | SystemExit)
        if len(live) > 1 and not is_hard_stop:
            for writer in live:
                writer.close()
            return live
        for writer in live:
            writer.halt() if is_hard_stop else writer.fail(error)
        if is_hard_stop:
            raise KeyboardInterrupt from None
        return []

    def _open(self, planned: PlannedRun) -> RunWriter | None:
        """The writer of a job's lane; None where it could not be made, which its run.json then says."""
        try:
            with log_output_to([planned.run]), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                lane = self._lane(planned.job)
            writer = RunWriter(planned.run, lane, planned.fingerprint, self._probing(planned.job))
            writer.note(*(str(warning.message) for warning in caught if warning.category is UserWarning))
            return writer
        except BaseException as error:
            if self.stop.requested and isinstance(error, KeyboardInterrupt):
                raise
            told = describe_error(error)
            with suppress(OSError):  # a full disk: the run stays as it was
                planned.run.write(status="failed", error=told, steps=0)
                write_session_end(planned.run.path, planned.job.flat(), "failed", 0, told["message"])
            return None


def _start(writer: RunWriter) -> bool:
    """Row 0, before any training. False where the lane is already at its end."""
    lane = writer.lane
    if writer.is_fresh:
        row = lane.evaluate("val") | (lane.evaluate("test") if lane.is_ended else {})
        lane.update_patience(row["val/loss"])
        writer.rows(Rows(1, [], [], {0: row}))
        writer.look(is_end=lane.is_ended)
        if lane.is_ended:
            finish_lane(writer, row)
    return not lane.is_ended
