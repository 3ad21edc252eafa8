"""What of a cohort trains as one stack, what alone, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch

from nnexp.base import StopRequest, shorten
from nnexp.fit.lightning_module import SoloLane, Trainable, run_guarded
from nnexp.fit.progress import ProgressListener
from nnexp.fit.run_writer import RunWriter
from nnexp.nn import without_compiled_kernels
from nnexp.stacking import (
    AttributeKey,
    ParityCheck,
    Stack,
    attributes_of,
    differing_attributes,
    group_stackable,
    lanes_that_differ,
    watch_attribute_reads,
)
from nnexp.training import Lane, PureUpdate

SOLO, STACKED, COMPILED = "solo", "stacked", "stacked-compiled"  # how a run's numbers are made


@dataclass(frozen=True)
class FitGroup:
    """Lanes that go through one fit."""

    engine: Trainable
    writers: list[RunWriter]


class StackOrSolo:
    """Sorts the lanes of a cohort, which are built and not yet trained, or resumed.

    Args:
        writers: of the lanes.
        is_cohort: whether they are, or were with those that have ended, more than one.
        renewed: gives a lane again as it was before anybody looked at it.
        stop: says when a signal asks for an end.
    """

    def __init__(
        self,
        writers: list[RunWriter],
        is_cohort: bool,
        renewed: Callable[[Lane], Lane],
        stop: StopRequest,
        progress: ProgressListener,
    ) -> None:
        self.is_cohort = is_cohort
        self.writers, self.renewed, self.stop, self.progress = writers, renewed, stop, progress
        self.alone: list[RunWriter] = []
        self.reasons: Counter[str] = Counter()
        self.rehearsals: dict[Lane, ParityCheck] = {}
        self.read: set[AttributeKey] = set()

    def parts(self) -> Iterator[FitGroup]:
        """One after the other, so that no two stacks are in memory at once."""
        together = self._together()
        self.alone += [writer for writer in self.writers if writer not in together]
        groups = self._groups(together)
        for members in groups:
            if len(members) == 1 and len(groups) > 1 and self.read and members[0].path is None:
                names = ", ".join(sorted({f"'{name}'" for _, name in self.read}))
                self._set_aside(
                    members, f"its forward pass reads {names}, which no other lane has, and which is no buffer"
                )
                continue
            # A resume keeps the path, on a machine that now has a compiler too.
            with without_compiled_kernels() if any(writer.path == STACKED for writer in members) else nullcontext():
                yield from self._stack(members)
        for reason, count in self.reasons.items():
            self.progress.say(f"{count} of {len(self.writers)} lanes train one by one: {reason}")
        for writer in self.alone:
            if run_guarded(writer, self.stop, partial(self._begin_alone, writer)):
                yield FitGroup(SoloLane(writer.lane), [writer])

    def _together(self) -> list[RunWriter]:
        """The lanes to stack where they can be: those that were, and fresh ones of a cohort."""
        return [
            writer
            for writer in self.writers
            if writer.path in (STACKED, COMPILED)
            or (writer.path is None and self.is_cohort and writer.lane.job.options.stack)
        ]

    def _set_aside(self, writers: list[RunWriter], reason: str) -> None:
        self.alone += writers
        self.reasons[reason] += len(writers)
        for writer in writers:
            writer.note(f"trained alone, not in a stack: {reason}")

    def _begin_alone(self, writer: RunWriter) -> bool:
        if writer.lane in self.rehearsals:
            writer.lane = self.renewed(writer.lane)
            if writer.is_fresh:
                writer.lane.evaluate("val")  # again, for a module may keep more than it tells
        return writer.begin(SOLO)

    def _groups(self, writers: list[RunWriter]) -> list[list[RunWriter]]:
        """Those that can be stacked, by what they must have in common. A lane whose first step raises fails here."""
        places = differing_attributes([writer.lane for writer in writers])
        able = [writer for writer in writers if run_guarded(writer, self.stop, partial(self._look, writer, places))]
        owners = {writer.lane: writer for writer in able if writer not in self.alone}
        known = {lane: (writer.path, lane.step, self.rehearsals[lane].draws) for lane, writer in owners.items()}
        return [[owners[lane] for lane in lanes] for lanes in group_stackable(list(owners), self.read, known)]

    def _look(self, writer: RunWriter, places: set[AttributeKey]) -> bool:
        """Have a lane's plain module rehearse its next step, and note what stands against a stack."""
        lane = writer.lane
        if not isinstance(lane.update, PureUpdate):
            self._set_aside([writer], f"trainer '{lane.job.trainer.name}' has no `init` and `update`")
            return True
        before = attributes_of(lane.module)
        try:
            with watch_attribute_reads(lane.module, places, self.read):
                self.rehearsals[lane] = ParityCheck(lane)
        except Exception:  # it may mind being watched
            self.rehearsals[lane] = ParityCheck(lane)
            self.read |= places
        after = attributes_of(lane.module)
        changed = [place[1] for place, value in after.items() if before.get(place) != value]
        if changed:
            self._set_aside([writer], f"its forward pass changes '{changed[0]}', which is no buffer")
        elif any(p._backward_hooks for p in lane.weights.params):
            self._set_aside([writer], "there are hooks on its weights")
        elif self.rehearsals[lane].trainer_draws:
            self._set_aside([writer], f"trainer '{lane.job.trainer.name}' draws random numbers")
        return True

    def _stack(self, writers: list[RunWriter]) -> Iterator[FitGroup]:
        try:
            stack = self._make(writers)
            odd = lanes_that_differ(stack, [self.rehearsals[writer.lane] for writer in writers])
        except Exception as error:
            if is_out_of_memory(error) and len(writers) > 1:
                for half in (writers[::2], writers[1::2]):
                    yield from self._stack(half)
            else:
                self._set_aside(writers, shorten(f"{type(error).__name__}: {error}"))
            return
        for place, what in odd.items():
            self._set_aside([writers[place]], f"at the first step the stack gives another {what} than the plain module")
        if odd:
            del stack
            rest = [writer for place, writer in enumerate(writers) if place not in odd]
            if rest:
                yield from self._stack(rest)
            return
        begun = [writer for writer in writers if run_guarded(writer, self.stop, partial(_begin, writer, stack))]
        for writer in writers:
            if writer not in begun:
                stack.release(writer.lane)
        if begun:
            yield FitGroup(stack, begun)

    def _make(self, writers: list[RunWriter]) -> Stack:
        lanes = [writer.lane for writer in writers]
        return Stack(lanes, lambda: self.stop.requested, draws=self.rehearsals[lanes[0]].draws)


def _begin(writer: RunWriter, stack: Stack) -> bool:
    if stack.draws and writer.is_fresh:
        writer.note("it draws random numbers in training: it equals the run trained alone in distribution only")
    return writer.begin(COMPILED if stack.is_compiled else STACKED, len(stack.lanes))


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory was not enough; torch has no type of its own for that on the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
