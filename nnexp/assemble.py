"""What of a cohort trains as one stack, what alone, and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch

from nnexp.alike import Place, agrees, differing, group, watched
from nnexp.capacity import lanes_that_fit
from nnexp.errors import cut
from nnexp.kernels import only_plain
from nnexp.lane import FirstStep, Lane
from nnexp.progress import Progress
from nnexp.stack import Stack
from nnexp.stop import Stop
from nnexp.training import Alone, Engine, guarded
from nnexp.update import PureUpdate
from nnexp.writer import Writer

SOLO, STACKED, COMPILED = "solo", "stacked", "stacked-compiled"  # how a run's numbers are made


@dataclass(frozen=True)
class Part:
    """Lanes that go through one fit."""

    engine: Engine
    writers: list[Writer]


class Assembly:
    """Sorts the lanes of a cohort, which are built and not yet trained, or resumed.

    Args:
        writers: of the lanes.
        stop: says when a signal asks for an end.
    """

    def __init__(self, writers: list[Writer], stop: Stop, progress: Progress) -> None:
        self.writers, self.stop, self.progress = writers, stop, progress
        self.alone: list[Writer] = []
        self.reasons: Counter[str] = Counter()
        self.first: dict[Lane, FirstStep] = {}
        self.read: set[Place] = set()
        self.drawing: set[Lane] = set()

    def parts(self) -> Iterator[Part]:
        """One after the other, so that no two stacks are in memory at once."""
        together = self._together()
        self.alone += [writer for writer in self.writers if writer not in together]
        groups = self._groups(together)
        for members in groups:
            if len(members) == 1 and len(groups) > 1 and self.read and members[0].path is None:
                self._set_aside(members, "its forward pass reads a value that no other lane has")
                continue
            # A resume keeps the path, on a machine that now has a compiler too.
            with only_plain() if any(writer.path == STACKED for writer in members) else nullcontext():
                yield from self._stacks(members)
        for reason, count in self.reasons.items():
            self.progress.say(f"{count} of {len(self.writers)} lanes train one by one: {reason}")
        for writer in self.alone:
            if guarded(writer, self.stop, partial(writer.begin, SOLO)):
                yield Part(Alone(writer.lane), [writer])

    def _together(self) -> list[Writer]:
        """The lanes to stack where they can be: those that were, and fresh ones where there are several."""
        chosen = [writer for writer in self.writers if writer.path != SOLO]
        is_stack = any(writer.path is not None for writer in chosen)
        wanted = len(chosen) > 1 and chosen[0].lane.job.settings.stack
        return chosen if wanted or is_stack else []

    def _set_aside(self, writers: list[Writer], reason: str) -> None:
        self.alone += writers
        self.reasons[reason] += len(writers)
        for writer in writers:
            writer.note(f"trained alone, not in a stack: {reason}")

    def _groups(self, writers: list[Writer]) -> list[list[Writer]]:
        """Those that can be stacked, by what they must have in common. A lane whose first step raises fails here."""
        places = differing([writer.lane for writer in writers])
        able = [writer for writer in writers if guarded(writer, self.stop, partial(self._look, writer.lane, places))]
        for writer in able:
            if not isinstance(writer.lane.update, PureUpdate):
                self._set_aside([writer], f"trainer '{writer.lane.job.trainer.name}' has no `init` and `update`")
        owners = {writer.lane: writer for writer in able if writer not in self.alone}
        known = {lane: (writer.path, lane.step, lane in self.drawing) for lane, writer in owners.items()}
        return [[owners[lane] for lane in lanes] for lanes in group(list(owners), self.read, known)]

    def _look(self, lane: Lane, places: set[Place]) -> bool:
        """Note what a lane's plain module does at its next step."""
        with watched(lane.module, places, self.read):
            self.first[lane] = lane.first_step()
        if self.first[lane].draws:  # what it gives where it does not draw can be compared
            self.drawing.add(lane)
            self.first[lane] = lane.first_step(training=False)
        return True

    def _stacks(self, writers: list[Writer]) -> Iterator[Part]:
        """As few stacks as memory allows, of even sizes."""
        most = lanes_that_fit([writer.lane for writer in writers])
        if most == 1 and len(writers) > 1:
            self._set_aside(writers, "memory holds no two of them at once")
            return
        count = math.ceil(len(writers) / most)
        for number in range(count):
            yield from self._stack(writers[number::count])

    def _stack(self, writers: list[Writer]) -> Iterator[Part]:
        try:
            stack = self._make(writers)
            losses, gradients = stack.first_step()
        except Exception as error:
            if is_out_of_memory(error) and len(writers) > 1:
                for half in (writers[::2], writers[1::2]):
                    yield from self._stack(half)
            else:
                self._set_aside(writers, f"they cannot be stacked: {cut(f'{type(error).__name__}: {error}', 120)}")
            return
        pairs = zip(writers, losses, gradients, strict=False)  # a lane that is alone stands in two rows
        odd = [w for w, loss, gradient in pairs if not agrees(w.lane, self.first[w.lane], loss, gradient)]
        if odd:
            self._set_aside(odd, "at the first step the stack gives another loss or gradient than the plain module")
            writers = [writer for writer in writers if writer not in odd]
            if not writers:
                return
            stack = self._make(writers)
        begun = [writer for writer in writers if guarded(writer, self.stop, partial(_begin, writer, stack))]
        for writer in writers:
            if writer not in begun:
                stack.release(writer.lane)
        if begun:
            yield Part(stack, begun)

    def _make(self, writers: list[Writer]) -> Stack:
        lanes = [writer.lane for writer in writers]
        return Stack(lanes, lambda: self.stop.requested, draws=lanes[0] in self.drawing)


def _begin(writer: Writer, stack: Stack) -> bool:
    if stack.draws and writer.is_fresh:
        writer.note("it draws random numbers in training: it equals the run trained alone in distribution only")
    return writer.begin(COMPILED if stack.is_compiled else STACKED)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory was not enough; torch has no type of its own for that on the CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
