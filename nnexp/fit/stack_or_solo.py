"""Selects the path of each lane of a cohort: stacked with others or solo, and notes the reason in run.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from nnexp.base import StopRequest, shorten
from nnexp.fit.lightning_module import Engine, SoloLane, run_or_fail
from nnexp.fit.progress import ProgressListener
from nnexp.fit.run_writer import COMPILED, SOLO, STACKED, RunWriter
from nnexp.nn import without_compiled_kernels
from nnexp.stacking import (
    AttributeKey,
    ParityCheck,
    Stack,
    attributes_of,
    differing_attributes,
    differing_trainer_values,
    group_stackable,
    lanes_that_differ,
    repeats,
    trainer_values,
    watch_attribute_reads,
)
from nnexp.training import Lane, PureUpdate

ANSWERS_DIFFER = (
    "with the same weights, batch and random numbers the model answers differently when asked twice: "
    "nothing can repeat this run."
)


@dataclass(frozen=True)
class FitGroup:
    """Lanes trained in one Lightning fit: one stack, or one solo lane."""

    engine: Engine
    writers: list[RunWriter]


class PathSelector:
    """Groups the lanes of a cohort into fits.

    A lane is stacked if its forward pass changes and reads nothing that a stack cannot hold, and if the first step of
    the stack agrees with that of its own module. All others are trained solo, each with a note that says why. A resumed
    lane keeps its path.

    Args:
        writers: of the lanes, which are at step 0 or resumed.
        in_cohort: stack fresh lanes, also a single one that is left of a larger cohort.
        rebuild: returns a new copy of a lane at the same step, as if its module had never run.
        stop: requested by a signal or by the sweep.
        progress: is told how many lanes are trained solo, and why.
    """

    def __init__(
        self,
        writers: list[RunWriter],
        in_cohort: bool,
        rebuild: Callable[[Lane], Lane],
        stop: StopRequest,
        progress: ProgressListener,
    ) -> None:
        self.in_cohort = in_cohort
        self.writers, self.rebuild, self.stop, self.progress = writers, rebuild, stop, progress
        self.solo: list[RunWriter] = []
        self.solo_reasons: Counter[str] = Counter()
        self.parity_checks: dict[Lane, ParityCheck] = {}
        self.attributes_read: set[AttributeKey] = set()
        self.trainer_reads: set[str] = set()

    def groups(self) -> Iterator[FitGroup]:
        """Yield groups lazily, so that only one stack is in memory at a time: stacks first, then solo lanes."""
        candidates = [writer for writer in self.writers if self._is_stack_candidate(writer)]
        self.solo += [writer for writer in self.writers if writer not in candidates]
        groups = self._group_stackable(candidates)
        for members in groups:
            reads = self.attributes_read or self.trainer_reads
            if len(members) == 1 and len(groups) > 1 and reads and members[0].path is None:
                self._make_solo(members, self._lone_reason())
                continue
            # A resume keeps the path, also on a machine that has a compiler now.
            with without_compiled_kernels() if any(writer.path == STACKED for writer in members) else nullcontext():
                yield from self._stack(members)
        yield from self._solo_groups()

    def _lone_reason(self) -> str:
        attributes = ", ".join(sorted({f"'{name}'" for _, name in self.attributes_read}))
        values = ", ".join(sorted(f"'{name}'" for name in self.trainer_reads))
        reads = [f"its forward pass reads {attributes}, which is not a buffer"] if attributes else []
        reads += [f"its trainer's update reads {values}"] if values else []
        return f"{' and '.join(reads)}: no other lane has the same values"

    def _solo_groups(self) -> Iterator[FitGroup]:
        for reason, count in self.solo_reasons.items():
            self.progress.say(f"{count} of {len(self.writers)} lanes are trained solo: {reason}")
        for writer in self.solo:
            if run_or_fail(writer, self.stop, partial(self._start_solo, writer)):
                yield FitGroup(SoloLane(writer.lane), [writer])

    def _is_stack_candidate(self, writer: RunWriter) -> bool:
        is_fresh_of_cohort = writer.path is None and self.in_cohort and writer.lane.job.options.stack
        return writer.path in (STACKED, COMPILED) or is_fresh_of_cohort

    def _make_solo(self, writers: list[RunWriter], reason: str) -> None:
        self.solo += writers
        self.solo_reasons[reason] += len(writers)
        for writer in writers:
            writer.note(f"trained solo, not in a stack: {reason}")

    def _start_solo(self, writer: RunWriter) -> bool:
        if writer.is_fresh and not repeats(writer.lane, partial(self.rebuild, writer.lane)):
            writer.note(ANSWERS_DIFFER)
        if writer.lane in self.parity_checks:
            writer.lane = self.rebuild(writer.lane)
            if writer.is_fresh:
                writer.lane.evaluate("val")  # as before row 0: a module may keep state that is in no buffer
        return writer.start(SOLO)

    def _group_stackable(self, writers: list[RunWriter]) -> list[list[RunWriter]]:
        """Return the writers that can be stacked, grouped by what a stack's lanes must have in common.

        The run of a lane whose first step raises fails here.
        """
        places = differing_attributes([writer.lane for writer in writers])
        able = [w for w in writers if run_or_fail(w, self.stop, partial(self._check_stackable, w, places))]
        owners = {writer.lane: writer for writer in able if writer not in self.solo}
        self.trainer_reads = differing_trainer_values(list(owners))
        keys = {lane: (writer.path, lane.step, self._key(lane)) for lane, writer in owners.items()}
        groups = group_stackable(list(owners), self.attributes_read, keys)
        return [[owners[lane] for lane in lanes] for lanes in groups]

    def _key(self, lane: Lane) -> tuple[Any, ...]:
        values = trainer_values(lane)
        return (self.parity_checks[lane].draws, *(values.get(name) for name in sorted(self.trainer_reads)))

    def _check_stackable(self, writer: RunWriter, places: set[AttributeKey]) -> bool:
        """Run the lane's next step with its own module, and make the lane solo if a stack cannot reproduce it."""
        lane = writer.lane
        if not isinstance(lane.update, PureUpdate):
            self._make_solo([writer], f"trainer '{lane.job.trainer.name}' has no `init` and `update`")
            return True
        before, trainer_before = attributes_of(lane.module), trainer_values(lane)
        try:
            with watch_attribute_reads(lane.module, places, self.attributes_read):
                self.parity_checks[lane] = ParityCheck(lane)
        except Exception:  # the module may not work while its attributes are watched: assume that it reads them all
            self.parity_checks[lane] = ParityCheck(lane)
            self.attributes_read |= places
        after = attributes_of(lane.module)
        changed = [place[1] for place, value in after.items() if before.get(place) != value]
        if changed:
            self._make_solo([writer], f"its forward pass changes '{changed[0]}', which is not a buffer")
        elif not self.parity_checks[lane].repeats:
            self._make_solo([writer], "it answers differently when asked twice")
        elif any(p._backward_hooks for p in lane.weights.params):
            self._make_solo([writer], "there are hooks on its weights")
        elif changed := [name for name, value in trainer_values(lane).items() if trainer_before.get(name) != value]:
            self._make_solo([writer], f"its trainer changes its own '{changed[0]}', which a stack has once for all")
        elif self.parity_checks[lane].trainer_draws:
            self._make_solo([writer], f"trainer '{lane.job.trainer.name}' draws random numbers")
        return True

    def _stack(self, writers: list[RunWriter]) -> Iterator[FitGroup]:
        """Yield these lanes as one stack; in halves if memory is short, without those that fail the parity check."""
        try:
            stack = self._build_stack(writers)
            differing = lanes_that_differ(stack, [self.parity_checks[writer.lane] for writer in writers])
        except Exception as error:
            if is_out_of_memory(error) and len(writers) > 1:
                for half in (writers[::2], writers[1::2]):
                    yield from self._stack(half)
            else:
                self._make_solo(writers, shorten(f"{type(error).__name__}: {error}"))
            return
        if differing:
            del stack  # before the next one takes its memory
            yield from self._stack_without(writers, differing)
            return
        started = [
            writer for writer in writers if run_or_fail(writer, self.stop, partial(_start_stacked, writer, stack))
        ]
        for writer in writers:
            if writer not in started:
                stack.release(writer.lane)
        if started:
            yield FitGroup(stack, started)

    def _stack_without(self, writers: list[RunWriter], differing: dict[int, str]) -> Iterator[FitGroup]:
        for number, quantity in differing.items():
            reason = f"at the first step the stack computes another {quantity} than the plain module"
            self._make_solo([writers[number]], reason)
        rest = [writer for number, writer in enumerate(writers) if number not in differing]
        if rest:
            yield from self._stack(rest)

    def _build_stack(self, writers: list[RunWriter]) -> Stack:
        lanes = [writer.lane for writer in writers]
        return Stack(lanes, lambda: self.stop.requested, draws=self.parity_checks[lanes[0]].draws)


def _start_stacked(writer: RunWriter, stack: Stack) -> bool:
    if stack.draws and writer.is_fresh:
        writer.note("draws random numbers in training: a stacked run equals the solo run in distribution only")
    return writer.start(COMPILED if stack.is_compiled else STACKED, len(stack.lanes))


def is_out_of_memory(error: Exception) -> bool:
    """Return True if memory was not sufficient; on the CPU torch raises a plain RuntimeError for that."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
