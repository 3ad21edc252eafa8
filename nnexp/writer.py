"""What a lane leaves behind while it trains: metrics.csv, the event file, checkpoints, and at last the seal."""

from __future__ import annotations

import math
import time
import traceback
from typing import Any

from nnexp.checkpoint import MODEL, checkpoints, encode, save, save_checkpoint
from nnexp.errors import NnexpError, RecordError
from nnexp.events import Events
from nnexp.lane import Lane
from nnexp.metrics import Metrics, Rows, read_rows
from nnexp.provenance import provenance
from nnexp.record import Run, now
from nnexp.registry import plugin_files
from nnexp.tell import tell

FLUSH_SECONDS = 5.0
EVALUATION_POINTS = 250
DIGITS = {32: 9, 64: 17, "bf16": 9}


class Writer:
    """Writes one lane's run directory. Made when training begins: it resumes from a checkpoint where there is one.

    Args:
        run: the directory, locked by the caller.
        lane: what is trained; its state is set from the checkpoint.
        fingerprint: of the job.
    """

    def __init__(self, run: Run, lane: Lane, fingerprint: str) -> None:
        self.run, self.lane, self.fingerprint = run, lane, fingerprint
        self.is_fresh = self.is_open = True
        self.notes: list[str] = []
        self.started, self._flushed = time.time(), time.monotonic()
        evaluations = math.ceil(lane.trainer.max_steps / lane.trainer.eval_every)
        self._evaluation_stride = lane.trainer.eval_every * (math.ceil(evaluations / EVALUATION_POINTS) or 1)
        encode(lane.state())  # what cannot be kept is refused now, not at the first checkpoint
        facts = run.read()
        self._seconds = float(facts["seconds"])
        self.metrics = Metrics(run.path / "metrics.csv", lane.columns, DIGITS[lane.job.settings.precision])
        if facts["status"] == "new":
            self.metrics.restart()  # killed, or its disk full, before it began
        resumed = [*facts["resumed_from"], self._resume()] if facts["status"] != "new" else []
        self.path: str | None = facts.get("path")  # a resume keeps it
        device = str(lane.weights.vector.device)
        self.events = self._new_events()
        self._update(
            **provenance(device),
            status="running",
            parameters=lane.num_weights,
            resumed_from=resumed,
            started=now(),
            error=None,
        )

    def _resume(self) -> int:
        """Set the lane to the newest whole checkpoint, or to the start; gives the step it goes on from."""
        for content in checkpoints(self.run.path, self.fingerprint):
            if self.metrics.holds(content["metrics_bytes"], content["metrics_sha256"]):
                self.metrics.cut(content["metrics_bytes"])
                self.lane.restore(content["state"])
                self.is_fresh = False
                return self.lane.step
        self.metrics.restart()
        return 0

    def _new_events(self) -> Events:
        """An event file that says what metrics.csv says, and nothing else."""
        events = Events(self.run.path)
        events.session_start(self.lane.job.flat(), self.started)
        for step, row in read_rows(self.metrics.path):
            self._point(events, step, row)
        events.flush()
        return events

    def _point(self, events: Events, step: int, row: dict[str, float]) -> None:
        """A bounded number of steps become points: those with layer norms, and enough of those with an evaluation."""
        is_evaluation = "val/loss" in row and step % self._evaluation_stride == 0
        if is_evaluation or "lr" in row or "test/loss" in row:
            events.scalars(step, row)

    def note(self, *texts: str) -> None:
        """Keep what is worth knowing beside the numbers; it is shown with the results."""
        self.notes += texts
        self.run.write(notes=self.notes)

    def begin(self, path: str) -> bool:
        """Record how the numbers are made."""
        self.path = path
        self.run.write(path=path)
        return True

    def rows(self, rows: Rows) -> None:
        """Record rows; on disk at the next flush or checkpoint."""
        self.metrics.append(rows)
        for step in rows.sparse:
            self._point(self.events, step, rows.row(step))
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.events.flush()
            self._flushed = time.monotonic()
        self.run.heartbeat()

    def checkpoint(self) -> None:
        """Save all that training goes on from. The rows up to here are on disk first."""
        save_checkpoint(self.run.path, self._state())
        self.events.flush()

    def _state(self) -> dict[str, Any]:
        size, digest = self.metrics.sync()
        kept = {"metrics_bytes": size, "metrics_sha256": digest, "state": self.lane.state()}
        return {"fingerprint": self.fingerprint, **kept}

    def finish(self, metrics: dict[str, float]) -> None:
        """Seal a run that reached its last step."""
        self._save_model()
        early = self.lane.step < self.lane.trainer.max_steps
        plain = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._seal(status="finished", stopped_early=early, metrics=plain)

    def diverge(self, error: NnexpError) -> None:
        """Seal a run whose loss is no longer finite; model.pt holds the weights from before that update."""
        self._save_model()
        self._seal(status="diverged", error={"type": "Diverged", "message": str(error)})

    def interrupt(self) -> None:
        """Keep what there is, so that the same command goes on from here."""
        self.checkpoint()
        self.halt()

    def halt(self) -> None:
        """End here; the same command goes on from the last checkpoint."""
        self._seal(status="interrupted")

    def fail(self, error: BaseException) -> None:
        """Seal a run that raised. Where even that cannot be written (a full disk), run.json says `running`,
        its lock is free, and the same command goes on from the last checkpoint.
        """
        for attempt in (self._seal, self._update):
            try:
                attempt(status="failed", error=describe(error))
                return
            except (OSError, ValueError, RecordError):  # ValueError: a file that the first attempt closed
                continue
        tell(f"{self.run.path}: {describe(error)['message']}; and run.json cannot be written.")

    def _save_model(self) -> None:
        state = self.lane.state()
        content = {"fingerprint": self.fingerprint, "step": state["step"], "weights": state["weights"]}
        save(self.run.path / MODEL, content)

    def _seal(self, *, status: str, **facts: Any) -> None:
        try:
            self.metrics.sync()
            self.events.session_end(status)
            self.events.flush()
            self._update(status=status, ended=now(), **facts)
        finally:
            self.close()

    def close(self) -> None:
        """Write nothing more. The run goes on from its last checkpoint where it was not sealed."""
        self.is_open = False
        self.metrics.close()
        self.events.close()

    def _update(self, **facts: Any) -> None:
        seconds = round(self._seconds + time.time() - self.started, 3)
        self.run.write(**facts, steps=self.lane.step, seconds=seconds)


def describe(error: BaseException) -> dict[str, str]:
    """An exception as text; a message not written for the user gets its type and place, a plugin's before ours."""
    text = "".join(traceback.format_exception(error))
    try:
        message = str(error)
    except Exception:
        message = "its message cannot be shown"
    if not isinstance(error, NnexpError):
        frames = traceback.extract_tb(error.__traceback__)
        in_plugins = [frame for frame in frames if frame.filename in plugin_files()]
        places = [f" ({frame.filename}:{frame.lineno})" for frame in (in_plugins or frames)[-1:]]
        message = f"{type(error).__name__}: {message}{''.join(places)}"
    return {"type": type(error).__name__, "message": message, "traceback": text}
