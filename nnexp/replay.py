"""The event file of a run, made from what lies in its directory: a pure function of metrics.csv and figures/."""

from __future__ import annotations

import math
from pathlib import Path

from nnexp.events import Events
from nnexp.figures import Figures
from nnexp.lane import Lane
from nnexp.metrics import read_rows

EVALUATION_POINTS = 250


class Points:
    """Which rows of metrics.csv become points: those with layer norms, and enough of those with an evaluation."""

    def __init__(self, lane: Lane) -> None:
        every = lane.trainer.eval_every
        self._stride = every * (math.ceil(math.ceil(lane.trainer.max_steps / every) / EVALUATION_POINTS) or 1)

    def holds(self, step: int, row: dict[str, float]) -> bool:
        is_evaluation = "val/loss" in row and step % self._stride == 0
        return is_evaluation or "lr" in row or "test/loss" in row


def new_events(folder: Path, lane: Lane, started: float, points: Points, *, replayed: bool) -> Events:
    """A new event file in place of the one that is there.

    Args:
        started: when its training began, in seconds.
        replayed: with all that was recorded before.
    """
    events = Events(folder)
    events.session_start(lane.job.flat(), started)
    if replayed:
        rows = read_rows(folder / "metrics.csv")
        events.scalars((step, row) for step, row in rows if points.holds(step, row))
        figures = Figures(folder)
        for record in figures.records():
            events.figures(record, figures)
    events.flush()
    return events
