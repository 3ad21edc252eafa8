"""Trains the jobs of one cohort into their run directories, and restores the global state of the process."""

from __future__ import annotations

import itertools
import warnings
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch

from nnexp.base import StopRequest, keep_freed_memory, torch_device
from nnexp.config import Job
from nnexp.data import DatasetCache
from nnexp.fit.lightning_module import CohortModule, finish_lane, run_or_fail
from nnexp.fit.lightning_trainer import make_trainer
from nnexp.fit.probe_recorder import observe_finished_run
from nnexp.fit.progress import ProgressListener
from nnexp.fit.run_writer import RunWriter, seal_runs
from nnexp.fit.stack_or_solo import FitGroup, PathSelector
from nnexp.fit.state_watch import lane_notes
from nnexp.probing import ProbeLanes, ProbeRunner
from nnexp.registry import Registry, describe_error
from nnexp.rundir import Cohort, PlannedRun, Rows, capture_output, log_output_to
from nnexp.stacking import lanes_that_fit
from nnexp.tensorboard import write_session_end
from nnexp.training import Lane, isolated


@dataclass(kw_only=True)
class CohortFit:
    """Trains cohorts, one after another.

    Args:
        registry: finds the plugins.
        stop: requested by a signal or by the sweep.
        progress: is notified of steps and messages.
        chunk: updates per chunk, or None for about half a second. Changes no number.
        module_class: the LightningModule that trains.
        datasets: cache of datasets that later cohorts may use again.
        share: fraction of the free memory that the lanes may take.
        echo: show the output of plugins on the console as well as in log.txt.
    """

    registry: Registry
    stop: StopRequest
    progress: ProgressListener
    chunk: int | None = None
    module_class: type[CohortModule] = CohortModule
    datasets: DatasetCache = field(default_factory=DatasetCache)
    share: float = 1.0
    echo: bool = True

    def train(self, cohort: Cohort, in_cohort: bool = False) -> None:
        """Train the jobs of one cohort; run.json of each records how its run ended.

        A lane that fails does not stop the others. Random generators, environment, logging and thread settings are
        the same on return.

        Args:
            cohort: jobs whose run directories the caller has locked.
            in_cohort: the jobs were planned as part of a larger cohort. A single one that is left of it is then
                stacked too, so that its numbers do not depend on which others have ended.
        """
        with isolated(), capture_output(self.echo), log_output_to([planned.run for planned in cohort]):
            parts = self._split_by_memory(cohort)
            for number, part in enumerate(parts):
                if number and self.stop.requested:
                    break
                self._train_part(part, len(part) > 1 or (in_cohort and len(parts) == 1))

    def observe(self, planned: PlannedRun) -> None:
        """Run the probes that a finished run was trained without; an error leaves the run as it was, with a note."""
        if self.stop.requested:
            return
        with isolated(), capture_output(self.echo), log_output_to([planned.run]):
            names = planned.pending_probes(planned.facts())
            job = replace(planned.job, probes=tuple(c for c in planned.job.probes if c.name in names))
            try:
                lane = self._build_lane_again(job)
                probing = self._make_probe_runner(job, is_reopened=True)
                observe_finished_run(planned.run, lane, planned.fingerprint, probing)
            except Exception as error:
                with suppress(OSError):  # a full disk
                    planned.note_probe_failure(describe_error(error)["message"])

    def _split_by_memory(self, cohort: Cohort) -> list[Cohort]:
        """Split a cohort into as few parts as memory allows, of equal sizes."""
        if len(cohort) == 1 or not cohort[0].job.options.stack:
            return [cohort]
        try:
            lane = self._build_lane(cohort[0].job)
        except Exception:  # reported when the lane is built for training
            return [cohort]
        has_own_data = len({repr(planned.job.dataset) for planned in cohort}) > 1
        count = -(-len(cohort) // lanes_that_fit(lane, has_own_data, self.share))
        if count > 1:
            self.progress.say(f"{len(cohort)} lanes do not fit into memory: they are trained in {count} parts")
        return [cohort[number::count] for number in range(count)]

    def _build_lane(self, job: Job) -> Lane:
        device = torch_device(job.options.device)
        return Lane(job, self.registry, device, lambda: self.stop.requested, self.datasets)

    def _build_lane_again(self, job: Job) -> Lane:
        """Build a lane of a job without the warnings that were recorded when it was built for training."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._build_lane(job)

    def _rebuild(self, lane: Lane) -> Lane:
        """Return a new lane of the same job at the same step."""
        copy = self._build_lane_again(lane.job)
        copy.restore(lane.state())
        return copy

    def _make_probe_runner(self, job: Job, *, is_reopened: bool = False) -> ProbeRunner:
        return ProbeRunner(job, self.registry, self._probe_lanes, lambda: self.stop.requested, is_reopened=is_reopened)

    @cached_property
    def _probe_lanes(self) -> ProbeLanes:
        return ProbeLanes(self._build_lane_again)

    def _train_part(self, cohort: Cohort, in_cohort: bool) -> None:
        """Train lanes that fit into memory together; after an error that no lane owns, train them in halves."""
        self.datasets.retain(planned.job for planned in cohort)
        device = torch_device(cohort[0].job.options.device)
        opened = {writer: planned for planned in cohort if (writer := self._open_writer(planned)) is not None}
        for planned in cohort:
            planned.run.heartbeat()
        pending = [writer for writer in opened if run_or_fail(writer, self.stop, partial(_record_step_zero, writer))]
        seal_runs(list(opened))
        self._report_resumed(pending)
        with log_output_to([writer.run for writer in pending]):
            failed_groups = self._fit_groups(pending, in_cohort, device)
        for writers in failed_groups:
            self._train_halves([opened[writer] for writer in writers])

    def _report_resumed(self, writers: list[RunWriter]) -> None:
        steps = sorted({writer.lane.step for writer in writers if not writer.is_fresh})
        if steps:
            self.progress.say(f"resumes from step {', '.join(map(str, steps))}")

    def _fit_groups(self, writers: list[RunWriter], in_cohort: bool, device: torch.device) -> list[list[RunWriter]]:
        """Fit group by group; return the groups that ended with an error that cannot be attributed to one lane."""
        remaining, failed_groups = set(writers), []
        for group in PathSelector(writers, in_cohort, self._rebuild, self.stop, self.progress).groups():
            remaining -= set(group.writers)
            if failed := self._fit(group, device):
                failed_groups.append(failed)
            if self.stop.requested:
                break
        for writer in remaining:
            if writer.is_open:
                writer.interrupt()
        return failed_groups

    def _train_halves(self, cohort: Cohort) -> None:
        """Resume lanes from their checkpoints in halves, until the lane that causes the error is alone.

        The failed stack has been freed by now, so that halves also help when memory was too small.
        """
        self.progress.say(f"an error in a stack of {len(cohort)} lanes: they resume in halves to find its cause")
        middle = len(cohort) // 2
        for half in (cohort[:middle], cohort[middle:]):
            self._train_part(half, in_cohort=True)

    def _fit(self, group: FitGroup, device: torch.device) -> list[RunWriter]:
        """Run one Lightning fit; return its open writers if it ended with an error that may be of any lane."""
        options = group.writers[0].lane.job.options
        module = self.module_class(group.engine, group.writers, self.stop, self.progress, self.chunk)
        try:
            runs = [writer.run for writer in group.writers]
            with log_output_to(runs), keep_freed_memory() if len(group.writers) > 1 else nullcontext():
                make_trainer(device, options.precision).fit(module, itertools.repeat(0))
        except BaseException as error:
            module.error = error
        open_writers = list(module.writers.values())
        if module.error is None:
            for writer in open_writers:
                writer.interrupt()
            return []
        return self._close_after_error(open_writers, module.error)

    def _close_after_error(self, writers: list[RunWriter], error: BaseException) -> list[RunWriter]:
        """Close the runs without a checkpoint, because an update may be half done; return those to train again."""
        is_hard_stop = self.stop.requested and isinstance(error, KeyboardInterrupt | SystemExit)
        if len(writers) > 1 and not is_hard_stop:
            for writer in writers:
                writer.close()
            return writers
        for writer in writers:
            writer.halt() if is_hard_stop else writer.fail(error)
        if is_hard_stop:
            raise KeyboardInterrupt from None
        return []

    def _open_writer(self, planned: PlannedRun) -> RunWriter | None:
        """Build a job's lane and open its writer; if that raises, record the run as failed and return None."""
        try:
            with log_output_to([planned.run]), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                lane = self._build_lane(planned.job)
            writer = RunWriter(planned.run, lane, planned.fingerprint, self._make_probe_runner(planned.job))
            writer.note(*(str(warning.message) for warning in caught if warning.category is UserWarning))
            writer.note(*lane_notes(lane))
            return writer
        except BaseException as error:
            if self.stop.requested and isinstance(error, KeyboardInterrupt):
                raise
            facts = describe_error(error)
            with suppress(OSError):  # a full disk: the run stays as it was
                planned.run.write(status="failed", error=facts, steps=0)
                write_session_end(planned.run.path, planned.job.flat(), "failed", 0, facts["message"])
            return None


def _record_step_zero(writer: RunWriter) -> bool:
    """Record row 0, the evaluation before training, of a fresh run; return False if the lane is at its end already."""
    lane = writer.lane
    if writer.is_fresh:
        row = lane.evaluate("val") | (lane.evaluate("test") if lane.is_ended else {})
        lane.update_patience(row["val/loss"])
        writer.add_rows(Rows(1, [], [], {0: row}))
        writer.observe(is_end=lane.is_ended)
        if lane.is_ended:
            finish_lane(writer, row)
    return not lane.is_ended
