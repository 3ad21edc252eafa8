"""The run directory: names, atomic creation, locks, what is found again."""

from __future__ import annotations

import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from nnexp import provenance, record
from nnexp.errors import RecordError
from nnexp.record import Index, Run, create, create_all, refer, slug


@pytest.fixture
def job(make_job, tmp_path):
    composed = make_job("dataset=moons", "model=mlp")
    return replace(composed, settings=replace(composed.settings, runs=str(tmp_path)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("forget_bias=3-seed=1", "forget_bias=3-seed=1"),
        ("path=/etc/Passwd a:b", "path=-etc-passwd-a-b"),
        ("pattern=(1, 0, 1)", "pattern=-1-0-1"),
        ("..", ""),
        ("con.", "con"),
        ("é" * 9 + "x", "x"),
        ("a" * 200, "a" * 64),
    ],
)
def test_names_are_safe_on_every_file_system(text: str, expected: str) -> None:
    assert slug(text) == expected


def test_a_new_directory_is_whole_and_holds_plain_values(job) -> None:
    run = create(job, "ab" * 32)
    assert run.path.parent.name == "default"
    assert run.path.name == f"{job.label}-abababab"
    config = yaml.safe_load((run.path / "config.yaml").read_text())
    assert config["model"] == {"name": "mlp", **job.model.values, "seed": 0}
    facts = run.read()
    assert facts["status"] == "new"
    assert facts["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert sorted(os.listdir(run.path.parent)) == [run.path.name]


def test_a_job_that_another_process_began_under_another_experiment_is_not_begun_again(job) -> None:
    first = create(job, "ab" * 32)
    assert create(replace(job, experiment="question"), "ab" * 32).path == first.path


def test_what_a_killed_process_left_half_written_is_removed(job) -> None:
    run = create(job, "ab" * 32)
    names = (".last.ckpt.123.part", ".last.ckpt.new.123.part", ".run.json.123.part", ".model.pt.123.part")
    litter = [*(run.path / name for name in names), run.path.parent / ".new-abababab-123"]
    for path in litter[:-1]:
        path.write_text("half")
    litter[-1].mkdir()
    run.lock()
    run.unlock()
    create(job, "cd" * 32)
    assert not any(path.exists() for path in litter)


def test_two_jobs_that_share_eight_digits_get_two_directories(job) -> None:
    first, second = create(job, "ab" * 32), create(job, "ab" * 4 + "cd" * 28)
    assert second.path.name == f"{job.label}-{'ab' * 4 + 'cd' * 4}"
    index = Index(Path(job.settings.runs))
    assert index.find("ab" * 32).path == first.path
    assert index.find("ab" * 4 + "cd" * 28).path == second.path
    assert index.find("ab" * 4 + "ef" * 28) is None


def test_processes_that_create_the_same_run_at_once_get_one_directory(job) -> None:
    with ThreadPoolExecutor(1) as pool:
        paths = {pool.submit(create, job, "ab" * 32).result().path for _ in range(3)}
    assert len(paths) == 1
    assert len(os.listdir(Path(job.settings.runs) / "default")) == 1


def test_many_runs_made_at_once_are_those_made_one_by_one(job) -> None:
    digits = ["ab" * 32, "cd" * 32, "ab" * 4 + "cd" * 28]
    first = create(job, digits[0])
    made = create_all([(job, text) for text in digits])
    assert list(made) == digits
    assert made[digits[0]].path == first.path
    assert [run.read()["fingerprint"] for run in made.values()] == digits
    assert [create(job, text).path for text in digits] == [run.path for run in made.values()]


def test_runs_that_cannot_be_made_leave_the_others_their_own(job, tmp_path: Path) -> None:
    digits = ["ab" * 32, "cd" * 32]
    for count in (8, 16, 64):
        (tmp_path / "default" / f"{job.label}-{digits[0][:count]}" / "taken").mkdir(parents=True)
    (tmp_path / "file").touch()
    nowhere = replace(job, settings=replace(job.settings, runs=str(tmp_path / "file")))
    made = create_all([(nowhere, "ef" * 32), *((job, text) for text in digits)])
    assert list(made) == digits[1:]
    with pytest.raises(RecordError, match="the name is taken"):
        create(job, digits[0])


def test_who_takes_the_lock_reads_what_another_process_wrote_until_then(job) -> None:
    run = create(job, "ab" * 32)
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
    run = create(job, "ab" * 32)
    run.lock()
    run.read()["resumed_from"].append(3)
    run.write(steps=1)
    assert json.loads((run.path / "run.json").read_text()) == run.read()
    assert run.read()["resumed_from"] == []


def test_a_locked_directory_is_refused_and_named(job) -> None:
    run = create(job, "ab" * 32)
    run.lock()
    with pytest.raises(RecordError, match=f"is being trained by process {os.getpid()}"):
        Run(run.path).lock()
    run.unlock()
    Run(run.path).lock()


def test_a_fresh_heartbeat_from_another_host_counts_as_alive(job, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create(job, "ab" * 32)
    run.write(status="running", host="another")
    (run.path / "lock").touch()
    with pytest.raises(RecordError, match="another"):
        run.lock()
    old = time.time() - record.HEARTBEAT_SECONDS - 1
    os.utime(run.path / "lock", (old, old))
    run.lock()
    assert run.read()["host"] != socket.gethostname()


def test_the_heartbeat_moves_the_time_of_the_lock(job) -> None:
    run = create(job, "ab" * 32)
    run.lock()
    os.utime(run.path / "lock", (0, 0))
    run.heartbeat()
    assert (run.path / "lock").stat().st_mtime > time.time() - 60


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"status": "finished"}'])
def test_a_strange_run_json_is_refused_and_nothing_else_is_disturbed(job, text: str) -> None:
    good, bad = create(job, "ab" * 32), create(job, "cd" * 32)
    (bad.path / "run.json").write_text(text)
    with pytest.raises(RecordError, match="Move"):
        bad.read()
    index = Index(Path(job.settings.runs))
    assert index.find("cd" * 32) is None
    assert index.find("ab" * 32).path == good.path


def test_a_job_met_under_another_experiment_is_recorded_by_reference(job) -> None:
    run = create(job, "ab" * 32)
    other = replace(job, experiment="question")
    refer(job, run)
    refer(other, run)
    (reference,) = (Path(job.settings.runs) / "question").iterdir()
    target = json.loads(reference.read_text())["run"]
    assert (reference.parent / target).resolve() == run.path.resolve()
    assert os.listdir(Path(job.settings.runs) / "default") == [run.path.name]


def test_another_folder_has_another_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    states = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        if name == "b":
            provenance._git("init", "-q")
            provenance._git("-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m", "--allow-empty")
        states.append(provenance.provenance("cpu")["git"])
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
    assert provenance.git_state()["dirty"] is True
