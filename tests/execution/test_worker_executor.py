"""Worker processes: the end of each is noticed, fails its own task only, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from contract.compose import jobs_of

from nnexp.execution.plan import plan_cohorts
from nnexp.execution.task import Task
from nnexp.execution.worker_executor import WorkerExecutor
from nnexp.execution.worker_process import describe_exit, process_exists
from nnexp.rundir.planned_run import create_missing_runs


@pytest.fixture
def tasks(faulty, tmp_path: Path):
    """A task for each of some faults."""

    def make(*faults: int, **more: Any) -> list[Task]:
        steps = more.get("steps", 20)
        command = ["dataset=moons", "model=faulty", f"model.fault={','.join(map(str, faults))}", "stack=false"]
        command += [f"trainer.max_steps={steps}", f"runs='{tmp_path / 'runs'}'"]
        cohorts = plan_cohorts(jobs_of(command, faulty, multirun=True), faulty)
        for cohort in cohorts:
            create_missing_runs(cohort)
        return [Task(cohort) for cohort in cohorts]

    return make


@pytest.fixture
def pool(faulty) -> Iterator[tuple[WorkerExecutor, list[tuple[Task, str, Any]]]]:
    events: list[tuple[Task, str, Any]] = []
    made = WorkerExecutor(2, lambda *event: events.append(event), faulty, [])
    yield made, events
    made.close()


def start_training(pool: WorkerExecutor, events: list[tuple[Task, str, Any]], task: Task) -> None:
    """Start a task, and wait until it has made some steps."""
    pool.start(task)
    while not any(kind == "step" for _, kind, _ in events):
        pool.poll(0.1)


def wait_for_all(pool: WorkerExecutor) -> None:
    deadline = time.monotonic() + 60
    while pool.num_busy and time.monotonic() < deadline:
        pool.poll(0.1)
    assert not pool.num_busy


@pytest.mark.slow
def test_each_task_has_a_process_and_reports_the_end_of_its_run(pool, tasks) -> None:
    workers, events = pool
    one, two = tasks(0, 1)
    workers.start(one)
    workers.start(two)
    pids = {worker.process.pid for worker in workers.workers}
    wait_for_all(workers)
    assert {one.cohort[0].run.read()["pid"]} < pids
    assert [task.cohort[0].status for task in (one, two)] == ["finished", "failed"]
    assert sorted(content for _, kind, content in events if kind == "run_ended") == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (4, "its process was killed by signal 9 (SIGKILL, possibly out of memory)"),
        (6, "its process exited during training, with exit code 0"),
    ],
)
def test_a_process_that_dies_is_an_error_of_its_task(pool, tasks, fault: int, message: str) -> None:
    workers, events = pool
    (task,) = tasks(fault)
    workers.start(task)
    wait_for_all(workers)
    assert events[-1] == (task, "finished", {"error": {"type": "Died", "message": message}})
    assert not task.cohort[0].run.is_locked


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list a process's open files")
def test_where_no_process_can_be_made_nothing_stays_open(pool, tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_arguments: object) -> None:
        raise OSError("no processes left")

    workers, _ = pool
    (task,) = tasks(0)
    monkeypatch.setattr(workers, "_start_process", fail)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no processes left") as raised:
        workers.start(task)
    assert (workers.num_busy, len(os.listdir("/proc/self/fd"))) == (0, before), raised


@pytest.mark.slow
@pytest.mark.parametrize(("share", "is_cut"), [(1.0, False), (1e-12, True)])
def test_a_worker_takes_no_more_than_its_share_of_the_memory(
    registry, tmp_path: Path, share: float, is_cut: bool
) -> None:
    command = ["dataset=moons", "model=mlp", "trainer.max_steps=5", "seed=0,1", f"runs='{tmp_path / 'runs'}'"]
    (cohort,) = plan_cohorts(jobs_of(command, registry, multirun=True), registry)
    create_missing_runs(cohort)
    events: list[object] = []
    workers = WorkerExecutor(1, lambda _task, kind, content: events.append((kind, content)), registry, [], share=share)
    workers.start(Task(cohort))
    wait_for_all(workers)
    workers.close()
    assert (("message", "2 lanes do not fit into memory: they are trained in 2 parts") in events) is is_cut
    assert [planned.status for planned in cohort] == ["finished"] * 2


@pytest.mark.slow
def test_a_thread_that_a_plugin_leaves_behind_keeps_no_process_alive(pool, tasks) -> None:
    workers, _ = pool
    (task,) = tasks(8)
    workers.start(task)
    began = time.monotonic()
    wait_for_all(workers)
    assert time.monotonic() - began < 60
    assert task.cohort[0].status == "finished"


@pytest.mark.slow
def test_what_a_plugin_prints_stands_in_the_log_of_its_run(pool, tasks) -> None:
    workers, events = pool
    (task,) = tasks(7)
    workers.start(task)
    wait_for_all(workers)
    assert not [content for _, kind, content in events if kind == "message"]
    assert set((task.cohort[0].run.path / "log.txt").read_text().splitlines()) == {"it prints"}


@pytest.mark.slow
def test_each_worker_has_a_gpu_of_its_own_while_there_are_enough(faulty, tasks) -> None:
    workers = WorkerExecutor(2, lambda *_: None, faulty, ["3", "GPU-7"])
    made = tasks(9, 9.5)
    for task in made:
        workers.start(task)
    assert [worker.gpu for worker in workers.workers] == ["3", "GPU-7"]
    wait_for_all(workers)
    assert set((made[0].cohort[0].run.path / "log.txt").read_text().splitlines()) == {"3"}
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.slow
def test_workers_that_are_asked_to_stop_save_a_checkpoint(pool, tasks) -> None:
    workers, events = pool
    (task,) = tasks(0, steps=10_000_000)
    start_training(workers, events, task)
    workers.request_stop()
    wait_for_all(workers)
    assert task.cohort[0].status == "interrupted"
    assert (task.cohort[0].run.path / "last.ckpt").exists()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system tells it on Linux only; elsewhere a thread must run")
def test_a_worker_that_is_deaf_goes_when_the_command_goes(tmp_path: Path, faulty) -> None:
    """C code that lets no thread run: a regular expression that takes for ever."""
    code = """
import time
from nnexp.execution.worker_executor import WorkerExecutor
from nnexp.execution.task import Task

pool = WorkerExecutor(1, print, None, [])
pool.context.set_forkserver_preload(["nnexp.execution.preload", "deaf"])
pool.start(Task([]))
print(pool.workers[0].process.pid, flush=True)
time.sleep(100)
"""
    (tmp_path / "deaf.py").write_text(
        "import re\nfrom nnexp.execution.worker import Task\n"
        "Task.from_dict = staticmethod(lambda content: re.match('(a+)+$', 'a' * 60 + 'b'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    time.sleep(0.5)
    assert process_exists(pid)
    process.kill()
    process.wait()
    process.stdout.close()  # not read to its end, for the worker holds it too
    deadline = time.monotonic() + 20
    while (is_there := process_exists(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    if is_there:
        os.kill(pid, signal.SIGKILL)
    assert not is_there


def test_a_long_temporary_folder_leaves_room_for_the_name_of_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("t" * 120)
    folder.mkdir()
    code = "from nnexp.execution.forkserver import start_forkserver; start_forkserver(); print('there')"
    environment = {**os.environ, "TMPDIR": str(folder)}
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, capture_output=True, text=True, env=environment).stdout == "there\n"


@pytest.mark.slow
def test_a_file_of_the_working_folder_is_taken_for_no_module_of_python(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('not this one')")
    code = "import sys; sys.path.remove('')\nfrom nnexp.execution.forkserver import start_forkserver\n"
    code += "from nnexp.execution.worker_executor import WorkerExecutor\n"
    code += "WorkerExecutor(1, print, None, []); start_forkserver()\n"
    code += "import multiprocessing; context = multiprocessing.get_context('forkserver')\n"
    code += "process = context.Process(target=print, args=('there',)); process.start(); process.join()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert result.stdout == "there\n", result.stderr


@pytest.mark.slow
def test_a_worker_outlives_the_process_that_it_was_forked_from(pool, tasks) -> None:
    workers, events = pool
    one, two = tasks(0, 9, steps=3000)
    workers.start(one)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)  # type: ignore[attr-defined]
    workers.start(two)
    wait_for_all(workers)
    assert [task.cohort[0].status for task in (one, two)] == ["finished", "finished"]
    assert not [content for _, kind, content in events if kind == "finished" and "error" in content]


@pytest.mark.slow
def test_closing_ends_all_processes_at_once(pool, tasks) -> None:
    workers, events = pool
    (task,) = tasks(0, steps=10_000_000)
    start_training(workers, events, task)
    pid = workers.workers[0].process.pid
    workers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not task.cohort[0].run.is_locked


@pytest.mark.slow
def test_the_process_that_workers_are_forked_from_touches_no_cuda_and_starts_no_thread() -> None:
    code = """
import os, threading
os.environ.pop("OPENBLAS_NUM_THREADS", None)
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import torch
del os.environ["OPENBLAS_NUM_THREADS"]
def refuse(*_): raise AssertionError("CUDA was asked for")
torch.cuda._lazy_init = torch.cuda.is_available = torch.cuda.device_count = refuse
import nnexp.execution.preload
assert threading.active_count() == 1 and torch.get_num_threads() == 1 and "OPENBLAS_NUM_THREADS" not in os.environ
assert not os.path.isdir("/proc/self/task") or len(os.listdir("/proc/self/task")) == 1
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_a_progress_bar_of_torch_makes_no_semaphore_that_a_killed_worker_leaves() -> None:
    code = """
import nnexp.execution.preload, multiprocessing.synchronize as made
from torch.hub import tqdm
def refuse(*_, **__): raise AssertionError("a semaphore was made")
made.SemLock.__init__ = refuse
tqdm(total=1, disable=True).close()
print("closed", flush=True)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "closed\n", result.stderr


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-signal.SIGSEGV, "signal 11 (SIGSEGV)"),
        (3, "exit code 3"),
        (None, "exit code None"),
        (-250, "signal 250 (a signal)"),
    ],
)
def test_the_exit_of_a_process_is_described(code: int | None, text: str) -> None:
    assert text in describe_exit(code)["message"]
