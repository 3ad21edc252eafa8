"""What a person sees at the end."""

from __future__ import annotations

from contract.compose import jobs_of

from nnexp.answers.tables import failures, format_number, run_summary, runs_table, shortest_path, sweep_summary
from nnexp.base.signals import StopRequest
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan


def test_numbers_have_four_decimals_unless_too_large_or_too_small() -> None:
    shown = [format_number(v) for v in (None, 0.0, 0.25, 12.0, 1.5e30, 1.5e-5)]
    assert shown == ["", "0.0000", "0.2500", "12.0000", "1.50e+30", "1.50e-05"]


def test_one_run_shows_every_split_its_size_and_where_to_look(train) -> None:
    run = train("dataset=moons", "model=mlp", "trainer.max_steps=20")
    metrics = run.read()["metrics"]
    lines = run_summary(run).splitlines()
    assert lines[0].startswith("finished: 20 steps in ")
    assert lines[0].endswith(", 82 weights")
    for line, split in zip(lines[2:5], ("train", "val", "test"), strict=True):
        assert line.split() == [split, *(format_number(metrics[f"{split}/{name}"]) for name in ("loss", "accuracy"))]
    assert lines[5:] == [f"run:   {shortest_path(run.path)}", f"look:  tensorboard --logdir {shortest_path(run.path)}"]


def test_one_run_shows_notes_and_errors(train) -> None:
    assert "note:  there are only 114 sequences" in run_summary(train("dataset.length=8", "trainer.max_steps=0"))
    failed = train("dataset.length=2")
    message = "dataset.pattern has 3 bits: set at least 1, at most dataset.length=2."
    assert f"error: ValueError: {message} (" in run_summary(failed)
    assert f"pattern.py:{failed.read()['error']['message'].rpartition(':')[2][:-1]})" in run_summary(failed)
    assert f"Traceback: {shortest_path(failed.path / 'error.txt')}." in run_summary(failed)


def test_many_runs_have_a_line_each_with_what_was_swept(registry, tmp_path) -> None:
    sweep = ["dataset=moons", "trainer.max_steps=5", "trainer.batch_size=9999,full", "model.forget_bias=null,3"]
    jobs = jobs_of([*sweep, f"runs='{tmp_path}'"], registry, multirun=True)
    begun = run_plan(plan_cohorts(jobs, registry), registry, StopRequest(), quiet=True)
    lines = runs_table(begun).splitlines()
    assert lines[0].split()[:5] == ["batch_size", "forget_bias", "status", "steps", "seconds"]
    assert [line.split()[:4] for line in lines[1:5]] == [
        ["9999", "null", "failed", "0"],
        ["9999", "3", "failed", "0"],
        ["full", "null", "finished", "5"],
        ["full", "3", "finished", "5"],
    ]
    assert [line.split()[-1] for line in lines[1:5]] == [item.run.path.name for item in begun]
    assert lines[5:] == [f"look:  tensorboard --logdir {shortest_path(tmp_path / 'default')}"]


def test_all_that_did_not_finish_is_told_in_one_table(registry, tmp_path) -> None:
    sweep = ["dataset=moons", "trainer.max_steps=5", "trainer.batch_size=9999,full,9998", f"runs='{tmp_path}'"]
    cohorts = plan_cohorts(jobs_of(sweep, registry, multirun=True), registry)
    begun = run_plan(cohorts, registry, StopRequest(), quiet=True)
    head, names, *lines = sweep_summary(begun).splitlines()
    assert head == "2 of 3 jobs did not finish (sweep.retry=failed tries again what failed):"
    assert names.split() == ["job", "status", "step", "why", "where"]
    assert lines[2] == "3 jobs: 2 failed, 1 finished"
    assert lines[3].endswith("/results.csv")
    for line, item in zip(lines[:2], (begun[0], begun[2]), strict=True):
        assert "trainer.batch_size=999" in line
        assert line.endswith(shortest_path(item.run.path / "error.txt"))
    assert failures(begun[1:2]) == []
    begun[1].failure = "it was lost,\nand that is all"
    assert "left out        it was lost, and that is all" in failures(begun[1:2])[1]
