"""TensorBoard event file of a run, rebuilt from metrics.csv and figures/ alone."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

from nnexp.rundir import Figures, read_rows
from nnexp.tensorboard import EVENT_FILES, EventFile
from nnexp.training import Lane

MAX_EVALUATION_POINTS = 250


class ScalarFilter:
    """Selects the rows of metrics.csv that become scalars in TensorBoard.

    Rows with gradient norms by layer and the test row are included; of the evaluations every n-th, so that there are
    at most `MAX_EVALUATION_POINTS`.
    """

    def __init__(self, lane: Lane) -> None:
        every = lane.trainer.eval_every
        evaluations = math.ceil(lane.trainer.max_steps / every)
        self._stride = every * (math.ceil(evaluations / MAX_EVALUATION_POINTS) or 1)

    def includes(self, step: int, row: dict[str, float]) -> bool:
        """Return True if the row of this step becomes a point."""
        is_evaluation = "val/loss" in row and step % self._stride == 0
        return is_evaluation or "lr" in row or "test/loss" in row


@contextlib.contextmanager
def replace_event_file(folder: Path, lane: Lane, started: float) -> Iterator[EventFile]:
    """Yield a new event file with everything recorded so far; it replaces the old file when the block succeeds.

    Args:
        folder: the run directory.
        lane: names the hyperparameters and selects the rows.
        started: start of the session, in seconds since the epoch.
    """
    old = sorted(folder.glob(EVENT_FILES))
    events = EventFile(folder, is_hidden=True)
    try:
        _fill(events, folder, lane, started, ScalarFilter(lane), replay=True)
        yield events
        events.flush()
        os.replace(events.path, old[-1] if old else folder / events.name)
    finally:
        events.path.unlink(missing_ok=True)


def new_event_file(folder: Path, lane: Lane, started: float, points: ScalarFilter, *, replay: bool) -> EventFile:
    """Return a new event file that takes the place of the old one at once.

    Args:
        folder: the run directory.
        lane: names the hyperparameters.
        started: start of training, in seconds since the epoch.
        points: selects the rows that become scalars.
        replay: write what metrics.csv and figures/ hold already, as after a resume.
    """
    events = EventFile(folder)
    _fill(events, folder, lane, started, points, replay=replay)
    return events


def _fill(events: EventFile, folder: Path, lane: Lane, started: float, points: ScalarFilter, *, replay: bool) -> None:
    events.session_start(lane.job.flat(), started)
    if replay:
        rows = read_rows(folder / "metrics.csv")
        events.scalars((step, row) for step, row in rows if points.includes(step, row))
        figures = Figures(folder)
        for record in figures.records():
            with contextlib.suppress(ValueError, TypeError, OverflowError):  # a damaged record is skipped
                events.figures(record, figures)
    events.flush()
