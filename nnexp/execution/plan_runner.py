"""Runs a plan: starts its tasks on an executor until all are finished or a stop is requested."""

from __future__ import annotations

import time

from nnexp.base import StopRequest
from nnexp.config import Job, SweepOptions
from nnexp.execution.cost_model import CostModel
from nnexp.execution.devices import gpus_for, num_workers
from nnexp.execution.executor import Executor
from nnexp.execution.in_process_executor import InProcessExecutor
from nnexp.execution.run_outcomes import RunOutcomes
from nnexp.execution.task import Task
from nnexp.execution.task_queue import TaskQueue
from nnexp.execution.worker_executor import WorkerExecutor
from nnexp.fit import ProgressBar
from nnexp.registry import Registry
from nnexp.rundir import (
    Cohort,
    PlannedRun,
    create_missing_runs,
    done_runs,
    in_command_order,
    remaining_cohorts,
    write_reference,
)

POLL_SECONDS = 0.2
LOCKED_POLL_SECONDS = 1.0


def run_plan(
    cohorts: list[Cohort],
    registry: Registry,
    stop: StopRequest,
    command: SweepOptions | None = None,
    *,
    quiet: bool = False,
) -> list[PlannedRun]:
    """Train the jobs of a plan that are not done; a job that fails does not stop the others.

    After a stop request, or the number of failures that the command allows, no task is started.

    Example:
        >>> cohorts = plan_cohorts(jobs, registry)
        >>> for item in run_plan(cohorts, registry, StopRequest(), SweepOptions(workers=2)):
        ...     print(item.run.path, item.status)

    Args:
        cohorts: from `plan_cohorts`.
        registry: finds the plugins.
        stop: requested by a signal; also set here when a sweep ends after too many failures.
        command: options of the sweep; None to train in this process.
        quiet: print errors only.

    Returns:
        The jobs that have a run now, in order, including those that were done before.
    """
    planned = in_command_order(cohorts)
    if not planned:
        return []
    return PlanRunner(cohorts, planned, registry, stop, command or SweepOptions(workers=0), quiet).run()


class PlanRunner:
    """Main loop of one plan; see `run_plan` for the arguments."""

    def __init__(
        self,
        cohorts: list[Cohort],
        planned: list[PlannedRun],
        registry: Registry,
        stop: StopRequest,
        command: SweepOptions,
        quiet: bool,
    ) -> None:
        self.planned, self.stop, self.command = planned, stop, command
        self._next_locked_poll = 0.0
        is_sweep = len(planned) > 1 or command.workers != 0
        self.done = done_runs(planned)
        remaining = remaining_cohorts(cohorts, self.done)
        gpus = gpus_for([item.job for cohort in remaining for item in cohort])
        size = num_workers(command, gpus)
        costs = CostModel(self.done)
        self.queue = TaskQueue(remaining, size, costs)
        self.outcomes = RunOutcomes(
            planned, self.done, self.queue, costs, command, stop, quiet=quiet, is_sweep=is_sweep
        )
        self.progress = self.outcomes.progress
        on_event, num_tasks = self.outcomes.on_event, len(self.queue.waiting)
        self.executor: Executor
        if command.workers == 0 or not num_tasks:
            bar = None if is_sweep else job_progress_bar(planned[0].job, quiet)
            self.executor = InProcessExecutor(on_event, registry, stop, bar)
        else:
            self.executor = WorkerExecutor(size, on_event, registry, gpus, share=1 / min(size, num_tasks))

    def run(self) -> list[PlannedRun]:
        """Train what is not done, and return the jobs that have a run."""
        for item in self.done:
            self.outcomes.try_on_run(item, lambda item: write_reference(item.job, item.run))
        if self.command.rerun:
            create_missing_runs(self.planned)  # all now, so that the same command after an interrupt resumes these
        self.progress.show()
        try:
            self._loop()
        except KeyboardInterrupt:
            self.executor.close()
            self.outcomes.mark_interrupted()
            raise
        finally:
            self.executor.close()
            self.progress.close()
        return self._started_runs()

    def _started_runs(self) -> list[PlannedRun]:
        started = [
            item
            for item in self.planned
            if item.found is not None and self.outcomes.try_on_run(item, lambda item: item.run.read())
        ]
        if started:
            self.outcomes.write_results(self.planned)
        missing = len(self.planned) - len(started)
        if missing and self.stop.requested:
            self.progress.say(f"{missing} of {len(self.planned)} jobs were not started.", is_error=True)
        return started

    def _loop(self) -> None:
        signals_forwarded: list[int | None] = []
        while True:
            if not self.stop.requested:
                self._poll_locked()
                self._start_tasks()
            elif self.stop.signal not in signals_forwarded:
                signals_forwarded.append(self.stop.signal)
                self._request_stop()
            is_waiting = not self.stop.requested and (self.queue.waiting or self.queue.locked)
            if not self.executor.num_busy:
                if not is_waiting:
                    return
                if not self.queue.waiting:
                    time.sleep(POLL_SECONDS)
            self.executor.poll(POLL_SECONDS)
            self.progress.show()

    def _start_tasks(self) -> None:
        while self.executor.num_busy < self.executor.size and not self.stop.requested:
            if (task := self.queue.next()) is None:
                return
            self._start(task)

    def _request_stop(self) -> None:
        self.executor.request_stop()
        if self.executor.num_busy:
            more = "" if self.stop.signal is None else " A second signal stops at once."
            self.progress.say(f"stopping: runs in training save a checkpoint.{more}")

    def _start(self, task: Task) -> None:
        """Create the missing run directories of a task and start it; lanes whose directory fails are left out."""
        create_missing_runs(task.cohort)
        for item in task.cohort:
            if self.outcomes.try_on_run(item, lambda item: item.run.read()):
                self.outcomes.try_on_run(item, lambda item: write_reference(item.job, item.run))
        able = [item for item in task.cohort if item.found is not None]
        if not able:
            return
        task = Task(able)
        self.outcomes.write_results(able)
        try:
            self.executor.start(task)
        except (OSError, EOFError) as error:
            self._on_start_error(task, error)

    def _on_start_error(self, task: Task, error: Exception) -> None:
        """Go on with as many processes as there are; without any, leave the task out."""
        num_busy = self.executor.num_busy
        if num_busy:
            self.progress.say(f"cannot start more than {num_busy} processes: {error}")
            self.executor.size = num_busy
            self.queue.prepend(task)
            return
        for item in task.cohort:
            self.outcomes.leave_out(item, f"no process can be started to train it: {error}")

    def _poll_locked(self) -> None:
        """Check about once a second on runs that other processes hold."""
        if not self.queue.locked or time.monotonic() < self._next_locked_poll:
            return
        self._next_locked_poll = time.monotonic() + LOCKED_POLL_SECONDS
        for item in self.queue.poll_locked():
            self.outcomes.count(item, item.run.read())
            self.outcomes.write_results([item])


def job_progress_bar(job: Job, quiet: bool) -> ProgressBar:
    """Return the progress bar of a single job."""
    return ProgressBar(job.label, job.trainer.values.get("max_steps", 0), quiet)
