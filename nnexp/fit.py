"""One cohort, from its jobs to their sealed run directories, and a process left as it was."""

from __future__ import annotations

import itertools
import warnings
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch

from nnexp.assemble import Assembly, Part
from nnexp.capacity import lanes_that_fit
from nnexp.config import Job
from nnexp.datasets import Datasets
from nnexp.describe import describe
from nnexp.errors import NnexpError
from nnexp.events import end_for
from nnexp.lane import Lane
from nnexp.lightning import make_trainer
from nnexp.logs import logging, turn
from nnexp.looks import look_again
from nnexp.memory import freed_memory_kept
from nnexp.metrics import Rows
from nnexp.plan import Cohort, Planned
from nnexp.probing import Own, Probing
from nnexp.progress import Watch
from nnexp.registry import Registry
from nnexp.stop import Stop
from nnexp.training import Training, finish, guarded
from nnexp.undisturbed import undisturbed
from nnexp.writer import Writer, seal


@dataclass(kw_only=True)
class Fit:
    """How cohorts are trained.

    Args:
        stop: says when a signal asks for an end.
        chunk: updates in a chunk, or None for about half a second. Changes no number.
        datasets: data that were made before, for they may be needed again.
        share: of the free memory, the part that the lanes may take.
        echo: show what plugins print, and not only keep it in log.txt.
    """

    registry: Registry
    stop: Stop
    progress: Watch
    chunk: int | None = None
    training: type[Training] = Training
    datasets: Datasets = field(default_factory=Datasets)
    share: float = 1.0
    echo: bool = True

    def train(self, cohort: Cohort, is_cohort: bool = False) -> None:
        """Train the jobs of one cohort, each into its run directory, whose run.json says how it ended.

        Nothing global is left changed: generators, environment, logging, threads.

        Args:
            is_cohort: whether they were more than one before some of them ended, so that a sweep gives a job the same
                numbers whatever is left of it to be trained.
        """
        with undisturbed(), logging(self.echo), turn([planned.run for planned in cohort]):
            pieces = self._pieces(cohort)
            for number, piece in enumerate(pieces):
                if number and self.stop.requested:
                    break
                self._train(piece, len(piece) > 1 or (is_cohort and len(pieces) == 1))

    def look(self, planned: Planned) -> None:
        """Have the probes look into a finished run that have not. What goes wrong leaves it as it was, with a note."""
        if self.stop.requested:
            return
        with undisturbed(), logging(self.echo), turn([planned.run]):
            names = planned.unseen(planned.facts())
            job = replace(planned.job, probes=tuple(c for c in planned.job.probes if c.name in names))
            try:
                lane = self._unwarned(job)
                look_again(planned.run, lane, planned.fingerprint, self._probing(job, is_reopened=True))
            except Exception as error:
                with suppress(OSError):  # a full disk
                    planned.note_unseen(describe(error)["message"])

    def _pieces(self, cohort: Cohort) -> list[Cohort]:
        """As few as memory allows, of even sizes."""
        if len(cohort) == 1 or not cohort[0].job.settings.stack:
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
        device = torch_device(job.settings.device)
        return Lane(job, self.registry, device, lambda: self.stop.requested, self.datasets)

    def _renewed(self, lane: Lane) -> Lane:
        """The lane as it was built, at the same step."""
        fresh = self._unwarned(lane.job)
        fresh.restore(lane.state())
        return fresh

    def _probing(self, job: Job, *, is_reopened: bool = False) -> Probing:
        return Probing(job, self.registry, self._own, lambda: self.stop.requested, is_reopened=is_reopened)

    @cached_property
    def _own(self) -> Own:
        return Own(self._unwarned)

    def _unwarned(self, job: Job) -> Lane:
        """A lane of a job of which one was built before, and its warnings told."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._lane(job)

    def _train(self, cohort: Cohort, is_cohort: bool) -> None:
        self.datasets.keep(planned.job for planned in cohort)
        device = torch_device(cohort[0].job.settings.device)
        opened = {writer: planned for planned in cohort if (writer := self._open(planned)) is not None}
        for planned in cohort:
            planned.run.heartbeat()
        pending = [writer for writer in opened if guarded(writer, self.stop, partial(_start, writer))]
        seal(list(opened))
        self._tell_resumed(pending)
        with turn([writer.run for writer in pending]):
            together = self._fit_parts(pending, is_cohort, device)
        for failed in together:
            self._halve([opened[writer] for writer in failed])

    def _fit_parts(self, writers: list[Writer], is_cohort: bool, device: torch.device) -> list[list[Writer]]:
        """Train the lanes, part by part. Gives those that an error ended which may be of any of them, together."""
        left, failed = set(writers), []
        for part in Assembly(writers, is_cohort, self._renewed, self.stop, self.progress).parts():
            left -= set(part.writers)
            if together := self._fit(part, device):
                failed.append(together)
            if self.stop.requested:
                break
        for writer in left:
            if writer.is_open:
                writer.interrupt()
        return failed

    def _tell_resumed(self, writers: list[Writer]) -> None:
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

    def _fit(self, part: Part, device: torch.device) -> list[Writer]:
        """One Lightning fit. Gives the lanes that an error ended which may be of any of them."""
        settings = part.writers[0].lane.job.settings
        module = self.training(part.engine, part.writers, self.stop, self.progress, self.chunk)
        try:
            runs = [writer.run for writer in part.writers]
            with turn(runs), freed_memory_kept() if len(part.writers) > 1 else nullcontext():
                make_trainer(device, settings.precision).fit(module, itertools.repeat(0))
        except BaseException as error:
            module.error = error
        live = list(module.writers.values())
        if module.error is None:
            for writer in live:
                writer.interrupt()
            return []
        return self._abandon(live, module.error)

    def _abandon(self, live: list[Writer], error: BaseException) -> list[Writer]:
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

    def _open(self, planned: Planned) -> Writer | None:
        """The writer of a job's lane; None where it could not be made, which its run.json then says."""
        try:
            with turn([planned.run]), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                lane = self._lane(planned.job)
            writer = Writer(planned.run, lane, planned.fingerprint, self._probing(planned.job))
            writer.note(*(str(warning.message) for warning in caught if warning.category is UserWarning))
            return writer
        except BaseException as error:
            if self.stop.requested and isinstance(error, KeyboardInterrupt):
                raise
            told = describe(error)
            with suppress(OSError):  # a full disk: the run stays as it was
                planned.run.write(status="failed", error=told, steps=0)
                end_for(planned.run.path, planned.job.flat(), "failed", 0, told["message"])
            return None


def _start(writer: Writer) -> bool:
    """Row 0, before any training. False where the lane is already at its end."""
    lane = writer.lane
    if writer.is_fresh:
        row = lane.evaluate("val") | (lane.evaluate("test") if lane.is_ended else {})
        lane.observe(row["val/loss"])
        writer.rows(Rows(1, [], [], {0: row}))
        writer.look(is_end=lane.is_ended)
        if lane.is_ended:
            finish(writer, row)
    return not lane.is_ended


def torch_device(name: str) -> torch.device:
    """The device that a job asks for. Raises NnexpError where this machine has none."""
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, there in found.items() if there))
    if not found[name]:
        raise NnexpError(f"device={name}: there is none on this machine. Use device=cpu, or device=auto.")
    return torch.device(name)
