"""What a person sees at the end."""

from __future__ import annotations

from nnexp.table import align, many_runs, number, one_run


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    assert align([["name", "n"], ["a", "5"], ["long", "12"]]) == "name   n\na      5\nlong  12"


def test_numbers_have_four_decimals_unless_too_large() -> None:
    assert [number(v) for v in (None, 0.25, 12.0, 1.5e30)] == ["", "0.2500", "12.0000", "1.5e+30"]


def test_one_run_shows_every_split_its_size_and_where_to_look(train) -> None:
    run = train("dataset=moons", "model=mlp", "trainer.max_steps=20")
    metrics = run.read()["metrics"]
    lines = one_run(run).splitlines()
    assert lines[0].startswith("finished: 20 steps in ")
    assert lines[0].endswith(", 82 weights")
    for line, split in zip(lines[2:5], ("train", "val", "test"), strict=True):
        assert line.split() == [split, *(number(metrics[f"{split}/{name}"]) for name in ("loss", "accuracy"))]
    assert lines[5:] == [f"run:   {run.path}", f"look:  tensorboard --logdir {run.path}"]


def test_one_run_shows_notes_and_errors(train) -> None:
    assert "note:  there are only 114 sequences" in one_run(train("dataset.length=8", "trainer.max_steps=0"))
    assert "error: the pattern has 3 bits" in one_run(train("dataset.length=2"))


def test_many_runs_have_a_line_each(train) -> None:
    good, bad = train("dataset=moons", "trainer.max_steps=5"), train("dataset=moons", "trainer.batch_size=9999")
    head, first, second, look = many_runs([good, bad]).splitlines()
    assert head.split()[:4] == ["run", "status", "steps", "seconds"]
    assert first.split()[:3] == [good.path.name, "finished", "5"]
    assert second.split()[:3] == [bad.path.name, "failed", "0"]
    assert look == f"look:  tensorboard --logdir {good.path.parent}"
