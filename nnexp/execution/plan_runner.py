"""Runs a plan, on workers or in this process: what fails costs its own run only."""

from __future__ import annotations

import time

from nnexp.base import StopRequest
from nnexp.config import Job, SweepOptions
from nnexp.execution.cost_model import CostModel
from nnexp.execution.devices import gpus_for, num_workers
from nnexp.execution.in_process import InProcessExecutor
from nnexp.execution.run_outcomes import RunOutcomes
from nnexp.execution.task import Task
from nnexp.execution.task_queue import TaskQueue
from nnexp.execution.worker_pool import WorkerExecutor
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

LISTEN_SECONDS = 0.2
LOOK_SECONDS = 1.0


def run_plan(
    cohorts: list[Cohort],
    registry: Registry,
    stop: StopRequest,
    command: SweepOptions | None = None,
    *,
    quiet: bool = False,
) -> list[PlannedRun]:
    """Train what is not done; gives the jobs that have a run now, those that were done before among them, in order.

    After a signal, or the failures that the command allows, nothing new is begun.

    Args:
        command: how; without one, in this process.
    """
    planned = in_command_order(cohorts)
    if not planned:
        return []
    return PlanRunner(cohorts, planned, registry, stop, command or SweepOptions(workers=0), quiet).run()


class PlanRunner:
    """The progress of one plan."""

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
        self._next_look = 0.0
        is_sweep = len(planned) > 1 or command.workers != 0
        self.done = done_runs(planned)
        left = remaining_cohorts(cohorts, self.done)
        gpus = gpus_for([item.job for cohort in left for item in cohort])
        size = num_workers(command, gpus)
        costs = CostModel(self.done)
        self.schedule = TaskQueue(left, size, command.retries, costs)
        self.outcomes = RunOutcomes(
            planned, self.done, self.schedule, costs, command, stop, quiet=quiet, is_sweep=is_sweep
        )
        self.tally = self.outcomes.tally
        heard, num_tasks = self.outcomes.heard, len(self.schedule.waiting)
        self.pool: WorkerExecutor | InProcessExecutor
        if command.workers == 0 or not num_tasks:
            self.pool = InProcessExecutor(
                heard, registry, stop, None if is_sweep else job_progress_bar(planned[0].job, quiet)
            )
        else:
            self.pool = WorkerExecutor(size, heard, registry, gpus, share=1 / min(size, num_tasks))

    def run(self) -> list[PlannedRun]:
        for item in self.done:
            self.outcomes.guarded(item, lambda item: write_reference(item.job, item.run))
        if self.command.rerun:
            create_missing_runs(self.planned)  # all now, so that what is interrupted is known from what is finished
        self.tally.show()
        try:
            self._loop()
        except KeyboardInterrupt:
            self.pool.close()
            self.outcomes.interrupt()
            raise
        finally:
            self.pool.close()
            self.tally.close()
        begun = [
            item
            for item in self.planned
            if item.found is not None and self.outcomes.guarded(item, lambda item: item.run.read())
        ]
        if begun:
            self.outcomes.write(self.planned)
        missing = len(self.planned) - len(begun)
        if missing and self.stop.requested:
            self.tally.say(f"{missing} of {len(self.planned)} jobs were not begun.", is_error=True)
        return begun

    def _loop(self) -> None:
        asked: list[int | None] = []
        while True:
            if not self.stop.requested:
                self._look()
                self._hand_out()
            elif self.stop.signal not in asked:
                asked.append(self.stop.signal)
                self._ask()
            is_waiting = not self.stop.requested and (self.schedule.waiting or self.schedule.busy)
            if not self.pool.num_busy:
                if not is_waiting:
                    return
                if not self.schedule.waiting:
                    time.sleep(LISTEN_SECONDS)
            self.pool.listen(LISTEN_SECONDS)
            self.tally.show()

    def _hand_out(self) -> None:
        while self.pool.num_busy < self.pool.size and not self.stop.requested:
            if (task := self.schedule.next()) is None:
                return
            self._start(task)

    def _ask(self) -> None:
        self.pool.ask()
        if self.pool.num_busy:
            more = "" if self.stop.signal is None else " Once more ends it at once."
            self.tally.say(f"stopping: what is in training writes its checkpoint.{more}")

    def _start(self, task: Task) -> None:
        """Make the run directories of a task, and hand it out."""
        create_missing_runs(task.cohort)
        for item in task.cohort:
            if self.outcomes.guarded(item, lambda item: item.run.read()):
                self.outcomes.guarded(item, lambda item: write_reference(item.job, item.run))
        able = [item for item in task.cohort if item.found is not None]
        if not able:
            return
        task = Task(able)
        self.outcomes.write(able)
        try:
            self.pool.start(task)
        except (OSError, EOFError) as error:
            self._cannot_start(task, error)

    def _cannot_start(self, task: Task, error: Exception) -> None:
        """There is room for fewer processes than were asked for, or for none."""
        if self.pool.num_busy:
            self.tally.say(f"no more than {self.pool.num_busy} processes can be made at once: {error}")
            self.pool.size = self.pool.num_busy
            self.schedule.waiting.appendleft(task)
            return
        for item in task.cohort:
            self.outcomes.lose(item, f"no process can be made to train it: {error}")

    def _look(self) -> None:
        """See now and then what has become of runs that other processes have."""
        if not self.schedule.busy or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        for item in self.schedule.look():
            self.outcomes.count(item, item.run.read())
            self.outcomes.write([item])


def job_progress_bar(job: Job, quiet: bool) -> ProgressBar:
    """The bar of a single job."""
    return ProgressBar(job.label, job.trainer.values.get("max_steps", 0), quiet)
