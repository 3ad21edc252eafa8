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


class Words:
    """What is said to the command, a line for each thing."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.pid = connection, os.getpid()
        self._lock = threading.Lock()  # a plugin may have threads that print

    def send(self, kind: str, content: Any = None) -> None:
        """Where it cannot be heard, this process has no more use: it ends, which is noticed."""
        left = memoryview(json.dumps([kind, content]).encode() + b"\n")
        try:
            with self._lock:
                while left and os.getpid() == self.pid:
                    left = left[os.write(self.connection.fileno(), left) :]
        except OSError:
            os._exit(1)
        if os.getpid() != self.pid:  # a process that a plugin has forked came back to us
            os._exit(1)


class Said(io.TextIOBase):
    """A stream whose lines are told to the command."""

    def __init__(self, words: Words) -> None:
        self.words, self._parts = words, [""]

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """Of the command's standard errors, for programs that a plugin starts."""
        return 2

    def write(self, text: str) -> int:
        self._parts.append(text)
        if "\n" in text or len(self._parts) > MAX_PARTS:
            *lines, rest = "".join(self._parts).split("\n")
            self._parts = [rest] if lines else []
            for line in lines or [rest]:
                self.words.send("say", line.removeprefix("nnexp: "))
        return len(text)


class Asked(StopRequest):
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


def worker_main(
    connection: Connection,
    lifeline: Connection,
    plain: dict[str, Any],
    registry: Registry,
    share: float,
    gpu: str | None,
) -> None:
    """The whole life of a worker."""
    torch.set_num_threads(1)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    words, stop = Words(connection), Asked()
    stop.listen()
    hold(lifeline)
    threading.Thread(target=stop.hear, args=(connection,), daemon=True).start()
    sys.stdout = sys.stderr = Said(words)
    try:
        task = Task.of_plain(plain)
        if plain["is_trial"]:
            words.send("over", {"trial": time_trial(task.cohort[0].job, registry)})
        else:
            left_out = train_task(
                task, registry, stop, ProgressSender(words.send), DatasetCache(), share=share, echo=False
            )
            words.send("over", {"left_out": left_out})
    except BaseException as error:
        words.send("over", {"error": describe_error(error)})
    os._exit(0)  # threads that a plugin has left behind are not waited for


def hold(lifeline: Connection) -> None:
    """Have the system end this process when the command is gone, also while C code of a plugin lets no thread run.

    When the other end is closed the system sends SIGIO, of which a process dies. Where there is no such thing, the
    thread that hears the command does it.
    """
    if sys.platform == "linux":
        import fcntl

        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
