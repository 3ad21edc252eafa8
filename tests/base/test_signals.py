"""Signals and kills, in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnexp.base.signals import StopRequest
from nnexp.commands.cli import command_line

JOB = ["dataset=moons", "model=mlp", "trainer.max_steps=6000", "checkpoint_every=500", "probe=null"]


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "nnexp", *JOB]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and what was said on stderr."""
    _, errors = process.communicate()
    return process.returncode, errors


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[str]) -> Path:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for path in folder.glob("runs/default/*/previous.ckpt"):
            return path.parent
        time.sleep(0.01)
    raise AssertionError(process.communicate())


def outcome(run: Path) -> tuple[bytes, bytes]:
    return (run / "metrics.csv").read_bytes(), (run / "model.pt").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert command_line([*JOB, f"runs='{folder}'"]) == 0
    return outcome(next(folder.glob("default/*")))


@pytest.mark.slow
def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed) -> None:
    process = start(tmp_path)
    run = wait_for_checkpoint(tmp_path, process)
    process.send_signal(signal.SIGINT)
    code, errors = end(process)
    assert code == 130
    facts = json.loads((run / "run.json").read_text())
    assert facts["status"] == "interrupted"
    assert f"To resume: python -m nnexp {' '.join(JOB)}" in errors
    reached = len((run / "metrics.csv").read_text().splitlines()) - 2
    monkeypatch.chdir(tmp_path)
    assert command_line(JOB) == 0
    facts = json.loads((run / "run.json").read_text())
    (resumed_from,) = facts["resumed_from"]
    assert reached - 500 <= resumed_from <= reached
    assert facts["status"] == "finished"
    assert outcome(run) == undisturbed


@pytest.mark.slow
def test_two_processes_at_once_train_a_job_once(tmp_path: Path, undisturbed) -> None:
    first = start(tmp_path)
    run = wait_for_checkpoint(tmp_path, first)
    first.send_signal(signal.SIGSTOP)  # so that it cannot end before the second has begun
    code, errors = end(start(tmp_path))
    first.send_signal(signal.SIGCONT)
    assert code == 1
    assert f"is being trained by process {first.pid}" in errors
    assert end(first)[0] == 0
    assert outcome(run) == undisturbed


@pytest.mark.slow
def test_a_full_disk_fails_the_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed
) -> None:
    """A limit on the size of a file stands for the full disk: metrics.csv runs into it."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); {RUN}"
    command = [sys.executable, "-c", limited, *JOB]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert first.returncode == 1
    assert "File too large" in first.stdout
    (run,) = tmp_path.glob("runs/default/*")
    monkeypatch.chdir(tmp_path)
    assert command_line(JOB) == 0
    assert json.loads((run / "run.json").read_text())["resumed_from"][0] >= 500
    assert outcome(run) == undisturbed


RUN = "import sys; from nnexp.commands.cli import command_line as main; sys.exit(main(sys.argv[1:]))"


def test_the_first_signal_asks_and_the_second_ends_at_once() -> None:
    stop = StopRequest()
    with stop.handling():
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        assert stop.exit_code == 143
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with StopRequest().handling():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
