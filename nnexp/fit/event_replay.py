"""The event file of a run, made from what lies in its directory: a pure function of metrics.csv and figures/."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

from nnexp.rundir import Figures, read_rows
from nnexp.tensorboard import EVENT_FILES, EventFile
from nnexp.training import Lane

EVALUATION_POINTS = 250


class ScalarPoints:
    """Which rows of metrics.csv become points: those with layer norms, and enough of those with an evaluation."""

    def __init__(self, lane: Lane) -> None:
        every = lane.trainer.eval_every
        self._stride = every * (math.ceil(math.ceil(lane.trainer.max_steps / every) / EVALUATION_POINTS) or 1)

    def holds(self, step: int, row: dict[str, float]) -> bool:
        is_evaluation = "val/loss" in row and step % self._stride == 0
        return is_evaluation or "lr" in row or "test/loss" in row


@contextlib.contextmanager
def replace_event_file(folder: Path, lane: Lane, started: float) -> Iterator[EventFile]:
    """An event file with all that is recorded; at the end of the block it takes the place of the one that is there."""
    old = sorted(folder.glob(EVENT_FILES))
    events = EventFile(folder, is_hidden=True)
    try:
        _fill(events, folder, lane, started, ScalarPoints(lane), replayed=True)
        yield events
        events.flush()
        os.replace(events.path, old[-1] if old else folder / events.name)
    finally:
        events.path.unlink(missing_ok=True)


def new_event_file(folder: Path, lane: Lane, started: float, points: ScalarPoints, *, replayed: bool) -> EventFile:
    """A new event file in place of the one that is there.

    Args:
        started: when its training began, in seconds.
        replayed: with all that was recorded before.
    """
    events = EventFile(folder)
    _fill(events, folder, lane, started, points, replayed=replayed)
    return events


def _fill(events: EventFile, folder: Path, lane: Lane, started: float, points: ScalarPoints, *, replayed: bool) -> None:
    events.session_start(lane.job.flat(), started)
    if replayed:
        rows = read_rows(folder / "metrics.csv")
        events.scalars((step, row) for step, row in rows if points.holds(step, row))
        figures = Figures(folder)
        for record in figures.records():
            with contextlib.suppress(ValueError, TypeError, OverflowError):  # one that is damaged costs itself
                events.figures(record, figures)
    events.flush()
