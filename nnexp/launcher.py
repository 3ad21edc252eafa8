"""Runs a plan, on workers or in this process: what fails costs its own run only."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from nnexp.command import Command
from nnexp.cost import Costs
from nnexp.create import refer
from nnexp.devices import gpus_for, num_workers
from nnexp.errors import RecordError
from nnexp.here import Here
from nnexp.plan import Cohort, Planned, make_runs
from nnexp.pool import Pool
from nnexp.progress import Progress
from nnexp.record import ENDED, now
from nnexp.registry import Registry
from nnexp.results import Results
from nnexp.schedule import Schedule
from nnexp.stop import Stop
from nnexp.tally import Tally
from nnexp.task import BUSY, Task

LISTEN_SECONDS = 0.2
LOOK_SECONDS = 1.0


def launch(
    cohorts: list[Cohort], registry: Registry, stop: Stop, command: Command | None = None, *, quiet: bool = False
) -> list[Planned]:
    """Train what is not done; gives the jobs that have a run now, those that were done before among them, in order.

    After a signal, or the failures that the command allows, nothing new is begun.

    Args:
        command: how; without one, in this process.
    """
    planned = sorted((item for cohort in cohorts for item in cohort), key=lambda item: item.number)
    if not planned:
        return []
    return Launcher(cohorts, planned, registry, stop, command or Command(workers=0), quiet).run()


class Launcher:
    """The progress of one plan."""

    def __init__(
        self,
        cohorts: list[Cohort],
        planned: list[Planned],
        registry: Registry,
        stop: Stop,
        command: Command,
        quiet: bool,
    ) -> None:
        self.planned, self.stop, self.command = planned, stop, command
        self.is_sweep = len(planned) > 1
        done = [item for item in planned if item.is_done]
        self.counted = {item.number for item in done}
        self.num_failed, self._next_look = 0, 0.0
        gpus = gpus_for([item.job for item in planned if not item.is_done])
        size = num_workers(command, gpus)
        self.costs = Costs(planned)
        self.schedule = Schedule(cohorts, size, command.retries, self.costs)
        tasks = list(self.schedule.waiting)
        self.tally = Tally(len(planned), tasks, self.costs, quiet or not self.is_sweep)
        self.results = Results(planned) if self.is_sweep else None
        self.pool: Pool | Here
        if command.workers == 0 or not tasks:
            job = planned[0].job
            steps = job.trainer.values.get("max_steps", 0)
            self.pool = Here(self._heard, registry, stop, None if self.is_sweep else Progress(job.label, steps, quiet))
        else:
            self.pool = Pool(min(size, len(tasks)), self._heard, registry, gpus)
        for item in done:
            self.tally.count(item, item.run.read())
        if done and not quiet:
            text = f"{len(done)} of {len(planned)} jobs had ended before."
            self.tally.say(text if self.is_sweep else "this job had ended before.")

    def run(self) -> list[Planned]:
        for item in self.planned:
            if item.is_done:
                self._guarded(item, lambda item=item: refer(item.job, item.run))
        if self.command.rerun:
            make_runs(self.planned)  # all now, so that what is interrupted is known from what is finished
        self.tally.show()
        try:
            self._loop()
        except KeyboardInterrupt:
            self.pool.close()
            self._interrupt()
            raise
        finally:
            self.pool.close()
            self.tally.close()
        begun = [item for item in self.planned if item.found is not None and self._guarded(item, item.run.read)]
        if begun:
            self._write(self.planned)
        missing = len(self.planned) - len(begun)
        if missing and self.stop.requested:
            self.tally.say(f"{missing} of {len(self.planned)} jobs were not begun.", is_error=True)
        return begun

    def _loop(self) -> None:
        is_asked = False
        while True:
            if not self.stop.requested:
                self._look()
                self._hand_out()
            elif not is_asked:
                is_asked = True
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
            self.tally.say("stopping: what is in training writes its checkpoint. Ctrl-C again ends it at once.")

    def _start(self, task: Task) -> None:
        """Make the run directories of a task, and hand it out."""
        make_runs(task.cohort)
        for item in task.cohort:
            if self._guarded(item, lambda item=item: item.run.read()):
                self._guarded(item, lambda item=item: refer(item.job, item.run))
        able = [item for item in task.cohort if item.found is not None]
        if not able:
            return
        task = Task(able, task.is_cohort)
        self._write(able)
        try:
            self.pool.start(task)
        except (OSError, EOFError) as error:
            for item in able:
                self._lose(item, f"no process can be made to train it: {error}")

    def _look(self) -> None:
        """See now and then what has become of runs that other processes have."""
        if not self.schedule.busy or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        for item in self.schedule.look():
            self._count(item, item.run.read())
            self._write([item])

    def _heard(self, task: Task, kind: str, content: Any) -> None:
        if kind == "step":
            self.tally.step(task, content)
        elif kind == "say":
            self.tally.say(f"{self._name(task)}: {content}")
        elif kind == "ended":
            self._ended(self.planned[content], task)
        else:
            self._over(task, content)
        self.tally.show()

    def _ended(self, item: Planned, task: Task) -> None:
        """A run has ended."""
        if item.number in self.counted:
            return
        facts = item.run.read()
        self.costs.learn(item.job, facts)
        self._write([item])
        message = str((facts.get("error") or {}).get("message", ""))
        end = f"{self._name(Task([item], False))}: {facts['status']} at step {facts.get('steps', 0)}: {message}"
        if facts["status"] == "failed" and self.schedule.retry(item, task.is_cohort):
            self.tally.say(f"{end} It is tried again.")
            return
        if facts["status"] != "finished" and self.is_sweep:
            self.tally.say(end)
        self._count(item, facts)

    def _count(self, item: Planned, facts: dict[str, Any]) -> None:
        self.counted.add(item.number)
        self.tally.count(item, facts)
        self.num_failed += facts["status"] != "finished"
        if self.num_failed >= self.command.most_failures and not self.stop.requested:
            self.tally.say(f"{self.num_failed} failed: the sweep ends here, as the command says.", is_error=True)
            self.stop.requested = True

    def _over(self, task: Task, content: dict[str, Any]) -> None:
        """A task is over; what of it has not ended is looked after."""
        left_out = {int(number): reason for number, reason in content["left_out"].items()}
        tried_again = {item.number for again in self.schedule.waiting for item in again.cohort}
        left = [i for i in task.cohort if i.number not in self.counted and i.number not in tried_again]
        for item in [item for item in left if item.number in left_out]:
            left.remove(item)
            self._left_out(item, task, *left_out[item.number])
        if error := content.get("error") or (
            {"type": "Died", "message": content["died"]} if "died" in content else None
        ):
            self._died(left, task, error)
        elif self.is_sweep and len(task.cohort) > 1:
            self.tally.say(f"{self._name(task)}: {ends(task.cohort)}")
        self.tally.over(task)
        self._write(task.cohort)

    def _left_out(self, item: Planned, task: Task, why: str, reason: str) -> None:
        if item.status in ENDED and item.status not in item.again:  # by another process, meanwhile
            self._ended(item, task)
        elif why == BUSY and self.is_sweep:
            self.tally.say(f"{reason.partition(' Wait')[0]} It is waited for.")
            self.schedule.wait_for(item, task.is_cohort)
        else:
            self._lose(item, reason)

    def _died(self, left: Cohort, task: Task, error: dict[str, str]) -> None:
        """The process of a task came to an end that it did not mean."""
        if len(left) > 1 and not self.stop.requested:
            self.tally.say(f"{self._name(task)}: {error['message']}: {len(left)} lanes go on in halves")
            self.schedule.halve(left, task.is_cohort)
        for item in left if len(left) == 1 else ():
            if self._guarded(item, lambda item=item: _mark(item, status="failed", error=error)):
                self._ended(item, task)

    def _interrupt(self) -> None:
        """Say of runs whose training was cut off that it was."""
        for item in self.planned:
            if item.found is not None and item.status == "running" and not item.run.is_locked:
                self._guarded(item, lambda item=item: _mark(item, status="interrupted"))

    def _guarded(self, item: Planned, action: Any) -> bool:
        """Do something with a run directory. What goes wrong with it costs this job only."""
        try:
            action()
            return True
        except (RecordError, OSError) as error:
            self._lose(item, str(error))
            return False

    def _lose(self, item: Planned, reason: str) -> None:
        item.lost = reason
        self.tally.say(f"{item.job.label}: left out: {reason}", is_error=True)

    def _write(self, planned: list[Planned]) -> None:
        if self.results is not None:
            try:
                self.results.update(planned)
            except OSError as error:
                self.tally.say(f"{self.results.path} cannot be written: {error.strerror}", is_error=True)

    def _name(self, task: Task) -> str:
        first = task.cohort[0]
        if not self.is_sweep:
            return first.job.label
        if len(task.cohort) == 1:
            return f"{first.number + 1}/{len(self.planned)} {first.job.label}"
        return f"{len(task.cohort)} lanes of {' '.join(choice.name for choice in first.job.choices)}"


def _mark(item: Planned, **facts: Any) -> None:
    """Write an end into the run.json of a run that nobody trains any more."""
    item.run.lock()
    try:
        item.run.write(**facts, ended=now())
    finally:
        item.run.unlock()


def ends(cohort: Cohort) -> str:
    """How many lanes ended how, and by which path."""
    facts = [item.run.read() for item in cohort]
    counts = Counter(str(each["status"]) for each in facts)
    paths = ", ".join(sorted({str(each["path"]) for each in facts if each.get("path")}))
    return ", ".join(f"{count} {status}" for status, count in counts.items()) + (f" ({paths})" if paths else "")
