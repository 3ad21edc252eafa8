"""Handle of a worker process in the main process: its events, whether it is alive, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from nnexp.execution.task import Task

END_SECONDS = 10.0


@dataclass(eq=False)
class WorkerProcess:
    """A process that trains one task.

    Args:
        task: the task.
        process: the process, started.
        connection: receives events and sends `STOP`.
        lifeline: closed by the system when the main process ends, which ends the worker.
        gpu: its CUDA_VISIBLE_DEVICES, or None.

    Attributes:
        result: content of its `finished` event; empty until then.
        is_reported_dead: the fork server has reported its end.
    """

    task: Task
    process: BaseProcess
    connection: Connection
    lifeline: Connection
    gpu: str | None
    result: dict[str, Any] = field(default_factory=dict)
    is_reported_dead: bool = False
    _partial_line: bytes = b""

    @property
    def waitables(self) -> list[Any]:
        """Objects for `multiprocessing.connection.wait`: the connection, and the sentinel while it is alive."""
        return [self.connection] if self.is_reported_dead else [self.connection, self.process.sentinel]

    @property
    def is_dead(self) -> bool:
        """The process has ended. A report alone is not enough: it also comes if the fork server itself was killed."""
        self.is_reported_dead = not self.process.is_alive()
        return self.is_reported_dead and not process_exists(self.process.pid)

    def events(self) -> Iterator[tuple[str, Any]]:
        """Yield the events received since the last call, as (kind, content).

        There is one JSON line for each, so that a plugin that writes to the connection damages one line at most.

        Raises:
            EOFError: if the worker has closed the connection.
        """
        while self.connection.poll():
            read = os.read(self.connection.fileno(), 1 << 16)
            if not read:
                raise EOFError
            *lines, self._partial_line = (self._partial_line + read).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, TypeError):
                    kind, content = json.loads(line)
                    yield str(kind), content

    def end(self) -> None:
        """Wait for the process if it has finished its task, otherwise kill it, and close the connections."""
        if self.result:
            self.process.join(END_SECONDS)
        deadline = time.monotonic() + END_SECONDS
        with contextlib.suppress(OSError, ValueError):
            self.process.kill()
        # Killed by number too: after the fork server has died nobody reports the end of the process.
        while time.monotonic() < deadline and process_exists(self.process.pid):
            with contextlib.suppress(OSError):
                os.kill(self.process.pid or 0, signal.SIGKILL)
            time.sleep(0.005)
        self.process.join(END_SECONDS)
        self.connection.close()
        self.lifeline.close()


def process_exists(pid: int | None) -> bool:
    """Return True if a process with this id exists."""
    try:
        os.kill(pid or 0, 0)
    except OSError:
        return False
    return os.name == "posix"


def describe_exit(code: int | None) -> dict[str, str]:
    """Return the error, as in run.json, of a process that ended without a `finished` event.

    Args:
        code: exit code; negative for the number of the signal that killed it.
    """
    message = f"its process exited during training, with exit code {code}"
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else "a signal"
        more = ", possibly out of memory" if -code == 9 else ""
        message = f"its process was killed by signal {-code} ({name}{more})"
    return {"type": "Died", "message": message}
