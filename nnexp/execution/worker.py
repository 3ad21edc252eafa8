"""Main function of a worker process: trains one task, sends its events, and ends with the main process.

Events are JSON lines on a pipe. A worker ends after its task; after a stop request, at its next checkpoint; and
immediately if the main process is gone.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

import torch

from nnexp.base import SIGNALS, StopRequest
from nnexp.data import DatasetCache
from nnexp.execution.task import STOP, Task, train_task
from nnexp.execution.trial_run import time_trial
from nnexp.fit import ProgressSender
from nnexp.registry import Registry, describe_error
from nnexp.rundir import MAX_PARTS


class EventPipe:
    """Sends events to the main process, one JSON line for each."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.pid = connection, os.getpid()
        self._lock = threading.Lock()  # a plugin may have threads that print

    def send(self, kind: str, content: Any = None) -> None:
        """Send an event; exit if the main process is gone, or if this is a process that a plugin has forked."""
        unsent = memoryview(json.dumps([kind, content]).encode() + b"\n")
        try:
            with self._lock:
                while unsent and os.getpid() == self.pid:
                    unsent = unsent[os.write(self.connection.fileno(), unsent) :]
        except OSError:
            os._exit(1)
        if os.getpid() != self.pid:
            os._exit(1)


class MessageStream(io.TextIOBase):
    """Text stream that sends each line as a `message` event; replaces stdout and stderr."""

    def __init__(self, events: EventPipe) -> None:
        self.events, self._parts = events, [""]

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the stderr of the main process, for programs that a plugin starts."""
        return 2

    def write(self, text: str) -> int:
        """Send the complete lines, buffer the rest, and return the number of characters."""
        self._parts.append(text)
        if "\n" in text or len(self._parts) > MAX_PARTS:
            *lines, rest = "".join(self._parts).split("\n")
            self._parts = [rest] if lines else []
            for line in lines or [rest]:
                self.events.send("message", line.removeprefix("nnexp: "))
        return len(text)


class WorkerStopRequest(StopRequest):
    """Stop request of the main process, or by SIGTERM. Ctrl-C is ignored: the main process handles it."""

    def listen(self) -> None:
        """Install the signal handlers."""
        for number in SIGNALS:
            signal.signal(number, self._request if number == signal.SIGTERM else signal.SIG_IGN)
        if hasattr(signal, "pthread_sigmask"):  # the fork server, whose mask is inherited, blocks them
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _request(self, number: int, _frame: Any) -> None:
        self.requested, self.signal = True, number

    def watch(self, connection: Connection) -> None:
        """Wait for `STOP` from the main process, and exit if that process is gone. Runs in a thread."""
        try:
            while connection.recv_bytes() == STOP:
                self._request(signal.SIGTERM, None)
        except (EOFError, OSError):
            os._exit(1)


def worker_main(
    connection: Connection,
    lifeline: Connection,
    content: dict[str, Any],
    registry: Registry,
    share: float,
    gpu: str | None,
) -> None:
    """Train the task, or time a trial of its first job, send the `finished` event, and exit.

    Args:
        connection: sends events and receives `STOP`.
        lifeline: the system closes its other end when the main process ends.
        content: the task, from `Task.to_dict`, and `is_trial`.
        registry: finds the plugins.
        share: fraction of the free memory that the task may take.
        gpu: CUDA_VISIBLE_DEVICES, or None for all devices.
    """
    torch.set_num_threads(1)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    events, stop = EventPipe(connection), WorkerStopRequest()
    stop.listen()
    die_with_main_process(lifeline)
    threading.Thread(target=stop.watch, args=(connection,), daemon=True).start()
    sys.stdout = sys.stderr = MessageStream(events)
    try:
        task = Task.from_dict(content)
        if content["is_trial"]:
            events.send("finished", {"trial": time_trial(task.cohort[0].job, registry)})
        else:
            progress = ProgressSender(events.send)
            left_out = train_task(task, registry, stop, progress, DatasetCache(), share=share, echo=False)
            events.send("finished", {"left_out": left_out})
    except BaseException as error:
        events.send("finished", {"error": describe_error(error)})
    os._exit(0)  # does not wait for threads that a plugin has started


def die_with_main_process(lifeline: Connection) -> None:
    """Let the kernel end this process with the main process, also while C code of a plugin blocks all threads.

    On Linux, SIGIO is sent when the other end of the lifeline is closed, and its default action ends the process.
    Elsewhere only the thread of `WorkerStopRequest.watch` does so.
    """
    if sys.platform == "linux":
        import fcntl

        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
