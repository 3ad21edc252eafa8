"""Handles the events of tasks: counts the runs that ended, reports failures, updates results.csv, requeues."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from nnexp.base import RecordError, StopRequest, shorten
from nnexp.config import SweepOptions
from nnexp.execution.cost_model import CostModel
from nnexp.execution.retry import RetryPolicy
from nnexp.execution.sweep_progress import SweepProgress
from nnexp.execution.task import Task
from nnexp.execution.task_queue import TaskQueue
from nnexp.rundir import Cohort, DoneRuns, PlannedRun, ResultsCsv, last_step, utc_now

WRITE_SECONDS = 1.0  # between updates of results.csv for runs in training


class RunOutcomes:
    """Event handler of an executor, and the outcome of every run of a plan.

    Args:
        planned: all jobs, in order.
        done: jobs that ended before, with their run.json.
        queue: receives the tasks that are trained again.
        costs: learns from the runs that end.
        command: options of the sweep.
        stop: is requested when so many runs have failed that the sweep ends.
        quiet: print errors only.
        is_sweep: there may be several jobs; they are named in messages and listed in results.csv.
    """

    def __init__(
        self,
        planned: list[PlannedRun],
        done: DoneRuns,
        queue: TaskQueue,
        costs: CostModel,
        command: SweepOptions,
        stop: StopRequest,
        *,
        quiet: bool,
        is_sweep: bool,
    ) -> None:
        self.planned, self.queue, self.costs, self.stop = planned, queue, costs, stop
        self.retry = RetryPolicy(queue, command.retries, stop)
        self.failure_limit, self.is_sweep = command.failure_limit, is_sweep
        self.num_failed, self._next_write = 0, 0.0
        self.progress = SweepProgress(len(planned), queue.waiting, costs, quiet or not is_sweep)
        self.results = ResultsCsv(planned) if is_sweep else None
        self.counted = {item.number for item in done}
        for item, facts in done.items():
            self.progress.count(item, facts)
        if done and not quiet:
            text = f"{len(done)} of {len(planned)} jobs are already complete; skipped."
            self.progress.say(text if is_sweep else "this job is already complete; skipped.", is_error=not is_sweep)

    def on_event(self, task: Task, kind: str, content: Any) -> None:
        """Handle an event of a task; see `Executor` for the kinds."""
        if kind == "step":
            self._on_step(task, content)
        elif kind == "message":
            self.progress.say(f"{self._name(task)}: {content}")
        elif kind == "run_ended":
            self._on_run_ended(self.planned[content])
        else:
            self._on_finished(task, content)
        self.progress.show()

    def _on_step(self, task: Task, step: int) -> None:
        self.progress.step(task, step)
        if time.monotonic() >= self._next_write:
            self._next_write = time.monotonic() + WRITE_SECONDS
            self.write_results(task.cohort, step)

    def _on_run_ended(self, item: PlannedRun) -> None:
        if item.number in self.counted:
            return
        facts = self._read_facts(item)
        if facts is None:
            return
        self.costs.learn(item, facts)
        self.write_results([item])
        message = shorten(str((facts.get("error") or {}).get("message", "")), 300)
        ending = f"{self._name(Task([item]))}: {facts['status']} at step {facts.get('steps', 0)}: {message}"
        if facts["status"] == "failed" and self.retry.retry_run(item):
            self.progress.say(f"{ending.rstrip('.')}. Retrying.")
            return
        if facts["status"] != "finished" and self.is_sweep:
            self.progress.say(ending)
        self.count(item, facts)

    def count(self, item: PlannedRun, facts: dict[str, Any]) -> None:
        """Count a run that ended for good, and request a stop after too many failures.

        Args:
            item: the job.
            facts: its run.json.
        """
        self.counted.add(item.number)
        self.progress.count(item, facts)
        self.num_failed += facts["status"] != "finished"
        if self.num_failed >= self.failure_limit and not self.stop.requested:
            text = f"stopping the sweep: {self.num_failed} of its runs failed or diverged."
            self.progress.say(text, is_error=True)
            self.stop.requested = True

    def _on_finished(self, task: Task, content: dict[str, Any]) -> None:
        left_out = {int(number): reason for number, reason in content.get("left_out", {}).items()}
        settled = self.counted | self.queue.waiting_jobs() | left_out.keys()
        remaining = [item for item in task.cohort if item.number not in settled]
        self._on_left_out([item for item in task.cohort if item.number in left_out], left_out)
        if error := content.get("error"):
            self._on_died(remaining, task, error)
        elif self.is_sweep and len(task.cohort) > max(1, len(left_out)):
            facts = filter(None, map(self._read_facts, task.cohort))
            self.progress.say(f"{self._name(task)}: {count_statuses(facts)}")
        self.progress.over(task, is_done=not error)
        self.write_results(task.cohort)

    def _on_left_out(self, items: Cohort, reasons: dict[int, tuple[bool, str]]) -> None:
        """Handle lanes that a task could not train: wait for other processes, leave out the rest."""
        locked = []
        for item in items:
            facts, (is_locked, reason) = self._read_facts(item), reasons[item.number]
            if facts is None:
                continue
            if item.final_facts() is not None:  # ended by another process since
                self._on_run_ended(item)
            elif is_locked and self.is_sweep:
                locked.append(item)
            else:
                self.leave_out(item, reason)
        if locked:
            self.queue.add_locked(Task(locked))
        if others := [item for item in locked if not self.retry.has_failed(item)]:  # not held by a task of our own
            reason = reasons[others[0].number][1].partition(". Wait")[0]
            self.progress.say(f"{self._name(Task(others))}: waiting: {reason}")

    def _on_died(self, remaining: Cohort, task: Task, error: dict[str, str]) -> None:
        """Handle lanes without an ending after their process died, or raised outside of a lane."""
        if self.retry.retry_in_halves(remaining):
            text = f"{self._name(task)}: {error['message']}: {len(remaining)} lanes resume in halves to find its cause"
            self.progress.say(text)
        elif len(remaining) == 1:
            (item,) = remaining
            if self.try_on_run(item, lambda item: _write_ending(item, status="failed", error=error)):
                self._on_run_ended(item)

    def mark_interrupted(self) -> None:
        """Write the status `interrupted` to runs whose training was killed."""
        for item in self.planned:
            is_running = item.found is not None and (self._read_facts(item) or {}).get("status") == "running"
            if is_running and not item.run.is_locked:
                self.try_on_run(item, lambda item: _write_ending(item, status="interrupted"))

    def try_on_run(self, item: PlannedRun, action: Callable[[PlannedRun], Any]) -> bool:
        """Run an action on a run directory; if that fails, leave the job out and return False."""
        try:
            action(item)
            return True
        except (RecordError, OSError) as error:
            self.leave_out(item, str(error))
            return False

    def _read_facts(self, item: PlannedRun) -> dict[str, Any] | None:
        try:
            return item.run.read()
        except RecordError as error:
            self.leave_out(item, str(error))
            return None

    def leave_out(self, item: PlannedRun, reason: str) -> None:
        """Report that a job cannot be trained, and go on without it."""
        item.failure = reason
        self.progress.say(f"{item.job.label}: left out: {reason}", is_error=True)

    def write_results(self, planned: list[PlannedRun], step: int = 0) -> None:
        """Update the rows of these jobs in results.csv.

        Args:
            planned: the jobs.
            step: step of those that are in training.
        """
        if self.results is not None:
            try:
                self.results.update(planned, step)
            except OSError as error:
                self.progress.say(f"{self.results.path} cannot be written: {error.strerror}", is_error=True)

    def _name(self, task: Task) -> str:
        first = task.cohort[0]
        if not self.is_sweep:
            return first.job.label
        if len(task.cohort) == 1:
            return f"job {first.number + 1} {first.job.label}"
        return f"{len(task.cohort)} lanes of {' '.join(choice.name for choice in first.job.parts)}"


def _write_ending(item: PlannedRun, *, status: str, **facts: Any) -> None:
    """Write a status to the event file and run.json of a run whose process is gone."""
    from nnexp.tensorboard import write_session_end  # slow to import, and rarely needed here

    item.run.lock()
    try:
        if item.status == "finished":  # the process died while probes observed the finished run
            item.note_probe_failure(facts.get("error", {}).get("message", "its process is gone"))
            return
        steps = last_step(item.run.path / "metrics.csv")
        reason = facts.get("error", {}).get("message", "")
        write_session_end(item.run.path, item.job.flat(), status, steps, reason)
        item.run.write(status=status, **facts, steps=steps, ended=utc_now())
    finally:
        item.run.unlock()


def count_statuses(facts: Iterable[dict[str, Any]]) -> str:
    """Return the number of runs with each status, and their paths: "3 finished, 1 failed (stacked)"."""
    runs = list(facts)
    counts = Counter(str(each["status"]) for each in runs)
    paths = ", ".join(sorted({str(each["path"]) for each in runs if each.get("path")}))
    return ", ".join(f"{count} {status}" for status, count in counts.items()) + (f" ({paths})" if paths else "")
