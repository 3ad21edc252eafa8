"""One run directory: its lock, its heartbeat and run.json; where a run's numbers come from."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nnexp.base.errors import RecordError
from nnexp.rundir import provenance
from nnexp.rundir import run as record
from nnexp.rundir.create_run_dir import create_run
from nnexp.rundir.run import Run, max_locks


@pytest.fixture
def job(make_job, tmp_path):
    composed = make_job("dataset=moons", "model=mlp")
    return replace(composed, options=replace(composed.options, runs=str(tmp_path)))


@pytest.fixture
def run(job) -> Run:
    return create_run(job, "ab" * 32)


def test_who_takes_the_lock_reads_what_another_process_wrote_until_then(job) -> None:
    run = create_run(job, "ab" * 32)
    other = Run(run.path)
    run.lock()
    run.write(status="interrupted")
    run.unlock()
    other.lock()
    other.write(steps=3)
    assert (other.read()["status"], other.read()["steps"]) == ("interrupted", 3)
    other.write(status="finished")
    other.unlock()
    run.lock()
    assert run.status == "finished"
    run.unlock()
    other.write(status="failed")
    assert run.status == "failed"


def test_what_is_read_can_be_changed_without_harm(job) -> None:
    run = create_run(job, "ab" * 32)
    run.lock()
    run.read()["resumed_from"].append(3)
    run.write(steps=1)
    assert json.loads((run.path / "run.json").read_text()) == run.read()
    assert run.read()["resumed_from"] == []


def test_a_locked_directory_is_refused_and_named(job) -> None:
    run = create_run(job, "ab" * 32)
    run.lock()
    with pytest.raises(RecordError, match=f"is being trained by process {os.getpid()}"):
        Run(run.path).lock()
    run.unlock()
    Run(run.path).lock()


def test_a_fresh_heartbeat_from_another_host_counts_as_alive(job, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(job, "ab" * 32)
    run.write(status="running", host="another")
    (run.path / "lock").touch()
    with pytest.raises(RecordError, match="another"):
        run.lock()
    old = time.time() - record.HEARTBEAT_SECONDS - 1
    os.utime(run.path / "lock", (old, old))
    run.lock()
    assert run.read()["host"] != socket.gethostname()


def test_the_heartbeat_moves_the_time_of_the_lock(job) -> None:
    run = create_run(job, "ab" * 32)
    run.lock()
    os.utime(run.path / "lock", (0, 0))
    run.heartbeat()
    assert (run.path / "lock").stat().st_mtime > time.time() - 60


def test_another_folder_has_another_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    states = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        if name == "b":
            provenance._git("init", "-q")
            provenance._git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m", "--allow-empty")
        states.append(provenance.provenance_facts("cpu")["git"])
    assert states == [None, {"commit": provenance._git("rev-parse", "HEAD"), "dirty": False}]


def test_git_state_is_none_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.git_state() is None


def test_git_state_names_the_commit_and_whether_files_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("a")
    who = ("-c", "user.name=n", "-c", "user.email=e")
    for words in (("init", "-q"), ("add", "file"), (*who, "commit", "-qm", "m")):
        provenance._git(*words)
    assert provenance.git_state() == {"commit": provenance._git("rev-parse", "HEAD"), "dirty": False}
    (tmp_path / "file").write_text("b")
    assert (provenance.git_state() or {})["dirty"] is True


def test_as_many_directories_are_locked_at_once_as_files_may_be_open(monkeypatch) -> None:
    resource = pytest.importorskip("resource")
    limits = [200, 300]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.__setitem__(0, wanted[0]))
    assert max_locks() == 300 - 128
    assert limits == [300, 300]
    limits[:] = [100, 100]
    assert max_locks() == 1


@pytest.mark.parametrize(
    "facts",
    [
        {"lanes": 0},
        {"steps": 10**400},
        {"steps": -1},
        {"seconds": float("inf")},
        {"metrics": {"val/accuracy": "x"}},
        {"metrics": [1]},
        {"error": {"message": 5}},
        {"notes": [3]},
    ],
    ids=lambda facts: str(facts)[:40],
)
def test_facts_that_are_not_sound_are_refused_by_name(run, facts: dict[str, object]) -> None:
    content = json.loads((run.path / "run.json").read_text()) | facts
    (run.path / "run.json").write_text(json.dumps(content))
    with pytest.raises(RecordError, match=f"run.json has no valid '{next(iter(facts))}'"):
        run.read()


@pytest.mark.parametrize(
    "facts",
    [
        {"lanes": 1, "steps": 0, "parameters": 0, "error": None},
        {"lanes": 2, "metrics": {"val/loss": 0.5, "val/accuracy": 1, "test/loss": None}, "probes": {}},
        {"seconds": 0, "error": {"message": ""}, "notes": ["one", ""], "probing": {"filters": 0.5}},
    ],
    ids=str,
)
def test_facts_at_their_limits_are_sound(run, facts: dict[str, object]) -> None:
    run.write(**facts)
    assert run.read().items() >= facts.items()


def test_a_pipe_in_the_place_of_run_json_is_not_waited_for(run) -> None:
    (run.path / "run.json").unlink()
    os.mkfifo(run.path / "run.json")
    with pytest.raises(RecordError):
        run.read()
