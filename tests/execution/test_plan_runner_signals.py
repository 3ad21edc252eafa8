"""A sweep of real processes, killed and interrupted at any moment: nothing is lost, and nobody is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nnexp.commands.cli import command_line

SWEEP = ["-m", "dataset=moons", "model=mlp", "model.hidden_size=4,8", "seed=0,1", "trainer.max_steps=3000"]
SWEEP += ["checkpoint_every=200", "sweep.workers=2"]
HERE = [*SWEEP, "sweep.workers=0"]  # in the test's own process, which need not be started
pytestmark = pytest.mark.slow
Bytes = dict[str, tuple[bytes, bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    """Starts the sweep in a process group of its own, and sees that nothing of it is left."""
    started: list[subprocess.Popen[str]] = []

    def begin(folder: Path = tmp_path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "nnexp", *SWEEP]
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes))
        return started[-1]

    yield begin
    for process in started:
        process.wait()
        deadline = time.monotonic() + 20
        while group_is_alive(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not group_is_alive(process.pid)


def group_is_alive(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def run_folders(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("runs/default/*/run.json"))


def facts(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((run / "run.json").read_text()) for run in run_folders(folder)]


def content(folder: Path) -> Bytes:
    return {
        run.name: ((run / "metrics.csv").read_bytes(), (run / "model.pt").read_bytes()) for run in run_folders(folder)
    }


def wait_for_checkpoints(folder: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if len(list(folder.glob("runs/default/*/previous.ckpt"))) == 4:
            return
        time.sleep(0.01)
    raise AssertionError(process.communicate())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Bytes:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert command_line([*HERE, f"runs='{folder / 'runs'}'"]) == 0
    return content(folder)


@pytest.mark.parametrize(
    ("number", "is_group", "code", "statuses"),
    [
        (signal.SIGKILL, True, -9, {"running"}),
        (signal.SIGKILL, False, -9, {"running"}),
        (signal.SIGTERM, True, 143, {"interrupted"}),
    ],
)
def test_a_sweep_that_is_ended_goes_on_bit_for_bit(
    start, tmp_path: Path, monkeypatch, undisturbed: Bytes, number: int, is_group: bool, code: int, statuses: set[str]
) -> None:
    process = start()
    wait_for_checkpoints(tmp_path, process)
    (os.killpg if is_group else os.kill)(process.pid, number)
    _, errors = process.communicate()
    assert process.returncode == code, errors
    if number != signal.SIGKILL:
        assert f"To resume: python -m nnexp {' '.join(SWEEP)}" in errors
    while group_is_alive(process.pid):
        time.sleep(0.02)
    assert {str(each["status"]) for each in facts(tmp_path)} == statuses
    monkeypatch.chdir(tmp_path)
    assert command_line(HERE) == 0
    assert [(each["status"], len(each["resumed_from"])) for each in facts(tmp_path)] == [("finished", 1)] * 4
    assert content(tmp_path) == undisturbed


def test_a_second_signal_ends_a_sweep_at_once(start, tmp_path: Path) -> None:
    process = start()
    wait_for_checkpoints(tmp_path, process)
    process.send_signal(signal.SIGSTOP)  # so that both are there before the first is answered
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate()
    assert process.returncode in (130, 143)
    assert "stopped at once. To resume from the last checkpoints: python -m nnexp -m" in errors
    assert {each["status"] for each in facts(tmp_path)} == {"interrupted"}


def test_two_sweeps_at_once_share_the_work_and_train_no_job_twice(start, tmp_path: Path, undisturbed: Bytes) -> None:
    both = [start(), start()]
    for process in both:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    assert [each["resumed_from"] for each in facts(tmp_path)] == [[]] * 4
    assert content(tmp_path) == undisturbed
    (table,) = tmp_path.glob("runs/default/sweep-*/results.csv")
    assert table.read_text().count(",finished,3000,") == 4
