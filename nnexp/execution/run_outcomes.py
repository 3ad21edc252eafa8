"""What becomes of the tasks of a plan: runs that end, are tried again, left out, or lost with their process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from nnexp.base import RecordError, StopRequest, shorten
from nnexp.config import SweepOptions
from nnexp.execution.cost_model import CostModel
from nnexp.execution.sweep_progress import SweepProgress
from nnexp.execution.task import Task
from nnexp.execution.task_queue import TaskQueue
from nnexp.rundir import Cohort, DoneRuns, PlannedRun, ResultsCsv, last_step, utc_now

WRITE_SECONDS = 1.0  # between rows of runs that are in training


class RunOutcomes:
    """Hears of all tasks, keeps count, tells what goes wrong when it happens, and has the schedule go on with the rest.

    Args:
        planned: all jobs, in order.
        done: those of them that were done before.
        stop: is set where so many fail that the command ends the sweep.
        is_sweep: whether there may be others, to be told from.
    """

    def __init__(
        self,
        planned: list[PlannedRun],
        done: DoneRuns,
        schedule: TaskQueue,
        costs: CostModel,
        command: SweepOptions,
        stop: StopRequest,
        *,
        quiet: bool,
        is_sweep: bool,
    ) -> None:
        self.planned, self.schedule, self.costs, self.stop = planned, schedule, costs, stop
        self.failure_limit, self.is_sweep = command.failure_limit, is_sweep
        self.num_failed, self._next_write = 0, 0.0
        self.tally = SweepProgress(len(planned), schedule.waiting, costs, quiet or not is_sweep)
        self.results = ResultsCsv(planned) if is_sweep else None
        self.counted = {item.number for item in done}
        for item, facts in done.items():
            self.tally.count(item, facts)
        if done and not quiet:
            text = f"{len(done)} of {len(planned)} jobs had ended before."
            self.tally.say(text if is_sweep else "this job had ended before.", is_error=not is_sweep)

    def heard(self, task: Task, kind: str, content: Any) -> None:
        if kind == "step":
            self.tally.step(task, content)
            if time.monotonic() >= self._next_write:
                self._next_write = time.monotonic() + WRITE_SECONDS
                self.write(task.cohort, content)
        elif kind == "say":
            self.tally.say(f"{self._name(task)}: {content}")
        elif kind == "ended":
            self._ended(self.planned[content])
        else:
            self._over(task, content)
        self.tally.show()

    def _ended(self, item: PlannedRun) -> None:
        """A run has ended."""
        if item.number in self.counted:
            return
        facts = self._facts(item)
        if facts is None:
            return
        self.costs.learn(item, facts)
        self.write([item])
        message = shorten(str((facts.get("error") or {}).get("message", "")), 300)
        end = f"{self._name(Task([item]))}: {facts['status']} at step {facts.get('steps', 0)}: {message}"
        is_failed = facts["status"] == "failed" and not self.stop.requested
        if is_failed and self.schedule.retry(item):
            self.tally.say(f"{end.rstrip('.')}. It is tried again.")
            return
        if facts["status"] != "finished" and self.is_sweep:
            self.tally.say(end)
        self.count(item, facts)

    def count(self, item: PlannedRun, facts: dict[str, Any]) -> None:
        self.counted.add(item.number)
        self.tally.count(item, facts)
        self.num_failed += facts["status"] != "finished"
        if self.num_failed >= self.failure_limit and not self.stop.requested:
            self.tally.say(f"the sweep ends here, with {self.num_failed} that failed or diverged.", is_error=True)
            self.stop.requested = True

    def _over(self, task: Task, content: dict[str, Any]) -> None:
        """A task is over; what of it has not ended is looked after."""
        left_out = {int(number): reason for number, reason in content.get("left_out", {}).items()}
        tried_again = {item.number for again in self.schedule.waiting for item in again.cohort}
        left = [i for i in task.cohort if i.number not in self.counted and i.number not in tried_again]
        left = [item for item in left if item.number not in left_out]
        self._left_out([item for item in task.cohort if item.number in left_out], left_out)
        if error := content.get("error"):
            self._died(left, task, error)
        elif self.is_sweep and len(task.cohort) > max(1, len(left_out)):
            self.tally.say(f"{self._name(task)}: {count_statuses(filter(None, map(self._facts, task.cohort)))}")
        self.tally.over(task, is_done=not error)
        self.write(task.cohort)

    def _left_out(self, items: Cohort, reasons: dict[int, tuple[bool, str]]) -> None:
        """Lanes that the task could not have."""
        busy = []
        for item in items:
            facts, (is_busy, reason) = self._facts(item), reasons[item.number]
            if facts is None:
                continue
            if item.final_facts() is not None:  # by another process, meanwhile
                self._ended(item)
            elif is_busy and self.is_sweep:
                busy.append(item)
            else:
                self.lose(item, reason)
        if busy:
            self.schedule.wait_for(Task(busy))
        if others := [item for item in busy if item.number not in self.schedule.tried]:  # not our own, tried again
            reason = reasons[others[0].number][1].partition(". Wait")[0]
            self.tally.say(f"{self._name(Task(others))}: waited for: {reason}")

    def _died(self, left: Cohort, task: Task, error: dict[str, str]) -> None:
        """The process of a task came to an end that it did not mean."""
        if len(left) > 1 and not self.stop.requested:
            self.tally.say(f"{self._name(task)}: {error['message']}: {len(left)} lanes go on in halves")
            self.schedule.halve(left)
        for item in left if len(left) == 1 else ():
            if self.guarded(item, lambda item: _mark(item, status="failed", error=error)):
                self._ended(item)

    def interrupt(self) -> None:
        """Say of runs whose training was cut off that it was."""
        for item in self.planned:
            is_cut = item.found is not None and (self._facts(item) or {}).get("status") == "running"
            if is_cut and not item.run.is_locked:
                self.guarded(item, lambda item: _mark(item, status="interrupted"))

    def guarded(self, item: PlannedRun, action: Callable[[PlannedRun], Any]) -> bool:
        """Do something with a run directory. What goes wrong with it costs this job only."""
        try:
            action(item)
            return True
        except (RecordError, OSError) as error:
            self.lose(item, str(error))
            return False

    def _facts(self, item: PlannedRun) -> dict[str, Any] | None:
        """What run.json says; None where it cannot be read any more."""
        try:
            return item.run.read()
        except RecordError as error:
            self.lose(item, str(error))
            return None

    def lose(self, item: PlannedRun, reason: str) -> None:
        item.failure = reason
        self.tally.say(f"{item.job.label}: left out: {reason}", is_error=True)

    def write(self, planned: list[PlannedRun], step: int = 0) -> None:
        """Rows of results.csv anew."""
        if self.results is not None:
            try:
                self.results.update(planned, step)
            except OSError as error:
                self.tally.say(f"{self.results.path} cannot be written: {error.strerror}", is_error=True)

    def _name(self, task: Task) -> str:
        first = task.cohort[0]
        if not self.is_sweep:
            return first.job.label
        if len(task.cohort) == 1:
            return f"job {first.number + 1} {first.job.label}"
        return f"{len(task.cohort)} lanes of {' '.join(choice.name for choice in first.job.parts)}"


def _mark(item: PlannedRun, *, status: str, **facts: Any) -> None:
    """Write an end into the event file and the run.json of a run that nobody trains any more."""
    from nnexp.tensorboard import write_session_end  # takes a while, and is rarely needed here

    item.run.lock()
    try:
        if item.status == "finished":  # it was only looked into
            item.note_probe_failure(facts.get("error", {}).get("message", "its process is gone"))
            return
        steps = last_step(item.run.path / "metrics.csv")
        reason = facts.get("error", {}).get("message", "")
        write_session_end(item.run.path, item.job.flat(), status, steps, reason)
        item.run.write(status=status, **facts, steps=steps, ended=utc_now())
    finally:
        item.run.unlock()


def count_statuses(facts: Iterable[dict[str, Any]]) -> str:
    """How many lanes ended how, and by which path."""
    known = list(facts)
    counts = Counter(str(each["status"]) for each in known)
    paths = ", ".join(sorted({str(each["path"]) for each in known if each.get("path")}))
    return ", ".join(f"{count} {status}" for status, count in counts.items()) + (f" ({paths})" if paths else "")
