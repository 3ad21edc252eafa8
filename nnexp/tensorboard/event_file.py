"""Writer of one TensorBoard event file per run: scalars, observations of probes, and the HParams record.

Events are encoded in bulk. The file is open only during `flush`, because one process may train hundreds of runs.

HParams:

- No experiment summary is written. TensorBoard then derives columns and domains from all runs, so that runs of
  different models share one table. A value of None is left out and shown as empty.
- TensorBoard takes a metric from the last point of a curve. For `train/loss` that is the loss of a single batch, so
  final metrics get their own curves, `Final/<name>`.
- TensorBoard keeps the first status that it reads, so none is written before the end; until then it is unknown.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import Status
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

from nnexp.base import write_at
from nnexp.rundir import Figures, ObservationRecord
from nnexp.tensorboard import protos
from nnexp.tensorboard.framing import cut_to_whole, frame_records

EVENT_FILES = "events.out.tfevents.*"
FINAL = "Final"  # HParams shows the first five curves by name, and capitals come first
STATUS = {
    "finished": Status.Value("STATUS_SUCCESS"),
    "failed": Status.Value("STATUS_FAILURE"),
    "diverged": Status.Value("STATUS_FAILURE"),
    "interrupted": Status.Value("STATUS_FAILURE"),
}


class EventFile:
    """Event file of one run; it replaces an existing one, because TensorBoard reads one file per directory.

        events = EventFile(run.path)
        events.scalars([(0, {"val/loss": 0.7}), (10, {"val/loss": 0.5})])
        events.flush()

    Args:
        folder: run directory.
        append: whether to append to an existing file, if there is one, instead of replacing it.
        is_hidden: whether to keep the existing file, and write beside it under a name that TensorBoard does not read.

    Attributes:
        path: the file.
        size: bytes written so far.
    """

    def __init__(self, folder: Path, *, append: bool = False, is_hidden: bool = False) -> None:
        old = sorted(folder.glob(EVENT_FILES))
        self._has_graph, self._pending = False, list[bytes]()
        if append and old:
            self.path = old[-1]
            self.size = cut_to_whole(self.path)
            return
        self.name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        self.path = folder / (f".{self.name}.{os.getpid()}.part" if is_hidden else self.name)
        for path in [self.path] if is_hidden else old:
            path.unlink(missing_ok=True)
        self.path.touch(exist_ok=False)
        self.size = 0
        self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def scalars(self, points: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Add one event per step with all its scalars.

        Args:
            points: step and values by tag.
        """
        now = time.time()
        for step, values in points:
            event = Event(wall_time=now, step=step)
            add = event.summary.value.add
            for tag, value in values.items():
                add(tag=tag, simple_value=value)
            self._add(event)

    def figures(self, record: ObservationRecord, figures: Figures) -> None:
        """Add an observation of a probe: one event for its scalars, one for each picture, text and histogram.

        Args:
            record: record of the observation.
            figures: figures/ of the run, with the pictures and the graph of the record.
        """
        probe, step = record["probe"], record["step"]
        scalars = {f"{probe}/{tag}": value for tag, value in record.get("scalars", {}).items() if value is not None}
        if scalars:
            self.scalars([(step, scalars)])
        stems = record.get("pictures", {})
        values = [protos.image(f"{probe}/{tag}", figures.content(stem, "png")) for tag, stem in stems.items()]
        texts = record.get("texts", {}) if record.get("is_drawn", True) else {}  # TensorBoard keeps ten, as of images
        values += [protos.text(f"{probe}/{tag}", text) for tag, text in texts.items()]
        values += [protos.histogram(f"{probe}/{tag}", rows) for tag, rows in record.get("histograms", {}).items()]
        self._values(step, [value for value in values if value is not None])
        graph = figures.graph(record)
        if graph is not None and not self._has_graph:
            self._has_graph = True
            self._add(Event(wall_time=time.time(), graph_def=graph))

    def _values(self, step: int, values: Iterable[Summary.Value]) -> None:
        """Add one event for each value."""
        for value in values:
            self._add(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))

    def _add(self, event: Event) -> None:
        self._pending.append(event.SerializeToString())

    def session_start(self, hparams: Mapping[str, Any], started: float) -> None:
        """Add the HParams record of the configuration, and the layout of the Custom Scalars tab.

        Args:
            hparams: configuration of the job, by dotted key.
            started: time at which training began, in seconds since the epoch.
        """
        info = SessionStartInfo(start_time_secs=started)
        for key, value in hparams.items():
            if isinstance(value, bool):
                info.hparams[key].bool_value = value
            elif isinstance(value, int | float):
                info.hparams[key].number_value = value
            elif value is not None:
                info.hparams[key].string_value = value if isinstance(value, str) else str(list(value))
        self._hparams(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=info))
        self._values(0, [protos.layout(protos.CHARTS)])

    def session_end(
        self, status: str, step: int, reason: str = "", metrics: Mapping[str, float | None] | None = None
    ) -> None:
        """Add the final metrics, the HParams status, and the status of the run with its reason as text.

        Args:
            status: "finished", "failed", "diverged" or "interrupted".
            step: the last step.
            reason: error message, in Markdown.
            metrics: final metrics by name; None is left out.
        """
        final = {f"{FINAL}/{name}": value for name, value in (metrics or {}).items() if value is not None}
        if final:
            self.scalars([(step, final)])
        info = SessionEndInfo(status=STATUS[status], end_time_secs=time.time())
        self._hparams(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=info))
        self._values(step, [protos.text("status", f"**{status}** at step {step:,}\n\n{reason}".strip())])

    def _hparams(self, tag: str, content: HParamsPluginData) -> None:
        content.version = metadata.PLUGIN_DATA_VERSION
        plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString())
        value = Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=metadata.NULL_TENSOR)
        self._values(0, [value])

    def flush(self) -> None:
        """Write the added events to the file."""
        if self._pending:
            self.size = write_at(self.path, self.size, frame_records(self._pending))
            self._pending.clear()


def write_session_end(folder: Path, hparams: Mapping[str, Any], status: str, step: int, reason: str) -> None:
    """Append the end of a run that did not write it: its process died, or it failed before training.

    Args:
        folder: run directory.
        hparams: configuration of the job, by dotted key; written only if the file is new.
        status: "finished", "failed", "diverged" or "interrupted".
        step: the last step.
        reason: error message, in Markdown.
    """
    events = EventFile(folder, append=True)
    if events.size == 0:
        events.session_start(hparams, time.time())
    events.session_end(status, step, reason)
    events.flush()
