"""metrics.csv: format, round trip, cutting back; rows by the chunk."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest
import torch

from nnexp.rundir.metrics_csv import MetricsCsv, Rows, last_step, read_rows

PAIR = ["train/loss", "grad_norm"]


def step(number: int, loss: float = 0.0) -> Rows:
    return Rows(number, [loss], [2 * loss])


def test_a_column_without_a_number_is_empty_in_that_row(tmp_path: Path) -> None:
    metrics = MetricsCsv(tmp_path / "m.csv", [*PAIR, "lr", "val/loss"], 9)
    metrics.append(Rows(1, [], [], {0: {"val/loss": 0.5}}))
    metrics.append(Rows(1, [0.25, 0.125, 1e-10], [1.0, 2.0, math.inf], {2: {"val/loss": 0.75}}))
    metrics.flush()
    lines = ["step,train/loss,grad_norm,lr,val/loss", "0,,,,0.5", "1,0.25,1,,", "2,0.125,2,,0.75", "3,1e-10,inf,,", ""]
    assert (tmp_path / "m.csv").read_text().split("\n") == lines


@pytest.mark.parametrize("recorded", [[], [1], [5, 6, 20], list(range(1, 21))])
@pytest.mark.parametrize("digits", [9, 17])
def test_rows_in_bulk_are_what_they_are_one_by_one(tmp_path: Path, recorded: list[int], digits: int) -> None:
    losses, norms = torch.randn(2, 20, dtype=torch.float64).mul(1e5).tolist()
    rows = Rows(1, losses, norms, {at: {"val/loss": losses[at - 1] / 3} for at in recorded})
    metrics = MetricsCsv(tmp_path / "m.csv", [*PAIR, "lr", "val/loss"], digits)
    metrics.append(rows)
    metrics.flush()
    expected = io.StringIO()
    writer = csv.DictWriter(expected, ["step", *PAIR, "lr", "val/loss"], lineterminator="\n")
    writer.writeheader()
    for at in range(1, 21):
        writer.writerow({"step": at} | {name: f"{value:.{digits}g}" for name, value in rows.row(at).items()})
    assert (tmp_path / "m.csv").read_text() == expected.getvalue()


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 9), (torch.float64, 17)])
def test_numbers_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype, digits: int) -> None:
    numbers = torch.randn(2, 500, dtype=dtype) * torch.logspace(-30, 30, 500, dtype=dtype)
    metrics = MetricsCsv(tmp_path / "m.csv", PAIR, digits)
    metrics.append(Rows(1, *numbers.tolist()))
    metrics.flush()
    read = [[row[name] for _, row in read_rows(tmp_path / "m.csv")] for name in PAIR]
    assert torch.equal(torch.tensor(read, dtype=dtype), numbers)


def test_a_cut_forgets_what_came_after_and_goes_on_from_there(tmp_path: Path) -> None:
    metrics = MetricsCsv(tmp_path / "m.csv", PAIR, 9)
    metrics.append(step(1))
    size, digest = metrics.flush()
    metrics.append(step(2, 1.0))
    assert metrics.starts_with(size, digest)
    assert not metrics.starts_with(size - 1, digest)
    metrics.truncate(size)
    assert metrics.flush() == (size, digest)
    metrics.append(step(3, 2.0))
    metrics.flush()
    assert read_rows(tmp_path / "m.csv") == [
        (1, {"train/loss": 0.0, "grad_norm": 0.0}),
        (3, {"train/loss": 2.0, "grad_norm": 4.0}),
    ]


def test_opening_again_appends_and_writes_no_second_head(tmp_path: Path) -> None:
    for number in range(2):
        metrics = MetricsCsv(tmp_path / "m.csv", PAIR, 9)
        metrics.append(step(number, float("nan")))
        metrics.flush()
    assert (tmp_path / "m.csv").read_text() == "step,train/loss,grad_norm\n0,nan,nan\n1,nan,nan\n"


def test_the_first_rows_keep_their_columns_and_a_row_has_all_of_its_own() -> None:
    rows = Rows(4, [1.0, 2.0, 3.0], [4.0, 5.0, 6.0], {4: {"lr": 0.1}, 6: {"lr": 0.2}})
    assert rows.head(2) == Rows(4, [1.0, 2.0], [4.0, 5.0], {4: {"lr": 0.1}})
    assert rows.row(6) == {"train/loss": 3.0, "grad_norm": 6.0, "lr": 0.2}
    assert rows.row(5) == {"train/loss": 2.0, "grad_norm": 5.0}
    assert (len(rows), rows.last_step) == (3, 6)


def test_what_is_added_to_the_last_row_stays_there() -> None:
    rows, recorded = Rows(4, [1.0, 2.0], [4.0, 5.0]), Rows(1, [1.0], [4.0], {1: {"lr": 0.1}})
    for each in (rows, recorded):
        each.last["val/loss"] = 0.5
    assert rows.sparse == {5: {"val/loss": 0.5}}
    assert recorded.sparse == {1: {"lr": 0.1, "val/loss": 0.5}}
    before = Rows(1, [], [], {0: {"val/loss": 0.5}})
    assert (before.last, before.row(0)) == ({"val/loss": 0.5}, {"val/loss": 0.5})


@pytest.mark.parametrize(
    ("losses", "norms", "index"),
    [
        ([1.0, 2.0], [1.0, 1.0], None),
        ([1.0, math.nan, math.nan], [1.0, 1.0, 1.0], 1),
        ([1.0, 2.0], [math.inf, 1.0], 0),
        ([math.inf], [-math.inf], 0),
        ([1e308] * 3, [1.0] * 3, None),
        ([], [], None),
    ],
)
def test_the_first_row_that_is_not_finite_is_found(losses: list[float], norms: list[float], index: int | None) -> None:
    assert Rows(1, losses, norms).first_nonfinite() == index


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("step,a\n0,1\n1,2\n", 1),
        ("step,a\n0,1\n1,2\n2,", 1),
        ("step,a\n", 0),
        ("", 0),
        ("step,a\n" + "7,1\n" * 20000, 7),
    ],
    ids=["whole", "torn", "head", "empty", "long"],
)
def test_the_last_whole_row_says_how_far_a_run_came(tmp_path: Path, text: str, step: int) -> None:
    (tmp_path / "metrics.csv").write_text(text)
    assert last_step(tmp_path / "metrics.csv") == step
    assert last_step(tmp_path / "none.csv") == 0
