"""Executor that trains each task in a worker process of its own, so that a process that dies fails its task only.

It uses multiprocessing directly, because a pool of the standard library does not report which process died. A worker
that is killed, or that exits during training (`os._exit(0)` in a plugin), is noticed, and none is left behind.
"""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import time
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from nnexp.execution.executor import EventHandler, Executor
from nnexp.execution.forkserver import START_METHOD, start_forkserver
from nnexp.execution.task import STOP, Task
from nnexp.execution.worker_process import WorkerProcess, describe_exit
from nnexp.registry import Registry

MAX_STARTS, START_SECONDS = 3, 0.2


class WorkerExecutor(Executor):
    """Trains tasks in at most `size` worker processes at a time.

    Args:
        size: maximum number of workers.
        on_event: receives the events of tasks.
        registry: finds the plugins.
        gpus: devices to distribute over the workers, as CUDA_VISIBLE_DEVICES takes them.
        share: fraction of the free memory that each worker may take.
    """

    def __init__(
        self, size: int, on_event: EventHandler, registry: Registry, gpus: list[str], *, share: float = 1.0
    ) -> None:
        super().__init__(size, on_event)
        self.registry, self.gpus, self.share = registry, gpus, share
        self.workers: list[WorkerProcess] = []
        self.context: Any = mp.get_context(START_METHOD)
        if START_METHOD == "forkserver":
            self.context.set_forkserver_preload(["nnexp.execution.preload"])

    @property
    def num_busy(self) -> int:
        """Number of tasks in training."""
        return len(self.workers)

    def start(self, task: Task, *, is_trial: bool = False) -> None:
        """Start a worker for a task.

        Args:
            task: its run directories exist, unless it is a trial.
            is_trial: time a few updates of its first job instead, which writes nothing.

        Raises:
            OSError, EOFError: if no process can be started.
        """
        connection, worker_connection = self.context.Pipe()
        worker_lifeline, lifeline = self.context.Pipe(duplex=False)
        used = [worker.gpu for worker in self.workers]
        gpu = min(self.gpus, key=used.count) if self.gpus else None
        content = task.to_dict(with_runs=not is_trial) | {"is_trial": is_trial}
        arguments = (worker_connection, worker_lifeline, content, self.registry, self.share, gpu)
        try:
            process = self._start_process(arguments)
        except BaseException:
            connection.close()
            lifeline.close()
            raise
        finally:
            worker_connection.close()
            worker_lifeline.close()
        self.workers.append(WorkerProcess(task, process, connection, lifeline, gpu))

    def _start_process(self, arguments: tuple[Any, ...]) -> BaseProcess:
        for attempt in range(MAX_STARTS):
            try:
                start_forkserver()
                process: BaseProcess = self.context.Process(target=_run_worker, args=arguments)
                process.start()
                break
            except (EOFError, ConnectionError):  # the fork server has died: the next attempt starts another
                if attempt == MAX_STARTS - 1:
                    raise
                time.sleep(START_SECONDS)
        return process

    def poll(self, seconds: float) -> None:
        """Handle the events of all workers; wait up to `seconds` for the first."""
        waitables = {waitable: worker for worker in self.workers for waitable in worker.waitables}
        for worker in dict.fromkeys(waitables[ready] for ready in wait(list(waitables), seconds)):
            is_dead = worker.is_dead
            try:
                for kind, content in worker.events():
                    if kind == "finished":
                        worker.result = content
                    else:
                        self.on_event(worker.task, kind, content)
            except (EOFError, OSError):
                is_dead = True
            if is_dead or worker.result:
                self._finish(worker)

    def _finish(self, worker: WorkerProcess) -> None:
        worker.end()
        self.workers.remove(worker)
        self.on_event(worker.task, "finished", worker.result or {"error": describe_exit(worker.process.exitcode)})

    def request_stop(self) -> None:
        """Ask all workers to save a checkpoint and end."""
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.connection.send_bytes(STOP)

    def close(self) -> None:
        """Kill all workers."""
        for worker in self.workers:
            with contextlib.suppress(OSError, ValueError):
                worker.process.kill()
        while self.workers:
            self.workers.pop().end()


def _run_worker(*arguments: Any) -> None:
    from nnexp.execution.worker import worker_main  # imports torch, which the main process does not need

    worker_main(*arguments)
