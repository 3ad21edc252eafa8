"""What a lane leaves behind: rows wait in memory, a checkpoint names what is on disk, and the seal comes last."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nnexp.fit.run_writer import RunWriter, seal_runs
from nnexp.probing.runner import ProbeLanes, ProbeRunner
from nnexp.registry.discovery import Registry
from nnexp.rundir.checkpoint import LAST, load_checkpoint
from nnexp.rundir.create_run_dir import create_runs
from nnexp.rundir.metrics_csv import BUFFER_BYTES, Rows, read_rows
from nnexp.rundir.run import Run
from nnexp.training.divergence import Diverged

FINAL = {"train/loss": 0.1, "val/loss": 0.2, "test/loss": 0.3}


def unprobed(lane) -> ProbeRunner:
    """Of a job without probes, which builds nothing."""
    return ProbeRunner(lane.job, Registry([]), ProbeLanes(lambda job: lane), lambda: False)


@pytest.fixture
def writers(make_job, make_lane, tmp_path: Path) -> Callable[[int], list[RunWriter]]:
    """So many writers of new runs, all of one lane, for what it trains is of no matter here."""
    job, lane = make_job("dataset=moons", "model=mlp"), make_lane("dataset=moons", "model=mlp")

    def make(count: int) -> list[RunWriter]:
        settings = replace(job.options, runs=str(tmp_path))
        digits = [f"{number:08x}" * 8 for number in range(count)]
        runs = create_runs((replace(job, options=settings), fingerprint, None) for fingerprint in digits)
        for run in runs.values():
            run.lock()
        return [RunWriter(run, lane, fingerprint, unprobed(lane)) for fingerprint, run in runs.items()]

    return make


def rows(first: int, count: int = 1) -> Rows:
    return Rows(first, [0.5] * count, [0.25] * count)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list a process's open files")
def test_of_hundreds_of_runs_only_the_locks_are_open(writers) -> None:
    before = len(os.listdir("/proc/self/fd"))
    made = writers(300)
    for writer in made:
        writer.add_rows(Rows(1, [], [], {0: {"val/loss": 0.5}}))
        writer.add_rows(rows(1))
        writer.flush()
        writer.checkpoint()
    assert len(os.listdir("/proc/self/fd")) - before == len(made)
    for writer in made:
        writer.finish(FINAL)
    seal_runs(made)
    for writer in made:
        assert writer.run.status == "finished"
        writer.run.unlock()
    assert len(os.listdir("/proc/self/fd")) == before


def test_rows_wait_until_they_are_many_and_a_checkpoint_names_what_is_on_disk(writers) -> None:
    (writer,) = writers(1)
    path = writer.metrics.path
    writer.add_rows(rows(1, 10))
    assert path.stat().st_size == 0
    writer.checkpoint()
    kept, content = load_checkpoint(writer.run.path / LAST), path.read_bytes()
    assert kept["metrics_bytes"] == len(content) > 0
    assert kept["metrics_sha256"] == hashlib.sha256(content).hexdigest()
    writer.add_rows(rows(11, BUFFER_BYTES // 10))
    assert path.stat().st_size > BUFFER_BYTES
    assert len(read_rows(path)) == 10 + BUFFER_BYTES // 10


def test_a_run_stopped_before_its_first_update_goes_on_with_the_points_it_had(writers) -> None:
    (writer,) = writers(1)
    writer.add_rows(Rows(1, [], [], {0: {"val/loss": 0.5}}))
    writer.interrupt()
    resumed = RunWriter(writer.run, writer.lane, writer.fingerprint, unprobed(writer.lane))
    resumed.add_rows(Rows(1, [0.25], [1.0], {1: {"lr": 0.1}}))
    resumed.flush()
    accumulator = EventAccumulator(str(writer.run.path))
    accumulator.Reload()
    points = {tag: [(p.step, p.value) for p in accumulator.Scalars(tag)] for tag in ("val/loss", "train/loss")}
    assert points == {"val/loss": [(0, 0.5)], "train/loss": [(1, 0.25)]}
    assert [step for step, _ in read_rows(writer.metrics.path)] == [0, 1]


def test_rows_that_could_not_be_written_are_written_when_they_can(writers) -> None:
    (writer,) = writers(1)
    path = writer.metrics.path
    writer.add_rows(rows(1, 5))
    path.rename(path.with_suffix(".away"))
    with pytest.raises(FileNotFoundError):
        writer.flush()
    path.with_suffix(".away").rename(path)
    writer.add_rows(rows(6))
    writer.flush()
    assert [step for step, _ in read_rows(path)] == [1, 2, 3, 4, 5, 6]


def test_run_json_says_how_a_run_ended_after_its_results_are_on_disk(writers) -> None:
    finished, diverged, training = made = writers(3)
    finished.finish(FINAL)
    diverged.diverge(Diverged("step 1: no.", rows(1)))
    assert [Run(writer.run.path).status for writer in made] == ["running"] * 3
    seal_runs(made)
    assert [Run(writer.run.path).status for writer in made] == ["finished", "diverged", "running"]
    facts = Run(finished.run.path).read()
    assert (facts["metrics"], facts["stopped_early"]) == (FINAL, True)
    seal_runs([training, *made])
    assert Run(training.run.path).status == "running"


def test_results_and_their_names_are_on_disk_before_run_json_says_so_and_then_it_is(writers, monkeypatch) -> None:
    (writer,) = writers(1)
    folder, fsync, noted = writer.run.path, os.fsync, []

    def note(file: int) -> None:
        (path,) = (p for p in (folder, *folder.iterdir()) if os.path.samestat(p.stat(), os.fstat(file)))
        noted.append((path.name, Run(folder).status))
        fsync(file)

    writer.finish(FINAL)
    monkeypatch.setattr(os, "fsync", note)
    seal_runs([writer])
    assert sorted(noted[:2]) == [("metrics.csv", "running"), ("model.pt", "running")]
    assert noted[2:] == [(folder.name, "running"), ("run.json", "finished"), (folder.name, "finished")]


def test_results_that_are_not_on_disk_fail_their_own_run_alone(writers) -> None:
    first, _ = made = writers(2)
    for writer in made:
        writer.finish(FINAL)
    (first.run.path / "model.pt").unlink()
    seal_runs(made)
    assert [writer.run.status for writer in made] == ["failed", "finished"]
    assert "FileNotFoundError" in first.run.read()["error"]["message"]
