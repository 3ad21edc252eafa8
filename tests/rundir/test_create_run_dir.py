"""Run directories: names, atomic creation, what is found again."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from nnexp.base.errors import RecordError
from nnexp.config.run_label import slug
from nnexp.rundir.create_run_dir import RunIndex, create_run, create_runs, write_reference


@pytest.fixture
def job(make_job, tmp_path):
    composed = make_job("dataset=moons", "model=mlp")
    return replace(composed, options=replace(composed.options, runs=str(tmp_path)))


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
    run = create_run(job, "ab" * 32)
    assert run.path.parent.name == "default"
    assert run.path.name == f"{job.label}-abababab"
    config = yaml.safe_load((run.path / "config.yaml").read_text())
    assert config["model"] == {"name": "mlp", **job.model.values, "seed": 0}
    facts = run.read()
    assert facts["status"] == "new"
    assert facts["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert sorted(os.listdir(run.path.parent)) == [run.path.name]


def test_a_job_that_another_process_began_under_another_experiment_is_not_begun_again(job) -> None:
    first = create_run(job, "ab" * 32)
    assert create_run(replace(job, experiment="question"), "ab" * 32).path == first.path


def test_what_a_killed_process_left_half_written_is_removed(job) -> None:
    run = create_run(job, "ab" * 32)
    names = (".last.ckpt.123.part", ".last.ckpt.new.123.part", ".run.json.123.part", ".model.pt.123.part")
    litter = [*(run.path / name for name in names), run.path.parent / ".new-abababab-123"]
    for path in litter[:-1]:
        path.write_text("half")
    litter[-1].mkdir()
    run.lock()
    run.unlock()
    create_run(job, "cd" * 32)
    assert not any(path.exists() for path in litter)


def test_two_jobs_that_share_eight_digits_get_two_directories(job) -> None:
    first, second = create_run(job, "ab" * 32), create_run(job, "ab" * 4 + "cd" * 28)
    assert second.path.name == f"{job.label}-{'ab' * 4 + 'cd' * 4}"
    index = RunIndex(Path(job.options.runs))
    assert index.find("ab" * 32).path == first.path
    assert index.find("ab" * 4 + "cd" * 28).path == second.path
    assert index.find("ab" * 4 + "ef" * 28) is None


def test_processes_that_create_the_same_run_at_once_get_one_directory(job) -> None:
    with ThreadPoolExecutor(1) as pool:
        paths = {pool.submit(create_run, job, "ab" * 32).result().path for _ in range(3)}
    assert len(paths) == 1
    assert len(os.listdir(Path(job.options.runs) / "default")) == 1


def test_many_runs_made_at_once_are_those_made_one_by_one(job) -> None:
    digits = ["ab" * 32, "cd" * 32, "ab" * 4 + "cd" * 28]
    first = create_run(job, digits[0])
    made = create_runs([(job, text, None) for text in digits])
    assert list(made) == digits
    assert made[digits[0]].path == first.path
    assert [run.read()["fingerprint"] for run in made.values()] == digits
    assert [create_run(job, text).path for text in digits] == [run.path for run in made.values()]


def test_runs_that_cannot_be_made_leave_the_others_their_own(job, tmp_path: Path) -> None:
    digits = ["ab" * 32, "cd" * 32]
    for count in (8, 16, 64):
        (tmp_path / "default" / f"{job.label}-{digits[0][:count]}" / "taken").mkdir(parents=True)
    (tmp_path / "file").touch()
    nowhere = replace(job, options=replace(job.options, runs=str(tmp_path / "file")))
    made = create_runs([(nowhere, "ef" * 32, None), *((job, text, None) for text in digits)])
    assert list(made) == digits[1:]
    with pytest.raises(RecordError, match="the name is taken"):
        create_run(job, digits[0])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"status": "finished"}'])
def test_a_strange_run_json_is_refused_and_nothing_else_is_disturbed(job, text: str) -> None:
    good, bad = create_run(job, "ab" * 32), create_run(job, "cd" * 32)
    (bad.path / "run.json").write_text(text)
    with pytest.raises(RecordError, match="Move"):
        bad.read()
    index = RunIndex(Path(job.options.runs))
    assert index.find("cd" * 32) is None
    assert index.find("ab" * 32).path == good.path


def test_a_job_met_under_another_experiment_is_recorded_by_reference(job) -> None:
    run = create_run(job, "ab" * 32)
    other = replace(job, experiment="question")
    write_reference(job, run)
    write_reference(other, run)
    (reference,) = (Path(job.options.runs) / "question").iterdir()
    target = json.loads(reference.read_text())["run"]
    assert (reference.parent / target).resolve() == run.path.resolve()
    assert os.listdir(Path(job.options.runs) / "default") == [run.path.name]
