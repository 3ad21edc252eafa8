"""One TensorBoard file per run: scalars, what probes saw, the HParams record; encoded in bulk and written when asked.

The file is open only while it is written, for a process may train hundreds of runs.

The HParams record has no experiment summary: TensorBoard then makes columns and domains from all runs together, so
runs of different models share one table. A value of null is left out there, which TensorBoard shows as empty. A metric
there is the last point of a curve, and of `train/loss` that is one batch's, so final metrics are curves of their own.
TensorBoard keeps the first status that it reads, so none is written before the end: it shows a run in training as
unknown.
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
from nnexp.tensorboard import protos as summaries
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
    """The event file of one run; a file that is already there is replaced, for TensorBoard reads one per directory.

    Args:
        goes_on: add to the file that is there, if one is.
        is_hidden: write beside it, under a name that TensorBoard does not read.
    """

    def __init__(self, folder: Path, *, goes_on: bool = False, is_hidden: bool = False) -> None:
        old = sorted(folder.glob(EVENT_FILES))
        self._has_graph, self._waiting = False, list[bytes]()
        if goes_on and old:
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
        """One event with all numbers of each step, told now."""
        now = time.time()
        for step, values in points:
            event = Event(wall_time=now, step=step)
            add = event.summary.value.add
            for tag, value in values.items():
                add(tag=tag, simple_value=value)
            self._add(event)

    def figures(self, record: ObservationRecord, figures: Figures) -> None:
        """What a probe saw: one event for its numbers, one for each picture, text and histogram."""
        probe, step = record["probe"], record["step"]
        scalars = {f"{probe}/{tag}": value for tag, value in record.get("scalars", {}).items() if value is not None}
        if scalars:
            self.scalars([(step, scalars)])
        stems = record.get("pictures", {})
        values = [summaries.image(f"{probe}/{tag}", figures.content(stem, "png")) for tag, stem in stems.items()]
        texts = record.get("texts", {}) if record.get("is_drawn", True) else {}  # TensorBoard keeps ten, as of pictures
        values += [summaries.text(f"{probe}/{tag}", text) for tag, text in texts.items()]
        values += [summaries.histogram(f"{probe}/{tag}", rows) for tag, rows in record.get("histograms", {}).items()]
        self._values(step, [value for value in values if value is not None])
        graph = figures.graph(record)
        if graph is not None and not self._has_graph:
            self._has_graph = True
            self._add(Event(wall_time=time.time(), graph_def=graph))

    def _values(self, step: int, values: Iterable[Summary.Value]) -> None:
        """One event for each."""
        for value in values:
            self._add(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))

    def _add(self, event: Event) -> None:
        self._waiting.append(event.SerializeToString())

    def session_start(self, hparams: Mapping[str, Any], started: float) -> None:
        """The job's configuration, dotted keys."""
        info = SessionStartInfo(start_time_secs=started)
        for key, value in hparams.items():
            if isinstance(value, bool):
                info.hparams[key].bool_value = value
            elif isinstance(value, int | float):
                info.hparams[key].number_value = value
            elif value is not None:
                info.hparams[key].string_value = value if isinstance(value, str) else str(list(value))
        self._hparams(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=info))
        self._values(0, [summaries.layout(summaries.CHARTS)])

    def session_end(
        self, status: str, step: int, reason: str = "", metrics: Mapping[str, float | None] | None = None
    ) -> None:
        """How the run ended: final metrics, TensorBoard's own status, and ours with the reason as text."""
        known = {f"{FINAL}/{name}": value for name, value in (metrics or {}).items() if value is not None}
        if known:
            self.scalars([(step, known)])
        info = SessionEndInfo(status=STATUS[status], end_time_secs=time.time())
        self._hparams(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=info))
        self._values(step, [summaries.text("status", f"**{status}** at step {step:,}\n\n{reason}".strip())])

    def _hparams(self, tag: str, content: HParamsPluginData) -> None:
        content.version = metadata.PLUGIN_DATA_VERSION
        plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString())
        value = Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=metadata.NULL_TENSOR)
        self._values(0, [value])

    def flush(self) -> None:
        """Write what was added."""
        if self._waiting:
            self.size = write_at(self.path, self.size, frame_records(self._waiting))
            self._waiting.clear()


def write_session_end(folder: Path, hparams: Mapping[str, Any], status: str, step: int, reason: str) -> None:
    """Say how a run ended that could not say so itself: its process is gone, or it never began."""
    events = EventFile(folder, goes_on=True)
    if events.size == 0:
        events.session_start(hparams, time.time())
    events.session_end(status, step, reason)
    events.flush()
