"""A worker: a process of its own that trains one task, told what to do and watched over a connection.

Between the processes there is JSON only. A worker ends when its task does; or, asked to stop, at its next checkpoint;
or at once where the process that started it is gone.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import torch

from nnexp.datasets import Datasets
from nnexp.metrics import Rows
from nnexp.pool import STOP
from nnexp.registry import Registry
from nnexp.stop import SIGNALS, Stop
from nnexp.task import Task, train
from nnexp.trial import tried
from nnexp.writer import describe

SHOW_SECONDS = 0.5


class Reporter:
    """Tells the command how far its task is."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._next_show = 0.0

    def send(self, kind: str, content: Any = None) -> None:
        self.connection.send_bytes(json.dumps([kind, content]).encode())

    def show(self, step: int, _rows: Rows) -> None:
        if time.monotonic() >= self._next_show:
            self._next_show = time.monotonic() + SHOW_SECONDS
            self.send("step", step)

    def say(self, text: str) -> None:
        self.send("say", text)

    def ended(self, number: int) -> None:
        self.send("ended", number)


class Said(io.TextIOBase):
    """A stream whose lines are told to the command."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter, self._line = reporter, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self.reporter.say(line.removeprefix("nnexp: "))
        return len(text)


class Asked(Stop):
    """Stops when the command says so, or on SIGTERM. Ctrl-C is the command's to hear."""

    def listen(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._ask if number == signal.SIGTERM else signal.SIG_IGN)
        if hasattr(signal, "pthread_sigmask"):  # as the process that this one was forked from blocks them
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _ask(self, number: int, _frame: Any) -> None:
        self.requested, self.signal = True, number

    def hear(self, connection: Connection) -> None:
        """Wait for the command's word; where the command is gone, so is this process."""
        try:
            while connection.recv_bytes() == STOP:
                self._ask(signal.SIGTERM, None)
        except (EOFError, OSError):
            os._exit(1)


def work(connection: Connection, plain: dict[str, Any], registry: Registry, share: float, gpu: str | None) -> None:
    """The whole life of a worker."""
    torch.set_num_threads(1)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    reporter, stop = Reporter(connection), Asked()
    stop.listen()
    threading.Thread(target=stop.hear, args=(connection,), daemon=True).start()
    sys.stdout = sys.stderr = Said(reporter)
    try:
        task = Task.of_plain(plain)
        if plain["is_trial"]:
            reporter.send("over", {"trial": tried(task.cohort[0].job, registry)})
        else:
            left_out = train(task, registry, stop, reporter, Datasets(), share=share, echo=False)
            reporter.send("over", {"left_out": left_out})
    except BaseException as error:
        reporter.send("over", {"error": describe(error)})
    os._exit(0)  # threads that a plugin has left behind are not waited for
