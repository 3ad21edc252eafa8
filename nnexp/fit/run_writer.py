"""Writes the run directory of a lane during training: metrics.csv, event file, checkpoints, and the final status.

No file stays open between writes, because one process may train hundreds of lanes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from nnexp.base import NnexpError, RecordError, fsync_all, print_err
from nnexp.fit.event_replay import ScalarFilter, new_event_file
from nnexp.fit.probe_recorder import ProbeRecorder
from nnexp.fit.state_watch import StateWatch
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
SOLO, STACKED, COMPILED = "solo", "stacked", "stacked-compiled"  # paths
DIGITS = {32: 9, 64: 17, "bf16": 9}


class RunWriter:
    """Writes one lane's run directory; on construction the lane resumes from the newest checkpoint, if there is one.

    A run that ended is *unsealed* until run.json has its status: `seal_runs` writes it once the results are on disk.

    Args:
        run: the run directory, locked by the caller.
        lane: the lane that is trained; its state is set from the checkpoint.
        fingerprint: of the job.
        probing: runs the probes of the lane.

    Attributes:
        path: how the numbers are computed: "solo", "stacked" or "stacked-compiled"; None before the first start.
        is_fresh: no checkpoint was resumed.
        is_open: the run has not ended and is still recorded.
    """

    def __init__(self, run: Run, lane: Lane, fingerprint: str, probing: ProbeRunner) -> None:
        self.run, self.lane, self.fingerprint = run, lane, fingerprint
        self.probes, self.points = ProbeRecorder(run, probing), ScalarFilter(lane)
        self.is_fresh = self.is_open = True
        self.watch: StateWatch | None = None
        self._ending: dict[str, Any] | None = None
        self.started, self._flushed = time.time(), time.monotonic()
        digest(lane.state())  # raises now, and not at the first checkpoint, if the state cannot be saved
        facts = run.read()
        self._seconds_before, self._probed_before = float(facts["seconds"]), 0.0
        self.metrics = MetricsCsv(run.path / "metrics.csv", lane.columns, DIGITS[lane.job.options.precision])
        if facts["status"] == "new":
            self.metrics.restart()  # left by a process that was killed, or had a full disk, before training
        resumed = [*facts["resumed_from"], self._resume()] if facts["status"] != "new" else []
        self.notes = self.probes.resume(-1 if self.is_fresh else lane.step)
        self.path: str | None = facts.get("path")  # a resume keeps it
        self.events = new_event_file(run.path, lane, self.started, self.points, replay=not self.is_fresh)
        self._write_run_json(
            **provenance_facts(str(lane.weights.vector.device)),
            status="running",
            parameters=lane.num_weights,
            resumed_from=resumed,
            started=utc_now(),
            notes=self.notes,
            error=None,
        )

    def _resume(self) -> int:
        """Restore the newest checkpoint that metrics.csv agrees with, or the initial state, and return its step."""
        for content in whole_checkpoints(self.run.path, self.fingerprint):
            if self.metrics.starts_with(content["metrics_bytes"], content["metrics_sha256"]):
                self.metrics.truncate(content["metrics_bytes"])
                self.lane.restore(content["state"])
                self.is_fresh = False
                return self.lane.step
        self.metrics.restart()
        return 0

    def note(self, *texts: str) -> None:
        """Append to the notes in run.json."""
        self.notes += texts
        if texts:
            self.run.write(notes=self.notes)

    def start(self, path: str, lanes: int = 1) -> bool:
        """Record the path and the number of lanes in the stack, start the clock of training, and return True."""
        self.path, self.started = path, time.time()
        self.watch = StateWatch(self.lane) if path == SOLO else None  # a stack has checked it, and does not run it
        self._probed_before = sum(self.probes.probing.seconds.values())
        self.run.write(path=path, lanes=lanes)
        return True

    def add_rows(self, rows: Rows) -> None:
        """Append rows to metrics.csv and the event file; they are written at the next flush or checkpoint."""
        self.metrics.append(rows)
        self.note(*(self.watch.notes() if self.watch else ()))
        points = [step for step, row in rows.sparse.items() if self.points.includes(step, row)]
        self.events.scalars((step, rows.row(step)) for step in points)
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()
        self.run.heartbeat()

    def next_probe_step(self, step: int) -> int:
        """Return the first step after `step` at which a probe is due, or the last step of training if none is."""
        return self.probes.probing.next_after(step, self.lane.trainer.max_steps)

    def observe(self, *, is_end: bool) -> None:
        """Run the probes that are due at the lane's step and record their results.

        Args:
            is_end: True at the last step, at which every probe is due.
        """
        self.note(*self.probes.observe(self.lane, self.events, is_end=is_end))

    def flush(self) -> tuple[int, str]:
        """Write buffered rows and events, and return the size in bytes and the SHA-256 of metrics.csv."""
        written = self.metrics.flush()
        self.events.flush()
        self._flushed = time.monotonic()
        return written

    def checkpoint(self) -> None:
        """Save the full training state as last.ckpt; buffered rows are written first."""
        size, sha256 = self.flush()
        content = {"metrics_bytes": size, "metrics_sha256": sha256, "state": self.lane.state()}
        save_checkpoint(self.run.path, {"fingerprint": self.fingerprint, **content})

    def finish(self, metrics: dict[str, float]) -> None:
        """Save the model of a run that reached its end, unsealed.

        Args:
            metrics: final metrics of all splits, `<split>/<name>`; those that are not finite are saved as null.
        """
        self._save_model()
        early = self.lane.step < self.lane.trainer.max_steps
        plain = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._end(status="finished", stopped_early=early, metrics=plain, **self.probes.facts())

    def diverge(self, error: NnexpError) -> None:
        """End a run whose loss is not finite, unsealed; model.pt holds the weights from before that update."""
        self._save_model()
        self._end(status="diverged", error={"type": "Diverged", "message": str(error)})

    def interrupt(self) -> None:
        """Save a checkpoint and end the run as interrupted; the same command resumes from here."""
        self.checkpoint()
        self.halt()

    def halt(self) -> None:
        """End the run as interrupted without a checkpoint; the same command resumes from the last one."""
        self._end_and_seal(status="interrupted")

    def fail(self, error: BaseException) -> None:
        """End the run as failed, with the error and its traceback.

        If even that cannot be written (a full disk), run.json still says `running` while the lock is free, and the
        same command resumes from the last checkpoint.
        """
        for attempt in (self._end_and_seal, self._write_run_json):
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

    def _end_and_seal(self, *, status: str, **facts: Any) -> None:
        self._end(status=status, **facts)
        self.seal()

    @property
    def is_unsealed(self) -> bool:
        """The run has ended, and run.json does not have its status yet."""
        return self._ending is not None

    def seal(self) -> None:
        """Write the status of a run that ended to run.json."""
        ending, self._ending = self._ending or {}, None
        self._write_run_json(**ending)

    def close(self) -> None:
        """Stop recording. A run that has not ended can be resumed from its last checkpoint."""
        self.is_open = False

    def _write_run_json(self, **facts: Any) -> None:
        probing = sum(self.probes.probing.seconds.values()) - self._probed_before
        seconds = round(self._seconds_before + time.time() - self.started - probing, 3)
        self.run.write(**facts, steps=self.lane.step, seconds=seconds)


def seal_runs(writers: Sequence[RunWriter]) -> None:
    """Sync the results of all unsealed runs to disk, then write their status to run.json.

    A run whose results cannot be synced fails; the others are not affected.
    """
    ended = [writer for writer in writers if writer.is_unsealed]
    results = fsync_all([[writer.metrics.path, writer.run.path / MODEL_FILE, writer.run.path] for writer in ended])
    for writer, error in zip(ended, results, strict=True):
        try:
            if error:
                raise error
            writer.seal()
        except OSError as reason:
            writer.fail(reason)
    fsync_all([[writer.run.path / "run.json", writer.run.path] for writer in ended])
