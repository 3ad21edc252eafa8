"""metrics.csv: format, round trip, cutting back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nnexp.metrics import Metrics, read_rows


def test_a_column_without_a_number_is_empty_in_that_row(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "m.csv", ["train/loss", "val/loss"], 9)
    metrics.append([(0, {"val/loss": 0.5}), (1, {"train/loss": 0.25})])
    metrics.close()
    assert (tmp_path / "m.csv").read_text() == "step,train/loss,val/loss\n0,,0.5\n1,0.25,\n"


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 9), (torch.float64, 17)])
def test_numbers_come_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype, digits: int) -> None:
    numbers = torch.randn(500, dtype=dtype) * torch.logspace(-30, 30, 500, dtype=dtype)
    metrics = Metrics(tmp_path / "m.csv", ["x"], digits)
    metrics.append((step, {"x": value}) for step, value in enumerate(numbers.tolist()))
    metrics.close()
    read = torch.tensor([row["x"] for _, row in read_rows(tmp_path / "m.csv")], dtype=dtype)
    assert torch.equal(read, numbers)


def test_a_cut_forgets_what_came_after_and_goes_on_from_there(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "m.csv", ["x"], 9)
    metrics.append([(0, {"x": 0.0})])
    size, digest = metrics.sync()
    metrics.append([(1, {"x": 1.0})])
    assert metrics.holds(size, digest)
    assert not metrics.holds(size - 1, digest)
    metrics.cut(size)
    assert metrics.sync() == (size, digest)
    metrics.append([(2, {"x": 2.0})])
    metrics.close()
    assert read_rows(tmp_path / "m.csv") == [(0, {"x": 0.0}), (2, {"x": 2.0})]


def test_opening_again_appends_and_writes_no_second_head(tmp_path: Path) -> None:
    for step in range(2):
        metrics = Metrics(tmp_path / "m.csv", ["x"], 9)
        metrics.append([(step, {"x": float("nan")})])
        metrics.close()
    assert (tmp_path / "m.csv").read_text() == "step,x\n0,nan\n1,nan\n"
