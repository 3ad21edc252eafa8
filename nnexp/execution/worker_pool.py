"""Workers: one process for each task, forked from one that has everything imported.

Of Python's own multiprocessing, for a pool has to know what becomes of each process. One that is killed, or that ends
by itself in the middle (`os._exit(0)` in a plugin), costs its task only, and none is left behind.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing as mp
import multiprocessing.util
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from nnexp.base import SIGNALS
from nnexp.execution.task import STOP, Task
from nnexp.registry import Registry

Heard = Callable[[Task, str, Any], None]
METHOD = "forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn"
END_SECONDS = 10.0
STARTS, START_SECONDS = 3, 0.2
SAFE_PATH = "PYTHONSAFEPATH"
LONGEST_FOLDER = 60


@dataclass(eq=False)
class Worker:
    """A process and its task; `over` is what it said last."""

    task: Task
    process: BaseProcess
    connection: Connection
    lifeline: Connection
    gpu: str | None
    over: dict[str, Any] = field(default_factory=dict)
    is_reported: bool = False
    _half: bytes = b""

    @property
    def ends(self) -> list[Any]:
        """What is ready when there is something to see to."""
        return [self.connection] if self.is_reported else [self.connection, self.process.sentinel]

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended. That this was reported is not enough: who reports it may be killed itself."""
        self.is_reported = not self.process.is_alive()
        return self.is_reported and not process_exists(self.process.pid)

    def messages(self) -> Iterator[tuple[str, Any]]:
        """What it has said. Raises EOFError when it will say nothing more.

        A line for each, so that what else a plugin may write there spoils no more than a line.
        """
        while self.connection.poll():
            read = os.read(self.connection.fileno(), 1 << 16)
            if not read:
                raise EOFError
            *lines, self._half = (self._half + read).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, TypeError):
                    kind, content = json.loads(line)
                    yield str(kind), content

    def end(self) -> None:
        """Be sure that the process is gone, and what it held with it."""
        if self.over:
            self.process.join(END_SECONDS)
        deadline = time.monotonic() + END_SECONDS
        with contextlib.suppress(OSError, ValueError):
            self.process.kill()
        while time.monotonic() < deadline and process_exists(
            self.process.pid
        ):  # also where nobody reports its end any more
            with contextlib.suppress(OSError):
                os.kill(self.process.pid or 0, signal.SIGKILL)
            time.sleep(0.005)
        self.process.join(END_SECONDS)
        self.connection.close()
        self.lifeline.close()


def start_forkserver() -> None:
    """Have the process that workers are forked from; signals that are meant for this one do not reach it."""
    if METHOD != "forkserver":
        return
    from multiprocessing import forkserver, resource_tracker

    resource_tracker.ensure_running()  # which lets signals through again
    before, safe = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS), os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"  # a file of the working folder is not taken for a module of Python
    try:
        with short_temporary_folder():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        del os.environ[SAFE_PATH]
        if safe is not None:
            os.environ[SAFE_PATH] = safe


@contextlib.contextmanager
def short_temporary_folder() -> Iterator[None]:
    """The name of a socket has at most 108 bytes on Linux, and 104 on macOS: a long TMPDIR leaves no room for it."""
    before, folder = tempfile.tempdir, tempfile.gettempdir()
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        tempfile.tempdir = "/tmp"  # noqa: S108  # a folder of its own is made there
    try:
        mp.util.get_temp_dir()
        yield
    finally:
        tempfile.tempdir = before


def _work(*arguments: Any) -> None:
    """What a worker does; torch is imported there, and not in the command."""
    from nnexp.execution.worker import worker_main

    worker_main(*arguments)


class WorkerExecutor:
    """At most `size` workers at once.

    Args:
        heard: is told what each task has to say: `step`, `say`, `ended` and at last `over`.
        gpus: names of the devices to share out, as CUDA_VISIBLE_DEVICES takes them.
        share: of the free memory, the part that each may take.
    """

    def __init__(self, size: int, heard: Heard, registry: Registry, gpus: list[str], *, share: float = 1.0) -> None:
        self.size, self.heard, self.registry, self.gpus, self.share = size, heard, registry, gpus, share
        self.workers: list[Worker] = []
        self.context: Any = mp.get_context(METHOD)
        if METHOD == "forkserver":
            self.context.set_forkserver_preload(["nnexp.execution.preload"])

    @property
    def num_busy(self) -> int:
        return len(self.workers)

    def start(self, task: Task, *, is_trial: bool = False) -> None:
        """Have a task trained, or tried for a moment. Raises OSError or EOFError where no process can be made."""
        ours, theirs = self.context.Pipe()
        held, lifeline = self.context.Pipe(duplex=False)
        used = [worker.gpu for worker in self.workers]
        gpu = min(self.gpus, key=used.count) if self.gpus else None
        plain = task.plain(with_runs=not is_trial) | {"is_trial": is_trial}
        arguments = (theirs, held, plain, self.registry, self.share, gpu)
        try:
            process = self._process(arguments)
        except BaseException:
            ours.close()
            lifeline.close()
            raise
        finally:
            theirs.close()
            held.close()
        self.workers.append(Worker(task, process, ours, lifeline, gpu))

    def _process(self, arguments: tuple[Any, ...]) -> BaseProcess:
        for attempt in range(STARTS):
            try:
                start_forkserver()
                process: BaseProcess = self.context.Process(target=_work, args=arguments)
                process.start()
                break
            except (EOFError, ConnectionError):  # what all are forked from is gone; the next try makes it anew
                if attempt == STARTS - 1:
                    raise
                time.sleep(START_SECONDS)
        return process

    def listen(self, seconds: float) -> None:
        """Pass on what the workers say, waiting so long for a first word."""
        ends = {end: worker for worker in self.workers for end in worker.ends}
        for worker in dict.fromkeys(ends[end] for end in wait(list(ends), seconds)):
            is_gone = worker.is_gone
            try:
                for kind, content in worker.messages():
                    if kind == "over":
                        worker.over = content
                    else:
                        self.heard(worker.task, kind, content)
            except (EOFError, OSError):
                is_gone = True
            if is_gone or worker.over:
                self._over(worker)

    def _over(self, worker: Worker) -> None:
        worker.end()
        self.workers.remove(worker)
        self.heard(worker.task, "over", worker.over or {"error": describe_exit(worker.process.exitcode)})

    def ask(self) -> None:
        """Ask the workers to stop at the next checkpoint."""
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.connection.send_bytes(STOP)

    def close(self) -> None:
        """End all that is left at once."""
        for worker in self.workers:
            with contextlib.suppress(OSError, ValueError):
                worker.process.kill()
        while self.workers:
            self.workers.pop().end()


def process_exists(number: int | None) -> bool:
    """Whether there is a process of this number."""
    try:
        os.kill(number or 0, 0)
    except OSError:
        return False
    return os.name == "posix"


def describe_exit(code: int | None) -> dict[str, str]:
    """How a process ended that did not say so."""
    message = f"its process ended by itself, with exit code {code}"
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else "a signal"
        more = ", as where memory has run out" if -code == 9 else ""
        message = f"its process was killed by signal {-code} ({name}{more})"
    return {"type": "Died", "message": message}
