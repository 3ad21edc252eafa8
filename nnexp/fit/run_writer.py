"""What a lane leaves behind while it trains: metrics.csv, the event file, checkpoints, and at last the seal.

No file stays open between writes, for a process may train hundreds of lanes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from nnexp.base import NnexpError, RecordError, fsync_all, print_err
from nnexp.fit.event_replay import ScalarPoints, new_event_file
from nnexp.fit.probe_recorder import ProbeRecorder
from nnexp.probing import ProbeRunner
from nnexp.registry import describe_error
from nnexp.rundir import (
    MODEL_FILE,
    MetricsCsv,
    Rows,
    Run,
    digest,
    provenance_facts,
    save_checkpoint,
    save_tensors,
    utc_now,
    whole_checkpoints,
)
from nnexp.training import Lane

FLUSH_SECONDS = 5.0
DIGITS = {32: 9, 64: 17, "bf16": 9}


class RunWriter:
    """Writes one lane's run directory. Made when training begins: it resumes from a checkpoint where there is one.

    Args:
        run: the directory, locked by the caller.
        lane: what is trained; its state is set from the checkpoint.
        fingerprint: of the job.
        probing: looks into the lane.
    """

    def __init__(self, run: Run, lane: Lane, fingerprint: str, probing: ProbeRunner) -> None:
        self.run, self.lane, self.fingerprint = run, lane, fingerprint
        self.looks, self.points = ProbeRecorder(run, probing), ScalarPoints(lane)
        self.is_fresh = self.is_open = True
        self._ending: dict[str, Any] | None = None
        self.started, self._flushed = time.time(), time.monotonic()
        digest(lane.state())  # what cannot be kept is refused now, not at the first checkpoint
        facts = run.read()
        self._seconds, self._probed = float(facts["seconds"]), 0.0
        self.metrics = MetricsCsv(run.path / "metrics.csv", lane.columns, DIGITS[lane.job.options.precision])
        if facts["status"] == "new":
            self.metrics.restart()  # killed, or its disk full, before it began
        resumed = [*facts["resumed_from"], self._resume()] if facts["status"] != "new" else []
        self.notes = self.looks.go_on(-1 if self.is_fresh else lane.step)
        self.path: str | None = facts.get("path")  # a resume keeps it
        self.events = new_event_file(run.path, lane, self.started, self.points, replayed=not self.is_fresh)
        self._update(
            **provenance_facts(str(lane.weights.vector.device)),
            status="running",
            parameters=lane.num_weights,
            resumed_from=resumed,
            started=utc_now(),
            notes=self.notes,
            error=None,
        )

    def _resume(self) -> int:
        """Set the lane to the newest whole checkpoint, or to the start; gives the step it goes on from."""
        for content in whole_checkpoints(self.run.path, self.fingerprint):
            if self.metrics.starts_with(content["metrics_bytes"], content["metrics_sha256"]):
                self.metrics.truncate(content["metrics_bytes"])
                self.lane.restore(content["state"])
                self.is_fresh = False
                return self.lane.step
        self.metrics.restart()
        return 0

    def note(self, *texts: str) -> None:
        """Keep what is worth knowing beside the numbers; it is shown with the results."""
        self.notes += texts
        if texts:
            self.run.write(notes=self.notes)

    def begin(self, path: str, lanes: int = 1) -> bool:
        """Record how the numbers are made, and with how many lanes; training begins now."""
        self.path, self.started = path, time.time()
        self._probed = sum(self.looks.probing.seconds.values())
        self.run.write(path=path, lanes=lanes)
        return True

    def rows(self, rows: Rows) -> None:
        """Record rows; written at the next flush or checkpoint."""
        self.metrics.append(rows)
        points = [step for step, row in rows.sparse.items() if self.points.holds(step, row)]
        self.events.scalars((step, rows.row(step)) for step in points)
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()
        self.run.heartbeat()

    def next_look(self, step: int) -> int:
        """The first step after `step` at which a probe looks; the last step where none does."""
        return self.looks.probing.next_after(step, self.lane.trainer.max_steps)

    def look(self, *, is_end: bool) -> None:
        """Have the probes look that are due."""
        self.note(*self.looks.look(self.lane, self.events, is_end=is_end))

    def flush(self) -> tuple[int, str]:
        """Write what waits; gives the size and the hash of metrics.csv."""
        written = self.metrics.flush()
        self.events.flush()
        self._flushed = time.monotonic()
        return written

    def checkpoint(self) -> None:
        """Save all that training goes on from. The rows up to here are written first."""
        size, sha256 = self.flush()
        kept = {"metrics_bytes": size, "metrics_sha256": sha256, "state": self.lane.state()}
        save_checkpoint(self.run.path, {"fingerprint": self.fingerprint, **kept})

    def finish(self, metrics: dict[str, float]) -> None:
        """End a run that reached its last step; `seal` then says so."""
        self._save_model()
        early = self.lane.step < self.lane.trainer.max_steps
        plain = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._end(status="finished", stopped_early=early, metrics=plain, **self.looks.facts())

    def diverge(self, error: NnexpError) -> None:
        """End a run whose loss is no longer finite; model.pt holds the weights from before that update."""
        self._save_model()
        self._end(status="diverged", error={"type": "Diverged", "message": str(error)})

    def interrupt(self) -> None:
        """Keep what there is, so that the same command goes on from here."""
        self.checkpoint()
        self.halt()

    def halt(self) -> None:
        """End here; the same command goes on from the last checkpoint."""
        self._end_at_once(status="interrupted")

    def fail(self, error: BaseException) -> None:
        """Close a run that raised. Where even that cannot be written (a full disk), run.json says `running`,
        its lock is free, and the same command goes on from the last checkpoint.
        """
        for attempt in (self._end_at_once, self._update):
            try:
                attempt(status="failed", error=describe_error(error))
                return
            except (OSError, RecordError):
                continue
        print_err(f"{self.run.path}: {describe_error(error)['message']}; and run.json cannot be written.")

    def _save_model(self) -> None:
        state = self.lane.state()
        content = {"fingerprint": self.fingerprint, "step": state["step"], "weights": state["weights"]}
        save_tensors(self.run.path / MODEL_FILE, content)

    def _end(self, *, status: str, **facts: Any) -> None:
        self.close()
        reason = (facts.get("error") or {}).get("message", "")
        self.events.session_end(status, self.lane.step, reason, facts.get("metrics", {}))
        self.flush()
        self._ending = {"status": status, "ended": utc_now(), **facts}

    def _end_at_once(self, *, status: str, **facts: Any) -> None:
        self._end(status=status, **facts)
        self.say_end()

    @property
    def is_unsealed(self) -> bool:
        """Whether the run ended and run.json does not say so yet."""
        return self._ending is not None

    def say_end(self) -> None:
        """Write into run.json how the run ended."""
        ending, self._ending = self._ending or {}, None
        self._update(**ending)

    def close(self) -> None:
        """Record nothing more. The run goes on from its last checkpoint where it did not end."""
        self.is_open = False

    def _update(self, **facts: Any) -> None:
        probing = sum(self.looks.probing.seconds.values()) - self._probed
        seconds = round(self._seconds + time.time() - self.started - probing, 3)
        self.run.write(**facts, steps=self.lane.step, seconds=seconds)


def seal_runs(writers: Sequence[RunWriter]) -> None:
    """Say of the runs that ended how they did, once their results are on disk."""
    ended = [writer for writer in writers if writer.is_unsealed]
    results = fsync_all([[writer.metrics.path, writer.run.path / MODEL_FILE, writer.run.path] for writer in ended])
    for writer, error in zip(ended, results, strict=True):
        try:
            if error:
                raise error
            writer.say_end()
        except OSError as reason:
            writer.fail(reason)
    fsync_all([[writer.run.path / "run.json", writer.run.path] for writer in ended])
