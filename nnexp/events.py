"""One TensorBoard file per run: scalars and the HParams record, encoded in bulk and written when asked.

The file is open only while it is written, for a process may train hundreds of runs.

The HParams record has no experiment summary: TensorBoard then makes columns and domains from all runs together, so
runs of different models share one table. A value of null is left out there, which TensorBoard shows as empty.
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

from nnexp.files import write_at
from nnexp.tfrecord import frame

STATUS = {
    "finished": Status.Value("STATUS_SUCCESS"),
    "failed": Status.Value("STATUS_FAILURE"),
    "diverged": Status.Value("STATUS_FAILURE"),
    "interrupted": Status.Value("STATUS_UNKNOWN"),
}


class Events:
    """The event file of one run; a file that is already there is replaced, for TensorBoard reads one per directory."""

    def __init__(self, folder: Path) -> None:
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self.path = folder / f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        self.path.touch()
        self.size = 0
        self._waiting = [Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString()]

    def scalars(self, points: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """One event with all numbers of each step, told now."""
        now = time.time()
        for step, values in points:
            event = Event(wall_time=now, step=step)
            add = event.summary.value.add
            for tag, value in values.items():
                add(tag=tag, simple_value=value)
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

    def session_end(self, status: str) -> None:
        """How the run ended."""
        info = SessionEndInfo(status=STATUS[status], end_time_secs=time.time())
        self._hparams(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=info))

    def _hparams(self, tag: str, content: HParamsPluginData) -> None:
        content.version = metadata.PLUGIN_DATA_VERSION
        plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString())
        value = Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=metadata.NULL_TENSOR)
        self._waiting.append(Event(wall_time=time.time(), summary=Summary(value=[value])).SerializeToString())

    def flush(self) -> None:
        """Write what was added."""
        if self._waiting:
            self.size = write_at(self.path, self.size, frame(self._waiting))
            self._waiting.clear()
